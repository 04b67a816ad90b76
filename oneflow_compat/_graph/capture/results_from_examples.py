"""The symbolic results of operators for which torch has no symbolic form, derived from examples.

An example has numbers in place of the unknown sizes. If, in all examples, a dimension of a result is a
multiple of an argument's dimension plus a number, that is its form. Otherwise the result has none. When the
program runs, the operator itself computes the results: only their symbolic sizes come from here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..program.symbolic import SYMBOLIC_NUMBERS

_NUMBERS = 101, 37, 223, 149, 61
_DIVISIBLE = 720720  # by every number to 16: examples of sizes with quotients


def results_from_examples(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the results as symbolic tensors, or None if their sizes are no simple function of the inputs'.

    Call it in the symbolic mode.
    """
    sizes = _unknown_sizes(tree_flatten((args, kwargs))[0])
    if sizes is None:
        return None
    assignments = _assignments(sizes)
    examples = [_example(func, args, kwargs, assignment) for assignment in assignments]
    if any(e is None for e in examples):
        return None
    results, forms = zip(*map(tree_flatten, examples))
    if any(form != forms[0] for form in forms) or not all(isinstance(r, torch.Tensor) for r in results[0]):
        return None
    tensors = [_tensor(each, assignments, sizes) for each in zip(*results)]
    return None if any(m is NotImplemented for m in tensors) else tree_unflatten(tensors, forms[0])


def _unknown_sizes(leaves: Any) -> list[Any] | None:
    """Return the unknown sizes among the arguments; None if there are other scalars computed from sizes."""
    if any(type(a) in SYMBOLIC_NUMBERS and type(a) is not torch.SymInt for a in leaves):
        return None
    sizes = [s for a in leaves for s in (a.shape if isinstance(a, FakeTensor) else (a,))]
    return [s for s in sizes if type(s) is torch.SymInt]


def _assignments(sizes: Any) -> list[Any]:
    """Return examples of the unknown sizes: {symbol: number} each."""
    symbols = sorted({symbol for s in sizes for symbol in s.node.expr.free_symbols}, key=str)
    factor = 1 if all(s.node.expr.is_polynomial() for s in sizes) else _DIVISIBLE
    return [
        {s: factor * (n + 7 * position * (1 + i)) for i, s in enumerate(symbols)}
        for position, n in enumerate(_NUMBERS)
    ]


def _number(value: Any, assignment: Any) -> Any:
    if type(value) is torch.SymInt:
        return int(value.node.expr.xreplace(assignment))
    return [_number(v, assignment) for v in value] if isinstance(value, (tuple, list)) else value


def _example(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assignment: Any) -> Any:
    def of_numbers(a: Any) -> Any:
        if isinstance(a, FakeTensor):
            return torch.empty_strided(
                _number(a.shape, assignment), _number(a.stride(), assignment), dtype=a.dtype, device=a.device
            )
        return _number(a, assignment)

    with _disable_current_modes(), FakeTensorMode():
        try:
            return func(*tree_map(of_numbers, args), **tree_map(of_numbers, kwargs))
        except Exception:  # sizes that do not fit together, no form for numbers either
            return None


def _tensor(examples: Any, assignments: Any, sizes: Any) -> Any:
    shape = [_dimension(values, assignments, sizes) for values in zip(*(e.shape for e in examples))]
    orders = {tuple(sorted(range(e.dim()), key=lambda d: (-e.stride(d), d))) for e in examples}
    if len(shape) != examples[0].dim() or any(n is None for n in shape) or len(orders) > 1:
        return NotImplemented
    stride, step = [1] * len(shape), 1
    for d in reversed(orders.pop()):
        stride[d], step = step, step * shape[d]
    if any(list(e.stride()) != _number(stride, assignment) for e, assignment in zip(examples, assignments)):
        return NotImplemented
    return torch.empty_strided(shape, stride, dtype=examples[0].dtype, device=examples[0].device)


def _dimension(values: Any, assignments: Any, sizes: Any) -> Any:
    if len(set(values)) == 1:
        return values[0]
    for size in sizes:
        size_values = [_number(size, assignment) for assignment in assignments]
        times = (
            (values[1] - values[0]) // (size_values[1] - size_values[0])
            if size_values[1] != size_values[0]
            else 0
        )
        rest = values[0] - times * size_values[0]
        if all(v == times * k + rest for v, k in zip(values, size_values)):
            return size * times + rest
    return None
