"""Compare the results that the capture records with those of torch's kernels, for the samples of torch's
op_db.

Run it by `make check-fake`. Each operator that a sample calls, forward and backward, is compared: shape,
dtype, and strides of dimensions above 1. The inputs are contiguous, transposed, channels last and expanded.
The script lists the differences that the table in program/operators.py does not mend, and fails if there are
any.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from oneflow._graph.capture.results.fake_results import Results
from oneflow._graph.program.operators import ASSERTIONS, facts_of

Layout = tuple[Any, ...]
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _transposed(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t


def _channels_last(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous(memory_format=_FORMATS[t.dim()]) if t.dim() in _FORMATS else t


def _expanded(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(t.shape) if t.dim() > 1 and t.shape[0] > 1 else t


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": _transposed,
    "channels last": _channels_last,
    "expanded": _expanded,
}


@dataclass
class Comparison(TorchDispatchMode):
    """A mode that runs each operator on real and on fake tensors. `differences`: operator -> the
    first one.
    """

    differences: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    case: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def __hash__(self) -> int:
        return id(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fakes = self._fake_arguments(func, args, kwargs)
        real = func(*args, **kwargs)
        if fakes is not None:
            results, fake_args, fake_kwargs = fakes
            try:
                fake = results(func, fake_args, fake_kwargs)
            except Exception:  # no fake kernel, or results that depend on values
                return real
            self._compare(func, real, fake)
        return real

    def _fake_arguments(self, func: Any, args: Any, kwargs: Any) -> Any:
        facts = facts_of(func)
        if func.namespace != "aten" or func._schema.is_mutable or func in ASSERTIONS:
            return None
        if facts.has_other_memory or facts.opaque_results or facts.lifts:
            return None
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fake = lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v
        try:
            return Results(mode), *tree_map(fake, (args, kwargs))
        except Exception:  # a layout without fake tensors
            return None

    def _compare(self, func: Any, real: Any, fake: Any) -> None:
        for a, b in zip(tree_leaves(real), tree_leaves(fake)):
            if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
                continue
            self.compared += 1
            if layout_of(a) != layout_of(b):
                difference = f"{self.case}: the kernel gives {layout_of(a)}, the record {layout_of(b)}"
                self.differences.setdefault(str(func), difference)


def layout_of(t: torch.Tensor) -> Layout:
    """Return dtype, shape, and strides of dimensions above 1."""
    shape = tuple(t.shape)
    if t.layout is not torch.strided or not t.numel():
        return t.dtype, shape
    return t.dtype, shape, tuple(step for step, n in zip(t.stride(), shape) if n > 1)


def compare(
    operators: list[Any], samples: int, seed: int, preferred: torch.dtype = torch.float32
) -> Comparison:
    """Run samples of these entries of op_db in all layouts, forward and backward."""
    comparison = Comparison()
    for operator in operators:
        for case, call in _calls(operator, samples, seed, preferred):
            comparison.case = case
            try:
                with comparison:
                    call()
            except Exception:  # a sample that is an error, a layout that the operator refuses
                continue
    return comparison


def _calls(
    operator: Any, samples: int, seed: int, preferred: torch.dtype
) -> Iterator[tuple[str, Callable[[], None]]]:
    dtype = preferred if preferred in operator.dtypes else next(iter(operator.dtypes), None)
    if dtype is None:  # it has no kernel of the CPU
        return
    has_gradient = operator.supports_autograd and dtype.is_floating_point
    torch.manual_seed(seed)
    inputs = list(operator.sample_inputs("cpu", dtype, requires_grad=has_gradient))
    for sample in random.Random(seed).sample(inputs, min(samples, len(inputs))):
        for name, lay in LAYOUTS.items():

            def laid(v: Any, lay: Callable[[torch.Tensor], torch.Tensor] = lay) -> Any:
                if not isinstance(v, torch.Tensor) or v.layout is not torch.strided:
                    return v
                return lay(v.detach()).requires_grad_(v.requires_grad)

            arguments = tree_map(laid, (sample.input, *sample.args)), tree_map(laid, sample.kwargs)

            def call(arguments: Any = arguments) -> None:
                results = [r for r in tree_leaves(operator(*arguments[0], **arguments[1])) if _is_followed(r)]
                if has_gradient and results:
                    torch.autograd.backward(results, list(map(torch.ones_like, results)))

            yield f"{operator.name} {name}", call


def _is_followed(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad


def main() -> int:
    from torch.testing._internal.common_methods_invocations import op_db  # it takes seconds

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8, help="of each operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of op_db, sampled by the seed")
    parser.add_argument("--dtype", default="float32", help="where an operator has it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    operators = random.Random(options.seed).sample(op_db, round(options.share * len(op_db)))
    comparison = compare(operators, options.samples, options.seed, getattr(torch, options.dtype))
    for name, difference in sorted(comparison.differences.items()):
        print(name, "--", difference)
    print(
        f"{len(operators)} operators of op_db, {comparison.compared} results compared,"
        f" {len(comparison.differences)} operators differ (seed {options.seed})"
    )
    return bool(comparison.differences)


if __name__ == "__main__":
    sys.exit(main())
