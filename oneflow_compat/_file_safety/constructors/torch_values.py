"""Checked constructors of torch's tensors, in place of `torch._utils._rebuild_*`.

torch's functions trust the sizes in a file: `set_` grows a storage, and `_empty_affine_quantized` allocates
any size. These constructors compare every size with the storage, so a tensor only reads bytes of its storage.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import RefusedError
from ..shown import shown
from .plain_values import refuse

if TYPE_CHECKING:
    from ..budget import Budget


_PLAIN_ATTRIBUTES = (bool, int, float, str, bytes, type(None), torch.dtype, torch.Size, torch.device)
_SPARSE_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_LAYOUTS = {
    str(layout): layout for layout in (torch.strided, torch.sparse_coo, torch._mkldnn, *_SPARSE_COMPRESSED)
}
_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
_MOST_DIMENSIONS = 64
_ATTRIBUTE_VALUES = 1000  # values of one attribute of a tensor
# attributes by which this package tells kinds of tensors apart
_OWN_ATTRIBUTES = ("_is_param", "full_tensor")


# --------------------------------------------------------------------------- checks
def integers(name: str, value: object) -> tuple[int, ...]:
    """Return the sizes or strides of a tensor."""
    if (
        not isinstance(value, tuple | list)
        or len(value) > _MOST_DIMENSIONS
        or any(type(n) is not int or not 0 <= n < 1 << 62 for n in value)
    ):
        raise RefusedError(f"altered: the {name} of a tensor is {shown(value)}")
    return tuple(value)


def _count(size: Any) -> int:
    count = 1
    for d in size:
        count *= d
    if count >= 1 << 62 or (not count and any(d > 1 << 31 for d in size)):
        raise RefusedError(f"altered: the size of a tensor is {shown(list(size))}")
    return count


def _check_view(storage_bytes: int, item: int, offset: Any, size: Any, stride: Any) -> tuple:
    """Return (offset, size, stride). Raise RefusedError if an element would be outside of the storage."""
    size, stride = integers("size", size), integers("stride", stride)
    if type(offset) is not int or not 0 <= offset < 1 << 62 or len(size) != len(stride):
        raise RefusedError(
            f"altered: a tensor of size {shown(list(size))} has stride {shown(list(stride))} and offset"
            f" {shown(offset)}"
        )
    last = offset + sum((d - 1) * s for d, s in zip(size, stride))
    if _count(size) and (last + 1) * item > storage_bytes or offset * item > storage_bytes:
        raise RefusedError(
            f"altered: a tensor of size {shown(list(size))}, stride {shown(list(stride))} and offset"
            f" {shown(offset)} needs"
            f" {shown((last + 1) * item)} bytes; its storage has {storage_bytes}"
        )
    return offset, size, stride


def _check_storage(storage: Any) -> Any:
    if not isinstance(storage, torch.storage.TypedStorage):
        raise RefusedError(f"altered: the storage of a tensor is a {type(storage).__name__}")
    return storage


def _check_hooks(hooks: Any) -> collections.OrderedDict:
    if hooks is not None and (not isinstance(hooks, dict) or hooks):
        raise RefusedError("it holds a tensor with backward hooks, which a safe load does not attach")
    return collections.OrderedDict()


def check_tensor(value: object) -> torch.Tensor:
    """Return the value if it is a tensor, else raise RefusedError."""
    if not isinstance(value, torch.Tensor):
        raise RefusedError(f"altered: a {type(value).__name__} stands where a tensor should be")
    return value


def _check_dtype(value: Any) -> torch.dtype:
    if not isinstance(value, torch.dtype):
        raise RefusedError(f"altered: a {type(value).__name__} stands where a dtype should be")
    return value


def _check_device(value: Any) -> torch.device:
    if not isinstance(value, torch.device):
        raise RefusedError(f"altered: a {type(value).__name__} stands where a device should be")
    return value


def _check_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise RefusedError(f"altered: requires_grad is {shown(value)}")
    return value


def _set_metadata(tensor: torch.Tensor, metadata: Any) -> torch.Tensor:
    """Set the conj and neg bits."""
    if metadata is None:
        return tensor
    if (
        type(metadata) is not dict
        or not metadata.keys() <= {"conj", "neg"}
        or any(type(v) is not bool for v in metadata.values())
    ):
        raise RefusedError(f"altered: the flags of a tensor are {shown(metadata)}")
    if metadata.get("conj") and tensor.is_complex():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if metadata.get("neg") else tensor


# --------------------------------------------------------------------------- tensors
def _strided(
    budget: Budget,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    dtype: Any,
    metadata: Any,
) -> torch.Tensor:
    budget.charge_objects(400, "a tensor")
    untyped = _check_storage(storage)._untyped_storage
    offset, size, stride = _check_view(untyped.nbytes(), dtype.itemsize, offset, size, stride)
    tensor = torch.empty((0,), dtype=dtype, device=untyped.device).set_(untyped, offset, size, stride)
    return _set_metadata(tensor, metadata).requires_grad_(_check_bool(requires_grad))


def _tensor(budget: Budget, storage: Any, offset: Any, size: Any, stride: Any) -> Any:
    return _strided(budget, storage, offset, size, stride, False, _check_storage(storage).dtype, None)


def _tensor_v2(
    budget: Budget,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    metadata: Any = None,
) -> Any:
    _check_hooks(hooks)
    return _strided(
        budget, storage, offset, size, stride, requires_grad, _check_storage(storage).dtype, metadata
    )


def _tensor_v3(
    budget: Budget,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    _check_hooks(hooks)
    return _strided(budget, storage, offset, size, stride, requires_grad, _check_dtype(dtype), metadata)


def _parameter(budget: Budget, data: Any, requires_grad: Any, hooks: Any) -> Any:
    _check_hooks(hooks)
    budget.charge_objects(400, "a parameter")
    return torch.nn.Parameter(check_tensor(data), _check_bool(requires_grad))


def _new_parameter(budget: Budget, data: Any = None, requires_grad: Any = True) -> Any:
    return _parameter(budget, torch.empty(0) if data is None else data, requires_grad, None)


def _parameter_with_state(budget: Budget, data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    return set_attributes(_parameter(budget, data, requires_grad, hooks), state)


def set_attributes(tensor: torch.Tensor, state: object, is_allowed_class: bool = False) -> torch.Tensor:
    """Set attributes that a user added to a tensor: plain values, under names that torch does not use.

    A class that the user allowed may use torch's names, as nested tensors do.
    """
    dicts = state if isinstance(state, tuple) else (state,)
    if len(dicts) > 2 or any(d is not None and type(d) is not dict for d in dicts):
        raise RefusedError("altered: the attributes of a tensor are no dict")
    for attributes in dicts:
        for name, value in (attributes or {}).items():
            _check_attribute(name, value, is_allowed_class)
            setattr(tensor, name, value)
    return tensor


def _check_attribute(name: Any, value: Any, is_allowed_class: bool) -> None:
    reserved = type(name) is not str or name.startswith(("__", "_of_")) or name in _OWN_ATTRIBUTES
    reserved = reserved or not is_allowed_class and hasattr(torch.nn.Parameter, name)
    if reserved or not _is_plain(value):
        raise RefusedError(
            f"it gives a tensor the attribute {shown(name)} of type {type(value).__name__}; a safe load"
            " sets plain"
            " values only"
        )


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, a tensor, an object that the user allows, or a container of these
    with at most 1,000 values.
    """
    waiting, visited = [value], 0
    while waiting:
        item, visited = waiting.pop(), visited + 1
        if visited > _ATTRIBUTE_VALUES:  # a container may hold another one many times
            return False
        if isinstance(item, (*_PLAIN_ATTRIBUTES, torch.Tensor)):
            continue
        if type(item) in (tuple, list, set, frozenset):
            waiting.extend(itertools.islice(item, _ATTRIBUTE_VALUES))
        elif type(item) is dict:
            waiting.extend(itertools.islice((*item, *item.values()), _ATTRIBUTE_VALUES))
        elif type(item) not in torch.serialization.get_safe_globals():
            return False
    return True


def _quantized(
    budget: Budget,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    quantizer: Any,
    requires_grad: Any,
    hooks: Any,
) -> Any:
    """Return a quantized tensor, as torch._utils._rebuild_qtensor does."""
    _check_hooks(hooks)
    storage, size = _check_storage(storage), integers("size", size)
    dtype = storage.dtype
    offset, size, stride = _check_view(
        storage._untyped_storage.nbytes(), dtype.itemsize, offset, size, stride
    )
    budget.charge_data(_count(size) * dtype.itemsize, "a quantized tensor")
    if type(quantizer) is not tuple or len(quantizer) not in (3, 4):
        raise RefusedError("altered: the parameters of a quantized tensor are no tuple of three or four")
    if (
        quantizer[0] is torch.per_tensor_affine
        and type(quantizer[1]) is float
        and type(quantizer[2]) is int
        and len(quantizer) == 3
    ):
        tensor = torch._empty_affine_quantized(size, scale=quantizer[1], zero_point=quantizer[2], dtype=dtype)
    elif quantizer[0] in _PER_CHANNEL and len(quantizer) == 4:
        tensor = _per_channel(budget, size, dtype, *quantizer)
    else:
        raise RefusedError(f"altered: the quantization of a tensor is {shown(quantizer[0])}")
    return tensor.set_(storage, offset, size, stride).requires_grad_(_check_bool(requires_grad))


def _per_channel(
    budget: Budget, size: Any, dtype: Any, scheme: Any, scales: Any, zero_points: Any, axis: Any
) -> Any:
    floats = scheme is torch.per_channel_affine_float_qparams
    dtypes = (torch.float, torch.float) if floats else (torch.double, torch.long)
    scales, zero_points = (
        _vector(budget, v, d) if type(v) is list else check_tensor(v)
        for v, d in zip((scales, zero_points), dtypes)
    )
    fits = type(axis) is int and 0 <= axis < len(size) and scales.shape == zero_points.shape == (size[axis],)
    if fits:
        budget.charge_data(
            4 * 8 * size[axis], "the scales of a quantized tensor"
        )  # torch copies and converts
    if not fits or scales.layout is not torch.strided or zero_points.layout is not torch.strided:
        raise RefusedError(
            f"altered: a tensor of size {shown(list(size))} is quantized along {shown(axis)} with"
            f" {shown(list(scales.shape))}"
            f" scales and {shown(list(zero_points.shape))} zero points"
        )
    return torch._empty_per_channel_affine_quantized(
        size, scales=scales, zero_points=zero_points, axis=axis, dtype=dtype
    )


def _vector(budget: Budget, values: list[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of a list of numbers. A list in the list could hold one list many times."""
    if any(type(v) not in (int, float) for v in values):
        raise RefusedError("altered: the scales or zero points of a quantized tensor are no numbers")
    budget.charge_data(64 * len(values), "the scales of a quantized tensor")
    return torch.tensor(values, dtype=dtype)


def _sparse(budget: Budget, layout: Any, data: Any) -> Any:
    """Return a sparse tensor. Its indices are compared with its size after all values are read."""
    if type(data) is not tuple or not 3 <= len(data) <= 4:
        raise RefusedError("altered: the parts of a sparse tensor are no tuple of three or four")
    tensors, size = (data[:2], data[2]) if layout is torch.sparse_coo else (data[:3], data[3])
    for tensor in tensors:
        if check_tensor(tensor).layout is not torch.strided:
            raise RefusedError("altered: the indices or values of a sparse tensor are not dense")
        # the check of the indices compares them in fresh buffers, and a view may show one element many times
        budget.charge_data(tensor.numel() * tensor.element_size(), "a sparse tensor")
    size = integers("size", size)
    if layout is torch.sparse_coo:
        coalesced = data[3] if len(data) == 4 else None
        tensor = torch.sparse_coo_tensor(*tensors, size, check_invariants=False, is_coalesced=coalesced)
    elif layout in _SPARSE_COMPRESSED:
        tensor = torch.sparse_compressed_tensor(*tensors, size, layout=layout, check_invariants=False)
    else:
        raise RefusedError(f"altered: the layout of a sparse tensor is {shown(layout)}")
    budget.check_later(lambda: _check_sparse(tensor, tensors, size, layout))
    return tensor


def _check_sparse(tensor: torch.Tensor, tensors: Any, size: Any, layout: Any) -> None:
    if layout is torch.sparse_coo:
        torch.sparse_coo_tensor(*tensors, size, check_invariants=True, is_coalesced=tensor.is_coalesced())
    else:
        torch.sparse_compressed_tensor(*tensors, size, layout=layout, check_invariants=True)


def _nested(budget: Budget, buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    for tensor in (sizes, strides, offsets):
        if check_tensor(tensor).dtype is not torch.int64 or tensor.layout is not torch.strided:
            raise RefusedError("altered: the sizes of a nested tensor are no integers")
    if (
        check_tensor(buffer).dim() != 1
        or not buffer.is_contiguous()
        or sizes.shape != strides.shape
        or sizes.dim() != 2
        or offsets.shape != sizes.shape[:1]
    ):
        raise RefusedError("altered: the parts of a nested tensor do not fit together")
    budget.require_values("a nested tensor")
    budget.charge_objects(3 * 40 * sizes.numel() + 200 * len(sizes), "a nested tensor")
    for size, stride, offset in zip(sizes.tolist(), strides.tolist(), offsets.tolist()):
        _check_view(buffer.numel() * buffer.element_size(), buffer.element_size(), offset, size, stride)
    return torch._nested_view_from_buffer(buffer, sizes, strides, offsets)


def _meta(budget: Budget, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    size, stride = integers("size", size), integers("stride", stride)
    _count(size)
    return torch.empty_strided(
        size, stride, dtype=_check_dtype(dtype), device="meta", requires_grad=_check_bool(requires_grad)
    )


def _from_cpu(budget: Budget, data: Any, dtype: Any, device: Any, requires_grad: Any) -> Any:
    """Return a tensor on a device without storages, created from its CPU copy."""
    data = check_tensor(data)
    if data.layout is not torch.strided:
        raise RefusedError("altered: the copy of a tensor of another device is not dense")
    budget.charge_data(data.numel() * _check_dtype(dtype).itemsize, "a tensor")
    location = device if type(device) is str else str(_check_device(device))
    return budget.restore_tensor(data.detach().to(dtype), location).requires_grad_(_check_bool(requires_grad))


def _from_array(budget: Budget, data: Any, dtype: Any, device: Any, requires_grad: Any) -> Any:
    import numpy as np

    if type(data) is not np.ndarray or data.dtype.kind not in "biufc":
        raise RefusedError(f"altered: the values of a tensor are a {type(data).__name__}")
    return _from_cpu(budget, torch.from_numpy(data), dtype, device, requires_grad)


# --------------------------------------------------------------------------- values that are no tensors
def _size(budget: Budget, *arguments: Any) -> Any:
    if (
        len(arguments) != 1
        or type(arguments[0]) not in (tuple, list)
        or any(type(d) is not int or abs(d) >= 1 << 63 for d in arguments[0])
    ):
        refuse("torch.Size", arguments)
    budget.charge_objects(16 * len(arguments[0]), "a Size")
    return torch.Size(arguments[0])


def _device(budget: Budget, *arguments: Any) -> Any:
    if (
        not 1 <= len(arguments) <= 2
        or type(arguments[0]) is not str
        or any(type(a) is not int for a in arguments[1:])
    ):
        refuse("torch.device", arguments)
    return torch.device(*arguments)


def _layout(budget: Budget, name: Any) -> Any:
    if type(name) is not str or name not in _LAYOUTS:
        refuse("torch.layout", (name,))
    return _LAYOUTS[name]


CONSTRUCTORS: dict[str, Callable] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    "torch.nn.parameter.Parameter": _new_parameter,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _from_cpu,
    "torch._utils._rebuild_device_tensor_from_numpy": _from_array,
    "torch._utils._rebuild_xla_tensor": _from_array,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
}
