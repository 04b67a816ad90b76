"""Tensor buffers: one tensor per example, of any shapes; and lists of arrays."""
from __future__ import annotations

import torch

from . import _context
from ._host import HostBlob


class TensorBuffer:
    """A list with one tensor per example."""

    def __init__(self, items):
        self.items = list(items)

    shape = property(lambda self: (len(self.items),))

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


def each(blob, function, needs_values=False):
    """`function` on every example of a buffer, of a reader's blob or of a tensor's first dimension; a buffer again.

    `needs_values`: the function looks at numbers, so a captured job runs op by op instead.
    """
    if isinstance(blob, HostBlob):
        return blob.map(lambda value: TensorBuffer(function(torch.as_tensor(item)) for item in value))
    if needs_values:
        _context.value_dependent(getattr(function, "__name__", "a tensor buffer operator"))
    return TensorBuffer(function(item) for item in blob)


def each_with(blob, other, function, needs_values=False):
    """Like `each`, with the matching row of `other`."""
    if isinstance(blob, HostBlob) or isinstance(other, HostBlob):
        host = blob if isinstance(blob, HostBlob) else other

        def compute():
            left = blob.value() if isinstance(blob, HostBlob) else blob
            right = other.value() if isinstance(other, HostBlob) else other
            return TensorBuffer(function(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(left, right))

        return HostBlob(host.trace, compute)
    if needs_values:
        _context.value_dependent(getattr(function, "__name__", "a tensor buffer operator"))
    return TensorBuffer(function(a, b) for a, b in zip(blob, other))


def tensor_to_tensor_buffer(x, instance_dims, name=None):
    """One buffer entry per element of the leading x.dim() - instance_dims dimensions."""
    if not 0 < instance_dims < x.dim():
        raise ValueError(f"tensor_to_tensor_buffer: instance_dims must be in 1 ... {x.dim() - 1}, found {instance_dims}")
    lead = x.dim() - instance_dims
    return TensorBuffer(x.reshape(-1, *x.shape[lead:]).unbind(0))


def tensor_buffer_to_tensor(x, dtype, instance_shape, name=None):
    """The entries, each of `instance_shape` and `dtype`, as one tensor."""

    def convert(items):
        out = []
        for item in items:
            item = torch.as_tensor(item)
            if tuple(item.shape) != tuple(instance_shape) or item.dtype != dtype:
                raise ValueError(f"tensor_buffer_to_tensor: declared {tuple(instance_shape)} {dtype}, an entry is {tuple(item.shape)} {item.dtype}")
            out.append(item)
        return torch.stack(out)

    if isinstance(x, HostBlob):
        return x.map(convert).dense()
    return convert(x)


def gen_tensor_buffer(shape, shape_list, value_list, data_type=torch.float32, dynamic_out=False, name=None):
    """A buffer of prod(shape) constant tensors, of the shapes and values of the two lists."""
    count = 1
    for d in shape:
        count *= d
    if not len(shape_list) == len(value_list) == count:
        raise ValueError(f"gen_tensor_buffer: shape {tuple(shape)} needs {count} shapes and values, found {len(shape_list)} and {len(value_list)}")
    return TensorBuffer(torch.full(tuple(s), v, dtype=data_type) for s, v in zip(shape_list, value_list))


def tensor_buffer_to_list_of_tensors(x, out_shape, out_dtype, dynamic_out=False, name=None):
    """The entries as a list of tensors; with `dynamic_out` out_shape is only an upper bound."""
    out = []
    for item in x.value() if isinstance(x, HostBlob) else x:
        item = torch.as_tensor(item)
        fits = item.numel() <= torch.Size(out_shape).numel() if dynamic_out else tuple(item.shape) == tuple(out_shape)
        if not fits or item.dtype != out_dtype:
            raise ValueError(f"tensor_buffer_to_list_of_tensors: declared {tuple(out_shape)} {out_dtype}, an entry is {tuple(item.shape)} {item.dtype}")
        out.append(item)
    return out


# ---------------------------------------------------------------- micro batches of one call
def unpack(input, unpack_num, name=None):
    """Cut the batch into `unpack_num` parts, to be joined by `pack` or summed by `acc`."""
    if input.shape[0] % unpack_num:
        raise ValueError(f"unpack: the first dimension {input.shape[0]} is no multiple of {unpack_num}")
    return _mark(input[: input.shape[0] // unpack_num].clone(), "unpack", input, unpack_num)


def repeat(input, repeat_num, name=None):
    """The blob `repeat_num` times, to be joined by `pack` or summed by `acc`."""
    return _mark(input.clone(), "repeat", input, repeat_num)


def pack(input, pack_num, name=None):
    """Join the parts that `unpack` or `repeat` made."""
    kind, source, number = _marked(input, "pack", pack_num)
    return source if kind == "unpack" else torch.cat([source] * number)


def acc(one, max_acc_num, name=None):
    """Sum of the parts that `unpack` or `repeat` made."""
    kind, source, number = _marked(one, "acc", max_acc_num)
    if kind == "repeat":
        return source * number
    return source.reshape(number, -1, *source.shape[1:]).sum(0)


def _mark(part, kind, source, number):
    trace = _context.require_trace(kind)
    trace.parts[id(part)] = (part, kind, source, number)
    return part


def _marked(part, what, number):
    found = _context.require_trace(what).parts.get(id(part))
    if found is None:
        from ..._errors import unsupported

        raise unsupported(f"{what} of anything but what unpack or repeat returned", "legacy-time-shape", "Call the job once per micro batch instead.")
    if found[3] != number:
        raise ValueError(f"{what}: the blob has {found[3]} parts, asked for {number}")
    return found[1:]


