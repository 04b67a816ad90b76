"""Tensor buffers: one tensor per example, of any shapes; and lists of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...._errors import unsupported
from .._jobs import context as _context
from .._jobs.host import HostBlob


class TensorBuffer:
    """A list with one tensor per example; `shape` is one-dimensional unless given."""

    def __init__(self, items: Iterator[Any], shape: Sequence[int] | None = None) -> None:
        self.items = list(items)
        self.shape = (len(self.items),) if shape is None else tuple(shape)

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class TensorList:
    """Blobs of shape (1, ...), one per example.

    A tensor list is an input declared with ListListNumpy, or a result of a job.
    """

    def __init__(self, items: Any) -> None:
        self.items = list(items)

    dtype = property(lambda self: self.items[0].dtype)

    def numpy_lists(self) -> Any:
        """A list per device (one) of arrays."""
        return [[item.numpy() for item in self.items]]


def each(blob: Any, function: Callable[..., Any], needs_values: bool = False) -> Any:
    """Apply `function` to every example and return a buffer.

    The examples are those of a buffer, of a reader's blob or of a tensor's first dimension.
    `needs_values`: the function reads values, so a captured job runs op by op instead.
    """
    if isinstance(blob, HostBlob):
        return blob.map(lambda value: TensorBuffer(function(torch.as_tensor(item)) for item in value))
    if needs_values:
        _context.value_dependent(getattr(function, "__name__", "a tensor buffer operator"))
    return TensorBuffer(
        [function(item) for item in blob], blob.shape if isinstance(blob, TensorBuffer) else None
    )


def each_with(blob: Any, second_blob: Any, function: Callable[..., Any], needs_values: bool = False) -> Any:
    """Like `each`, with the matching row of `second_blob`."""
    if isinstance(blob, HostBlob) or isinstance(second_blob, HostBlob):
        host = blob if isinstance(blob, HostBlob) else second_blob

        def compute() -> TensorBuffer:
            left = blob.value() if isinstance(blob, HostBlob) else blob
            right = second_blob.value() if isinstance(second_blob, HostBlob) else second_blob
            return TensorBuffer(function(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(left, right))

        return HostBlob(host.trace, compute)
    if needs_values:
        _context.value_dependent(getattr(function, "__name__", "a tensor buffer operator"))
    return TensorBuffer(function(a, b) for a, b in zip(blob, second_blob))


def tensor_to_tensor_buffer(x: torch.Tensor, instance_dims: int, name: str | None = None) -> TensorBuffer:
    """One buffer entry per element of the leading x.dim() - instance_dims dimensions."""
    if not 0 < instance_dims < x.dim():
        raise ValueError(
            f"tensor_to_tensor_buffer: instance_dims must be in 1 ... {x.dim() - 1}, found {instance_dims}"
        )
    lead = x.dim() - instance_dims
    return TensorBuffer(x.reshape(-1, *x.shape[lead:]).unbind(0), x.shape[:lead])


def tensor_buffer_to_tensor(
    x: Any, dtype: torch.dtype, instance_shape: Sequence[int], name: str | None = None
) -> torch.Tensor:
    """The entries, each of `instance_shape` and `dtype`, as one tensor."""

    def convert(items: TensorBuffer) -> torch.Tensor:
        out = []
        for item in items:
            item = torch.as_tensor(item)
            if tuple(item.shape) != tuple(instance_shape) or item.dtype != dtype:
                raise ValueError(
                    f"tensor_buffer_to_tensor: declared {tuple(instance_shape)} {dtype}, an entry is"
                    f" {tuple(item.shape)} {item.dtype}"
                )
            out.append(item)
        stacked = torch.stack(out)
        return (
            stacked.reshape(*items.shape, *stacked.shape[1:]) if isinstance(items, TensorBuffer) else stacked
        )

    if isinstance(x, HostBlob):
        return x.map(convert).dense()
    return convert(x)


def tensor_list_to_tensor_buffer(input: torch.Tensor, name: str | None = None) -> Any:
    """One buffer entry per blob of an input declared with ListListNumpy, without its leading 1."""
    if not isinstance(input, TensorList):
        raise TypeError(
            "tensor_list_to_tensor_buffer takes an input declared with ListListNumpy, found"
            f" {type(input).__name__}"
        )
    return TensorBuffer(item[0] for item in input.items)


def tensor_buffer_to_tensor_list(
    input: torch.Tensor, shape: Any, dtype: torch.dtype | None, name: str | None = None
) -> Any:
    """The entries, each at most of `shape`, as a list of blobs (1, ...).

    A list that a job returns has numpy_lists().
    """
    if isinstance(input, HostBlob):
        _context.value_dependent("tensor_buffer_to_tensor_list")
        input = input.value()
    out = []
    for item in input:
        item = torch.as_tensor(item)
        if item.dim() != len(shape) or any(a > d for a, d in zip(item.shape, shape)) or item.dtype != dtype:
            raise ValueError(
                f"tensor_buffer_to_tensor_list: declared at most {tuple(shape)} {dtype}, an entry is"
                f" {tuple(item.shape)} {item.dtype}"
            )
        out.append(item[None])
    return TensorList(out)


def tensor_list_split(input_tensor_list: Any, name: str | None = None) -> Any:
    """The blobs of a tensor list, each without its leading 1, as a tuple."""
    return tuple(item[0] for item in input_tensor_list.items)


def gen_tensor_buffer(
    shape: Sequence[int],
    shape_list: Sequence[Any],
    value_list: Sequence[float],
    data_type: torch.dtype = torch.float32,
    dynamic_out: bool = False,
    name: str | None = None,
) -> TensorBuffer:
    """A buffer of prod(shape) constant tensors, of the shapes and values of the two lists."""
    count = 1
    for d in shape:
        count *= d
    if not len(shape_list) == len(value_list) == count:
        raise ValueError(
            f"gen_tensor_buffer: shape {tuple(shape)} needs {count} shapes and values, found"
            f" {len(shape_list)} and {len(value_list)}"
        )
    return TensorBuffer(
        [torch.full(tuple(s), v, dtype=data_type) for s, v in zip(shape_list, value_list)], shape
    )


def tensor_buffer_to_list_of_tensors(
    x: TensorBuffer | torch.Tensor,
    out_shape: Sequence[int],
    out_dtype: torch.dtype,
    dynamic_out: bool = False,
    name: str | None = None,
) -> list[torch.Tensor]:
    """The entries as a list of tensors; with `dynamic_out` out_shape is only an upper bound."""
    out = []
    for item in x.value() if isinstance(x, HostBlob) else x:
        item = torch.as_tensor(item)
        fits = (
            item.numel() <= torch.Size(out_shape).numel()
            if dynamic_out
            else tuple(item.shape) == tuple(out_shape)
        )
        if not fits or item.dtype != out_dtype:
            raise ValueError(
                f"tensor_buffer_to_list_of_tensors: declared {tuple(out_shape)} {out_dtype}, an entry is"
                f" {tuple(item.shape)} {item.dtype}"
            )
        out.append(item)
    return out


# ---------------------------------------------------------------- micro batches of one call
def unpack(input: torch.Tensor, unpack_num: int, name: str | None = None) -> torch.Tensor:
    """Cut the batch into `unpack_num` parts, to be joined by `pack` or summed by `acc`."""
    if input.shape[0] % unpack_num:
        raise ValueError(f"unpack: the first dimension {input.shape[0]} is no multiple of {unpack_num}")
    return _mark(input[: input.shape[0] // unpack_num].clone(), "unpack", input, unpack_num)


def repeat(input: torch.Tensor, repeat_num: int, name: str | None = None) -> torch.Tensor:
    """The blob `repeat_num` times, to be joined by `pack` or summed by `acc`."""
    return _mark(input.clone(), "repeat", input, repeat_num)


def pack(input: torch.Tensor, pack_num: int, name: str | None = None) -> torch.Tensor:
    """Join the parts that `unpack` or `repeat` returned."""
    repetition, source, count = _marked(input, "pack", pack_num)
    return source if repetition == "unpack" else torch.cat([source] * count)


def acc(one: torch.Tensor, max_acc_num: int, name: str | None = None) -> torch.Tensor:
    """Sum of the parts that `unpack` or `repeat` returned."""
    repetition, source, count = _marked(one, "acc", max_acc_num)
    if repetition == "repeat":
        return source * count
    return source.reshape(count, -1, *source.shape[1:]).sum(0)


def _mark(part: torch.Tensor, repetition: str, source: torch.Tensor, count: int) -> torch.Tensor:
    trace = _context.require_trace(repetition)
    trace.parts[id(part)] = (part, repetition, source, count)
    return part


def _marked(part: torch.Tensor, what: str, count: int) -> tuple[Any, ...]:
    entry = _context.require_trace(what).parts.get(id(part))
    if entry is None:
        raise unsupported(
            f"{what} of anything but what unpack or repeat returned",
            "legacy-time-shape",
            "Call the job once per micro batch instead.",
        )
    if entry[3] != count:
        raise ValueError(f"{what}: the blob has {entry[3]} parts, asked for {count}")
    return entry[1:]
