"""The symbolic results of operators, found out once: a model calls the same operator on the same shapes for
layer after layer.

torch's symbolic mode takes a quarter of a millisecond a call, more for lists of tensors and where the
operator's symbolic form is
written in Python. Here views run their C++ kernel at once, updates of lists are looked at only, and of other
operators the shapes,
strides and dtypes of the results are kept.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ..._global.global_mode import symbolic_kernels
from ..program.operators import facts_of
from ..program.symbolic import SYMBOLIC_NUMBERS
from . import sparse_results
from .frequent_results import known_results
from .symbolic_sizes import of_unknown_sizes

aten = torch.ops.aten
_ON_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_PLAIN = {
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
}
# operator -> is it torch's, do its results depend on shapes, dtypes and numbers alone, and have memory of
# their own
_lasting: dict = {}


class Results:
    """A function of an operator and its symbolic arguments."""

    def __init__(self, mode):
        self.mode, self.seen = mode, {}

    def __call__(self, func, args, kwargs):
        out = sparse_results.part(func, args, self.mode)
        if out is None:
            out = sparse_results.of_unknown_parts(func, args, kwargs, self.mode)
        if out is None:
            out = self._of_operator(func, args, kwargs)
            if sparse_results.is_sparse(out):
                return sparse_results.with_rows(func, args, kwargs, out, self.mode)
        return out

    def _of_operator(self, func, args, kwargs):
        if self.mode.shape_env is not None and any(map(_of_unknown_size, (*args, *kwargs.values()))):
            return self._of_symbols(func, args, kwargs)
        if facts_of(func).view and _is_plain(args[0]):
            with in_kernel_invocation_manager(self.mode):
                out = func(*args, **kwargs)
            device = args[0].fake_device
            return (
                FakeTensor(self.mode, out, device)
                if type(out) is torch.Tensor
                else type(out)(FakeTensor(self.mode, o, device) for o in out)
            )
        if func._opname.startswith("_foreach_") and _elementwise(args):
            if not func._schema.returns:
                return None
            if facts_of(func).elementwise:
                return [self._made(_described(x)) for x in args[0]]
        key = self._key(func, args, kwargs) if _lasts(func) else None
        if key in self.seen:
            return self._made(self.seen[key])
        with self.mode, symbolic_kernels():
            out = known_results(func, args, kwargs)
            if out is None:
                out = func(*args, **kwargs)
        if key is not None:
            try:
                self.seen[key] = _record(out)
            except _NotKept:
                pass
        return out

    def _of_symbols(self, func, args, kwargs):
        environment = self.mode.shape_env
        if environment.unbacked_symint_counter:
            with self.mode, symbolic_kernels():
                return of_unknown_sizes(func, args, kwargs, environment)
        # Guards decide the layouts of frequent operators, which unbacked symbols cannot have. In C++, some
        # kernels (pad, im2col) need each size as a number; their Python forms do not.
        with self.mode, symbolic_kernels(), torch._C._EnablePythonDispatcher():
            out = known_results(func, args, kwargs)
            return of_unknown_sizes(func, args, kwargs, environment) if out is None else out

    @staticmethod
    def _key(func, args, kwargs):
        include_floats = (
            torch.Tag.pointwise not in func.tags
        )  # there, learning rates and the like are not looked at
        try:
            return (
                func,
                torch.get_default_dtype(),
                _of(args, include_floats),
                tuple([(k, _of(v, include_floats)) for k, v in kwargs.items()]),
            )
        except _NotKept:
            return None

    def _made(self, record):
        if record is None:
            return None
        if type(record) is list or type(record[0]) is not torch.Size:
            return type(record)([self._made(r) for r in record])
        size, stride, dtype, device = record
        return FakeTensor(self.mode, torch.empty_strided(size, stride, dtype=dtype, device="meta"), device)


class _NotKept(Exception):
    pass


def _is_plain(tensor):
    return (
        type(tensor) is FakeTensor
        and tensor.layout is torch.strided
        and tensor.constant is None
        and not tensor._has_symbolic_sizes_strides
    )


def _of_unknown_size(a):
    return (
        type(a) is FakeTensor
        and a._has_symbolic_sizes_strides
        or type(a) in (list, tuple)
        and any(map(_of_unknown_size, a))
        or type(a) in SYMBOLIC_NUMBERS
    )


def _described(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.fake_device


def _lasts(func):
    cacheable = _lasting.get(func)
    if cacheable is None:
        returns, is_aten = (
            func._schema.returns,
            func.namespace == "aten" and not facts_of(func).has_other_memory,
        )
        on_values = func._schema.is_mutable or _ON_VALUES & set(func.tags)
        cacheable = _lasting[func] = (
            is_aten and bool(returns) and not on_values and all(r.alias_info is None for r in returns)
        )
    return cacheable


def _of(a, include_floats):
    """Return the part of an argument that the result depends on; with `include_floats`, floats as well."""
    value_type = type(a)
    if value_type is FakeTensor:
        if not _is_plain(a) or a.dtype.is_complex:
            raise _NotKept
        return _described(a)
    if value_type is list or value_type is tuple:
        return tuple([_of(x, include_floats) for x in a])
    if value_type not in _PLAIN:
        raise _NotKept
    return value_type, a if include_floats or value_type is not float else None


def _record(out):
    if out is None:
        return None
    if type(out) in (tuple, list):
        return type(out)([_record(o) for o in out])
    if not _is_plain(out) or out.storage_offset() or hasattr(out, "_of_node"):
        raise _NotKept
    return _described(out)


def _elementwise(args):
    """Lists of as many dense floating tensors, each in one layout with those at its place, and numbers."""
    lists = [a for a in args if type(a) is list]
    if len({len(a) for a in lists}) != 1 or any(isinstance(a, torch.Tensor) for a in args):
        return False
    for place in zip(*lists):
        tensors = [t for t in place if isinstance(t, torch.Tensor)]
        if not tensors:
            continue
        if not all(map(_is_plain, tensors)) or len(set(map(_described, tensors))) != 1:
            return False
        if not (tensors[0].is_floating_point() and tensors[0].is_contiguous()):
            return False
    return True
