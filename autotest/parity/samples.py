"""Arguments for operators and modules, from the table torch tests itself with (torch.testing._internal, part
of every torch).

The table is private to torch; a version without it, or with another shape of it, gives no samples, and
the names are then listed as not run.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


OpInfo = Any  # a row of torch's table of operators
ModuleInfo = Any  # a row of torch's table of modules


class OperatorSample(NamedTuple):
    """Arguments of one call of an operator."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ModuleSample(NamedTuple):
    """Arguments of the constructor of a module, and of one call of it."""

    init_args: tuple[Any, ...]
    init_kwargs: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool = True


def _load(module: str, name: str) -> Any:
    if "expecttest" not in sys.modules:  # torch's test helpers want this package; nothing used here does
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stub = types.ModuleType("expecttest")
            vars(stub)["TestCase"] = unittest.TestCase
            sys.modules["expecttest"] = stub
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(__import__(f"torch.testing._internal.{module}", fromlist=[name]), name)
    except Exception:  # private: anything may be missing
        return []


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Sample the same values in every run, without warnings, and leave the random streams as they were."""
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@functools.cache
def operators() -> dict[str, OpInfo]:
    """Return the row of each operator by name and alias; of several variants the plain one."""
    by_name: dict[str, OpInfo] = {}
    for op in _load("common_methods_invocations", "op_db"):
        by_name.setdefault(op.name, op)
    for op in list(by_name.values()):
        for alias in op.aliases:
            by_name.setdefault(alias.name, op)
    return by_name


@functools.cache
def modules() -> dict[str, ModuleInfo]:
    """Return the row of each module class by its name."""
    return {m.module_cls.__name__: m for m in _load("common_modules", "module_db")}


def operator_samples(
    op: OpInfo, dtype: torch.dtype, requires_grad: bool = False, device: str = "cpu", limit: int = 4
) -> list[OperatorSample]:
    """Return samples of an operator for this dtype; the smaller half of a long list is enough.

    At most one of them is empty: a comparison of empty tensors tells little.
    """
    out: list[OperatorSample] = []
    has_empty = False
    with seeded():
        for sample in op.sample_inputs(device, dtype, requires_grad=requires_grad):
            is_empty = any(t.numel() == 0 for t in tensors(sample.input))
            if size_of(sample) <= 4000 and not (is_empty and has_empty):
                has_empty = has_empty or is_empty
                out.append(OperatorSample(sample.input, tuple(sample.args), dict(sample.kwargs)))
            if len(out) >= limit * 4:
                break
    step = max(len(out) // limit, 1)
    # A list of samples often repeats its forms in a period, which steps of one length would always hit alike.
    return [out[i * step + i % step] for i in range(min(limit, len(out)))]


def strided_samples(samples: list[OperatorSample]) -> list[tuple[str, OperatorSample]]:
    """Return a sample with transposed tensors, and one with every second element of larger memory, behind an
    offset.

    They are the second and the third sample, or the next one that has a tensor of such a layout.
    """
    out = []
    for start, (label, layout) in enumerate(LAYOUTS.items(), 1):
        for i in (j % len(samples) for j in range(start, start + len(samples))):
            strided = OperatorSample(*changed(layout, tuple(samples[i])))
            if any(map(has_own_layout, tensors(strided))):
                out.append((f"sample {i}, {label}", strided))
                break
    return out


def transposed(t: torch.Tensor) -> torch.Tensor:
    """Return a copy whose last two dimensions lie in memory in the other order."""
    if t.dim() < 2 or not _is_plain(t):
        return t
    return t.detach().mT.contiguous().mT.requires_grad_(t.requires_grad)


def sliced(t: torch.Tensor) -> torch.Tensor:
    """Return a copy in every second element of larger memory, behind an offset of 1."""
    if t.dim() < 1 or t.numel() == 0 or not _is_plain(t):
        return t
    memory = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1] + 1)).detach()
    out = memory[..., 1::2]
    out.copy_(t.detach())
    return out.detach().requires_grad_(t.requires_grad)


LAYOUTS = {"transposed": transposed, "every second element": sliced}


def _is_plain(t: torch.Tensor) -> bool:
    import torch

    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and not t.is_meta


def has_own_layout(t: torch.Tensor) -> bool:
    """Whether a strided tensor is not what torch.tensor makes: not contiguous, or behind an offset."""
    import torch

    strided = t.layout == torch.strided and not t.is_meta and t.numel() > 0
    return strided and (not t.is_contiguous() or t.storage_offset() > 0)


def changed(change: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    """Return arguments in which each tensor is changed."""
    import torch

    if isinstance(x, torch.Tensor):
        return change(x)
    if type(x) in (tuple, list):
        return type(x)(changed(change, e) for e in x)
    if type(x) is dict:
        return {k: changed(change, v) for k, v in x.items()}
    return x


def error_samples(op: OpInfo, device: str = "cpu") -> list[OperatorSample]:
    """Return arguments that the operator refuses; `out=` is left out, because methods do not take it."""
    if getattr(op, "error_inputs_func", None) is None:
        return []
    with seeded():
        inputs = [error.sample_input for error in op.error_inputs(device)]
    samples = [OperatorSample(s.input, tuple(s.args), dict(s.kwargs)) for s in inputs]
    return [s for s in samples if "out" not in s.kwargs]


def size_of(sample: Any) -> int:
    return sum(t.numel() for t in tensors((sample.input, sample.args, sample.kwargs)))


def tensors(x: object) -> list[torch.Tensor]:
    import torch

    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = tuple(x.values())
    if isinstance(x, (tuple, list)):
        return [t for e in x for t in tensors(e)]
    return []


def module_samples(
    info: ModuleInfo, dtype: torch.dtype, device: str = "cpu", training: bool = True, limit: int = 4
) -> list[ModuleSample]:
    """Return samples of a module for this dtype."""
    with seeded():
        out = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
    samples = []
    for m in out:
        c, f = m.constructor_input, m.forward_input
        if f is not None:
            samples.append(
                ModuleSample(tuple(c.args), dict(c.kwargs), tuple(f.args), dict(f.kwargs), training)
            )
    step = max(len(samples) // limit, 1)
    return samples[::step][:limit]
