"""The layouts of many tensors, compared at once, and where objects in C keep what is compared."""

import ctypes
import functools
from collections.abc import Callable, Sequence

import torch
from torch._C._dynamo import guards

_PLAIN = torch.Tensor, torch.nn.Parameter
_INLINE_DIMENSIONS = 5  # of a TensorImpl, which has more of them in memory of their own
_WORD = 8


def has_plain_layout(tensor: torch.Tensor) -> bool:
    """Whether shape and strides say how the elements lie in memory."""
    return type(tensor) in _PLAIN and tensor.layout is torch.strided


def is_compared_with_others(tensor: torch.Tensor) -> bool:
    return has_plain_layout(tensor) and tensor.dim() <= _INLINE_DIMENSIONS


def layout_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return a function of these tensors that tells whether shape, strides, dtype and device are as now.

    It also compares modes that dispatch depends on, such as autocast. So False means: compare in detail.
    """
    if not tensors:
        return lambda: True
    guard_class = getattr(guards, "TensorGuards", None)
    if guard_class is None:  # this torch has no such test
        return lambda *tensors: False
    check: Callable[..., bool] = guard_class(
        *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
    ).check
    return check


@functools.lru_cache(None)
def layout_offsets() -> tuple[int, int, int] | None:
    """Return where the layout of a tensor lies in memory, or None in a torch that keeps it otherwise.

    The offsets are those of the pointer to the TensorImpl in the object, of its storage, and behind its dtype
    and device. The first two are found by their values, the third one by the number of elements before it.
    """
    tensor = torch.empty(40009)[2:]
    words = _words(id(tensor), 8)
    if tensor._cdata not in words:
        return None
    implementation = words.index(tensor._cdata) * _WORD
    words = _words(tensor._cdata, 24)
    storage, elements = tensor.untyped_storage()._cdata, tensor.numel()
    if storage not in words or words.count(elements) < 2:  # once among the sizes
        return None
    begin = words.index(storage) * _WORD
    end = (len(words) - words[::-1].index(elements) + 1) * _WORD
    return implementation, begin, end


@functools.lru_cache(None)
def argument_offsets() -> tuple[int, int, int, int, int] | None:
    """Return where the layout of an argument lies, whose storage is another one in each call.

    The offsets are those of the pointer to the TensorImpl in the object, of its storage, its number of
    dimensions, its storage offset, and behind its dispatch keys, which follow its dtype and device.
    """
    offsets = layout_offsets()
    if offsets is None:
        return None
    implementation, begin, end = offsets
    tensor = torch.empty(40009)[2:]
    words = _words(tensor._cdata, 24)
    dimensions = words.index(tensor.numel()) - 1
    storage_offset = end // _WORD - 3  # before the number of elements
    if words[dimensions] != tensor.dim() or words[storage_offset] != tensor.storage_offset():
        return None
    return implementation, begin, dimensions * _WORD, storage_offset * _WORD, end + _WORD


@functools.lru_cache(None)
def code_offset() -> int:
    """Return where a function has its code, before its defaults and keyword defaults, or -1."""

    def function(value: object = 0, *, named: object = 0) -> None:
        pass

    parts = [*map(id, (function.__code__, function.__defaults__, function.__kwdefaults__))]
    words = _words(id(function), function.__sizeof__() // _WORD)
    for index in range(len(words)):
        if words[index : index + len(parts)] == parts:
            return index * _WORD
    return -1


def _words(address: int, count: int) -> list[int]:
    return [*(ctypes.c_uint64 * count).from_address(address)]
