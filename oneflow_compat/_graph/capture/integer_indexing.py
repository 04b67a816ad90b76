"""x[i] with a 0-d integer tensor i: eager reads the number; a program keeps it a tensor, so that one program
serves every i. x[i.item()] is a view.
"""

from __future__ import annotations

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from .function_aliases import everywhere
from .composites import composed
from .known import constant_value

_INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8


@contextlib.contextmanager
def tensors_as_indices(recorder, active):
    """While build() is captured, x[i] and x[i] = y take such an index as a tensor of one element."""
    get, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__

    def getitem(tensor, index):
        tensor, index = _selected(tensor, index)
        if active() and _is_flag(index):
            tensor, index = tensor.unsqueeze(0), index.reshape(1)
        places = _places(recorder, tensor, index) if active() else None
        if places is None:
            return get(tensor, index)
        rest, picked = places
        out = get(tensor, rest)
        for dim, i in reversed(picked):
            out = get(out, (slice(None),) * dim + (i.reshape(1),)).squeeze(dim)
        return out

    def setitem(tensor, index, value):
        tensor, index = _selected(tensor, index)
        if active() and _is_flag(index):
            tensor, index = tensor.unsqueeze(0), index.reshape(1)
        places = _places(recorder, tensor, index) if active() else None
        if places is None:
            return put(tensor, index, value)
        rest, picked = places
        target = get(tensor, rest)
        if isinstance(value, torch.Tensor) and value.dim():
            value = value.expand([n for d, n in enumerate(target.shape) if d not in [p for p, _ in picked]])
            for dim, _ in picked:
                value = value.unsqueeze(dim)
        if len(picked) == 1:
            put(target, (slice(None),) * picked[0][0] + (picked[0][1].reshape(1),), value)
        else:
            at = [torch.arange(n, device=target.device) for n in target.shape]
            for dim, i in picked:
                at[dim] = i.reshape(1)
            put(target, torch.meshgrid(*at, indexing="ij"), value)

    class Indexing(
        TorchFunctionMode
        # a __getitem__ put on torch.Tensor would make tensors sequences for C, for good: torch.tensor([t, t])
        # fails from then on
    ):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is get:
                return getitem(*args)
            if func is put:
                return setitem(*args)
            if func is torch.Tensor.__bool__ and active() and _is_integer(args[0]):
                return bool(args[0] != 0)
            form = composed(func, args, kwargs) if active() else None
            return func(*args, **kwargs or {}) if form is None else form()

    def beside(original):
        """torch's functions in Python do not take another way because of this mode alone."""

        def has(*args):
            if not active() or torch._C._len_torch_function_stack() != 1:
                return original(*args)
            return any(map(_overrides, args[0] if original is sequence else args))

        return has

    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    sequence = torch.overrides.has_torch_function
    with (
        everywhere({n: (getattr(torch.overrides, n), beside(getattr(torch.overrides, n))) for n in names}),
        Indexing(),
    ):
        yield


def _overrides(value):
    value_type = type(value)
    return (
        value_type not in (torch.Tensor, torch.nn.Parameter, FakeTensor)
        and getattr(value_type, "__torch_function__", _PLAIN) is not _PLAIN
    )


_PLAIN = torch._C._disabled_torch_function_impl


def _selected(tensor, index):
    """The index without numbers that a program computes, and the part of the tensor at those."""
    parts = list(index) if type(index) is tuple else [index]
    for n in [n for n, i in enumerate(parts) if type(i) is torch.SymInt][::-1]:
        if Ellipsis in [i for i in parts[:n] if not isinstance(i, torch.Tensor)]:
            dim = tensor.dim() - sum(map(_taken, parts[n:]))
        else:
            dim = sum(map(_taken, parts[:n]))
        tensor, index = tensor.select(dim, parts.pop(n)), tuple(parts)
    return tensor, index


def _taken(index):
    """How many dimensions of the tensor an index stands for."""
    if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
        return index.dim()
    return 0 if index is None or type(index) is bool else 1


def _is_integer(tensor):
    return type(tensor) is FakeTensor and not (
        tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
    )


def _is_flag(index):
    """A mask without dimensions, whose value eager reads: x[mask] has one row more in front, or none."""
    return type(index) is FakeTensor and index.dim() == 0 and index.dtype is torch.bool


def _single(index):
    return type(index) is FakeTensor and index.dim() == 0 and index.dtype in _INTEGERS


def _unknown(recorder, index):
    node = getattr(index, "_of_node", None)
    return "_value" not in index.__dict__ and node is not None and constant_value(recorder, node) is None


def _places(recorder, tensor, index):
    """(the index with `:` where a 0-d tensor stood, [(dimension of the result, that tensor)]); None where
    there is none, or lists and tensors beside.
    """
    index = index if type(index) is tuple else (index,)
    if not any(_single(i) and _unknown(recorder, i) for i in index):
        return None
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    dim, rest, picked = 0, [], []
    for i in index:
        if _single(i) and _unknown(recorder, i):
            picked.append((dim, i))
            rest.append(slice(None))
            dim += 1
        elif type(i) is int or _single(i):
            rest.append(i)
        elif i is None or type(i) is slice or i is Ellipsis:
            rest.append(i)
            dim += tensor.dim() - used if i is Ellipsis else 1
        else:
            return None
    return tuple(rest), picked
