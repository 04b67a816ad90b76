"""The symbolic results of operators, cached, because layers of a model repeat operators and shapes.

torch's symbolic mode takes a quarter of a millisecond a call, and more for lists of tensors and for symbolic
forms written in Python. Here views run their meta kernel at once, and updates of lists run nothing. For other
operators the shapes, strides and dtypes of the results are cached.
"""

import contextlib
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...._global.global_mode import symbolic_kernels
from ...program.operators import facts_of, has_new_results
from ...program.symbolic import SYMBOLIC_NUMBERS
from . import sparse_results
from .frequent_results import has_rules, known_results
from .kernel_errors import kernel_error, silent_refusal
from .meta_kernels import is_static_fake, meta_results, new_fake, on_meta
from .unknown_sizes import of_unknown_sizes

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
# operator -> whether its results are in fresh buffers, and depend on shapes, dtypes and scalars only
_lasting: dict[Any, Any] = {}


class Results:
    """Compute the symbolic results of an operator for symbolic arguments."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.seen: dict[Any, Any] = {}

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        as_in_eager_mode = silent_refusal(func, args, kwargs)
        try:
            if as_in_eager_mode is None:
                return self._results(func, args, kwargs)
        except Exception as error:
            as_in_eager_mode = kernel_error(error, func, args, kwargs)
            if as_in_eager_mode is None:
                raise
        try:
            raise as_in_eager_mode
        finally:
            del as_in_eager_mode  # the function refers to this frame, and the frame to the arguments

    def _results(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = sparse_results.part(func, args, self.mode)
        if out is None:
            out = sparse_results.of_unknown_parts(func, args, kwargs, self.mode)
        if out is None:
            out = self._of_operator(func, args, kwargs)
            if sparse_results.is_sparse(out):
                return sparse_results.with_rows(func, args, kwargs, out, self.mode)
        return out

    def _of_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.mode.shape_env is not None and any(map(_has_symbolic_sizes, (*args, *kwargs.values()))):
            return self._of_symbols(func, args, kwargs)
        if facts_of(func).view and is_static_fake(args[0]):
            return on_meta(func, args, kwargs, self.mode)
        if func._opname.startswith("_foreach_") and _elementwise(args):
            if not func._schema.returns:
                return None
            if facts_of(func).elementwise:
                return [self._from_record(_described(x)) for x in args[0]]
        key = self._key(func, args, kwargs) if _lasts(func) else None
        if key in self.seen:
            return self._from_record(self.seen[key])
        out = self._computed(func, args, kwargs)
        if key is not None:
            with contextlib.suppress(_NotKept):
                self.seen[key] = _record(out)
        return out

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = None if has_rules(func) else meta_results(func, args, kwargs, self.mode)
        if out is not None:
            return out
        with self.mode, symbolic_kernels():
            out = known_results(func, args, kwargs)
            return func(*args, **kwargs) if out is None else out

    def _of_symbols(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
    def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        # the results of a pointwise operator do not depend on learning rates and other floats
        include_floats = torch.Tag.pointwise not in func.tags
        try:
            return (
                func,
                torch.get_default_dtype(),
                _of(args, include_floats),
                tuple([(k, _of(v, include_floats)) for k, v in kwargs.items()]),
            )
        except _NotKept:
            return None

    def _from_record(self, record: Any) -> Any:
        if record is None:
            return None
        if type(record) is list or type(record[0]) is not torch.Size:
            return type(record)([self._from_record(r) for r in record])
        size, stride, dtype, device = record
        return new_fake(self.mode, device, torch.empty_strided, size, stride, dtype=dtype)


class _NotKept(Exception):
    pass


def _has_symbolic_sizes(a: Any) -> bool:
    return (
        type(a) is FakeTensor
        and a._has_symbolic_sizes_strides
        or type(a) in (list, tuple)
        and any(map(_has_symbolic_sizes, a))
        or type(a) in SYMBOLIC_NUMBERS
    )


def _described(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.fake_device


def _lasts(func: Any) -> Any:
    cacheable = _lasting.get(func)
    if cacheable is None:
        is_plain_aten = func.namespace == "aten" and not facts_of(func).has_other_memory
        on_values = func._schema.is_mutable or _ON_VALUES & set(func.tags)
        is_fresh = bool(func._schema.returns) and has_new_results(func)
        cacheable = _lasting[func] = is_plain_aten and is_fresh and not on_values
    return cacheable


def _of(a: Any, include_floats: Any) -> Any:
    """Return the part of an argument that the result depends on; with `include_floats`, floats as well."""
    value_type = type(a)
    if value_type is FakeTensor:
        if not is_static_fake(a) or a.dtype.is_complex:
            raise _NotKept
        return _described(a)
    if value_type is list or value_type is tuple:
        return tuple([_of(x, include_floats) for x in a])
    if value_type not in _PLAIN:
        raise _NotKept
    return value_type, a if include_floats or value_type is not float else None


def _record(out: Any) -> Any:
    if out is None:
        return None
    if type(out) in (tuple, list):
        return type(out)([_record(o) for o in out])
    if not is_static_fake(out) or out.storage_offset() or hasattr(out, "_of_node"):
        raise _NotKept
    return _described(out)


def _elementwise(args: tuple[Any, ...]) -> bool:
    """Whether the lists have equal lengths, and dense floating tensors of one layout at each position."""
    lists = [a for a in args if type(a) is list]
    if len({len(a) for a in lists}) != 1 or any(isinstance(a, torch.Tensor) for a in args):
        return False
    for operands in zip(*lists):
        tensors = [t for t in operands if isinstance(t, torch.Tensor)]
        if not tensors:
            continue
        if not all(map(is_static_fake, tensors)) or len(set(map(_described, tensors))) != 1:
            return False
        if not (tensors[0].is_floating_point() and tensors[0].is_contiguous()):
            return False
    return True
