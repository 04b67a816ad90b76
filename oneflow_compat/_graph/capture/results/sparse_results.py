"""How many rows (indices with a value) the symbolic sparse tensors (COO) have, which torch's symbolic forms
lose: they give none, or no order.

Counts and flags that are the same in two examples with the arguments' counts, of rows far apart and of rows
that meet, hold always. Other counts depend on values: `indices()` and `values()` of such a tensor have an
unknown size. The program runs the operators themselves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from ..interfaces import RecordedTensor

aten = torch.ops.aten
# operator that makes a sparse tensor -> positions of the indices and of the values among its arguments
_PARTS = {
    aten._sparse_coo_tensor_with_dims_and_tensors.default: (3, 4),
    aten._sparse_coo_tensor_unsafe.default: (0, 1),
}
_INDICES, _VALUES = {aten._indices.default, aten.indices.default}, {aten._values.default, aten.values.default}
_SAME = {aten.detach.default, aten.alias.default}
_LARGE = 1 << 22  # elements of an argument of which no example is made


def is_sparse(a: Any) -> bool:
    return type(a) is FakeTensor and a.layout is torch.sparse_coo


def of_any_rows(twin: RecordedTensor) -> RecordedTensor:
    """The same tensor; of a sparse one, a later call may give another number of rows."""
    if is_sparse(twin):
        twin._unknown_rows = []
    return twin


def part(func: Any, args: tuple[Any, ...], mode: Any) -> Any:
    """Return indices or values of a tensor of unknown rows; None of others."""
    unknown = getattr(args[0], "_unknown_rows", None) if func in _INDICES or func in _VALUES else None
    if unknown is None:
        return None
    if mode.shape_env is None:
        raise DynamicOutputShapeException(func)
    with mode:
        if not unknown:
            unknown.append(aten.nonzero(torch.empty(2, dtype=torch.bool)).shape[0])
        tensor = args[0]
        dims = tensor.sparse_dim()
        if func in _INDICES:
            return torch.empty(dims, unknown[0], dtype=torch.int64, device=tensor.device)
        return torch.empty(unknown[0], *tensor.shape[dims:], dtype=tensor.dtype, device=tensor.device)


def of_unknown_parts(func: Any, args: Any, kwargs: Any, mode: Any) -> Any:
    """A tensor made of indices and values of an unknown size; None of others."""
    if func not in _PARTS or not args[_PARTS[func][1]]._has_symbolic_sizes_strides:
        return None
    with mode:
        args = [
            a[..., :0] if i == _PARTS[func][0] else a[:0] if i == _PARTS[func][1] else a
            for i, a in enumerate(args)
        ]
        out = func(
            *(
                a.new_empty([0 if isinstance(n, torch.SymInt) else n for n in a.shape])
                if isinstance(a, torch.Tensor)
                else a
                for a in args
            ),
            **kwargs,
        )
    out._unknown_rows = []
    return out


def with_rows(func: Any, args: Any, kwargs: Any, out: Any, mode: Any) -> Any:
    """Return the symbolic result with the rows that the operator gives."""
    if func in _PARTS or func._schema.is_mutable:
        return out
    if func in _SAME:
        if hasattr(args[0], "_unknown_rows"):
            out._unknown_rows = args[0]._unknown_rows
        return out
    if func is aten.sparse_mask.default:
        # the result has the rows of the mask, whatever the size of the tensor
        func, args = aten.detach.default, args[1:]
    examples = [_example(func, args, kwargs, apart) for apart in (True, False)]
    if any(e is None for e in examples):
        return out
    counts, flags = {e._nnz() for e in examples}, {e.is_coalesced() for e in examples}
    example = examples[0]
    rows = counts.pop() if len(counts) == 1 else 0
    result: Any
    with mode:
        indices = torch.empty(example.sparse_dim(), rows, dtype=torch.int64, device=out.device)
        values = torch.empty(rows, *example.shape[example.sparse_dim() :], dtype=out.dtype, device=out.device)
        result = torch.sparse_coo_tensor(
            indices, values, out.shape, check_invariants=False, is_coalesced=flags == {True}
        )
    if counts:
        result._unknown_rows = []
    return result


def _example(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apart: Any) -> Any:
    """Return the sparse result of the operator on real values, or None if there is none."""
    real_tensors: dict[Any, Any] = {}

    def of_numbers(a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            if id(a) not in real_tensors:
                real_tensors[id(a)] = _rows(a, apart) if a.layout is torch.sparse_coo else _dense(a, apart)
            return real_tensors[id(a)]
        return a

    with _disable_current_modes(), torch.no_grad():
        try:
            out = func(*tree_map(of_numbers, args), **tree_map(of_numbers, kwargs))
            return out if out.layout is torch.sparse_coo else None
        except IndexError:  # ones are no offsets of bags, for example, and zeros are
            return _example(func, args, kwargs, False) if apart else None
        except (RuntimeError, NotImplementedError, _TooLarge):
            return None


class _TooLarge(Exception):
    pass


def _dense(a: Any, apart: Any) -> Any:
    if a.layout is not torch.strided or a.numel() > _LARGE:
        raise _TooLarge
    return torch.full(a.shape, int(apart), dtype=a.dtype)


def _rows(a: Any, apart: Any) -> Any:
    dims, shape = a.sparse_dim(), a.shape[: a.sparse_dim()]
    positions, coalesced = math.prod(shape), a.is_coalesced()
    rows = (2 if apart else 3) if hasattr(a, "_unknown_rows") else a._nnz()
    rows = min(rows, positions) if coalesced else rows
    if rows * max(math.prod(a.shape[dims:]), 1) > _LARGE:
        raise _TooLarge
    step = max(positions // max(rows, 1), 1) if apart else int(coalesced)
    at = torch.arange(rows).mul(step).remainder(max(positions, 1))
    indices = torch.stack(torch.unravel_index(at, shape)) if dims else torch.empty(0, rows, dtype=torch.int64)
    values = torch.ones(rows, *a.shape[dims:], dtype=a.dtype)
    return torch.sparse_coo_tensor(indices, values, a.shape, check_invariants=False, is_coalesced=coalesced)
