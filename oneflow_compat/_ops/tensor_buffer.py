"""Tensor buffers: a tensor-shaped container whose elements are tensors of differing shapes."""
from __future__ import annotations

import math

import torch

from .misc import _OtherDtype

__all__ = ["tensor_buffer", "gen_tensor_buffer", "tensor_to_tensor_buffer", "tensor_buffer_to_tensor", "tensor_buffer_to_list_of_tensors"]

tensor_buffer = _OtherDtype("tensor_buffer")


class TensorBuffer:
    """`shape` and, in row-major order, the `items`."""

    dtype = tensor_buffer

    def __init__(self, shape, items):
        self.shape, self.items = torch.Size(shape), list(items)
        if len(self.items) != math.prod(self.shape):
            raise ValueError(f"a tensor buffer of shape {tuple(self.shape)} holds {math.prod(self.shape)} tensors, found {len(self.items)}")

    def numel(self):
        return len(self.items)

    def __repr__(self):
        return f"TensorBuffer(shape={tuple(self.shape)}, items of {[tuple(t.shape) for t in self.items]})"


def gen_tensor_buffer(shape, shape_list, value_list, data_type=torch.float32, dynamic_out=False):
    """A buffer of `shape` whose items have the shapes of `shape_list`, filled with the numbers of `value_list`."""
    return TensorBuffer(shape, [torch.full(tuple(s), v, dtype=data_type) for s, v in zip(shape_list, value_list, strict=True)])


def tensor_to_tensor_buffer(x, instance_dims):
    """A buffer whose items are the last `instance_dims` dimensions of `x`."""
    if not 0 <= instance_dims <= x.dim():
        raise RuntimeError(f"tensor_to_tensor_buffer: instance_dims must be 0 to {x.dim()}, found {instance_dims}")
    lead = x.shape[:x.dim() - instance_dims]
    return TensorBuffer(lead, x.reshape(-1, *x.shape[len(lead):]).unbind(0))


def tensor_buffer_to_tensor(x, dtype, instance_shape):
    """The items of a buffer, each of `instance_shape`, as one tensor of shape x.shape + instance_shape."""
    items = [t.to(dtype).reshape(tuple(instance_shape)) for t in x.items]
    return torch.stack(items).reshape(*x.shape, *instance_shape)


def tensor_buffer_to_list_of_tensors(tensor, out_shapes, out_dtypes):
    """The items of a buffer as a list, checked against the shapes and converted to the dtypes."""
    return [t.to(d).reshape(tuple(s)) for t, s, d in zip(tensor.items, out_shapes, out_dtypes, strict=True)]
