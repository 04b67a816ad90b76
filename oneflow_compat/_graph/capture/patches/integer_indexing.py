"""x[i] with a 0-d integer tensor i: eager reads the number, and a program keeps the tensor.

So one program serves every i. Its x[i] is a copy, and x[i.item()] is a view. If build() writes to the row, or
to x while the row is in use, it is captured again with x[i.item()] for each x[i].
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ..values.known import constant_value
from .composites import composed
from .patching import Replacements, called_method

if TYPE_CHECKING:
    from ..recorder import Recorder


_INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8
_GET, _PUT = torch.Tensor.__getitem__, torch.Tensor.__setitem__


@contextlib.contextmanager
def tensors_as_indices(recorder: Recorder, active: Callable[..., Any]) -> Iterator[Replacements]:
    """While build() is captured, x[i] and x[i] = y take such an index as a tensor of one element."""

    # A __getitem__ set on torch.Tensor would make tensors sequences for C: torch.tensor([t, t]) would fail
    # from then on.
    class Indexing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            func = called_method(func)
            if func is _GET:
                return _get_item(recorder if active() else None, *args)
            if func is _PUT:
                return _set_item(recorder if active() else None, *args)
            if func is torch.Tensor.__bool__ and active() and _is_integer(args[0]):
                return bool(args[0] != 0)
            form = composed(func, args, kwargs) if active() else None
            return func(*args, **kwargs or {}) if form is None else form()

    with Indexing():
        yield _overrides_besides_this_mode(active)
    recorder.copied.check_row()


def _get_item(recorder: Any, tensor: Any, index: Any) -> Any:
    tensor, index = _selected(tensor, index)
    tensor, index, picks = _split(recorder, tensor, index)
    if picks is None:
        return _GET(tensor, index)
    if recorder.copied.has_views_of_rows:
        tensor, index = _row(recorder, tensor, index)
        return _GET(tensor, index)
    rest, picked = picks
    out = base = _GET(tensor, rest)
    for dim, i in reversed(picked):
        out = _GET(out, (slice(None),) * dim + (i.reshape(1),)).squeeze(dim)
    recorder.copied.note_row(base, out, index)
    return out


def _set_item(recorder: Any, tensor: Any, index: Any, value: Any) -> Any:
    tensor, index = _selected(tensor, index)
    tensor, index, picks = _split(recorder, tensor, index)
    if picks is None:
        return _PUT(tensor, index, value)
    # The value may be the row itself, as in x[i] += y. An expanded tensor has one row in all places.
    if recorder.copied.has_views_of_rows or torch._debug_has_internal_overlap(tensor) == 1:
        tensor, index = _row(recorder, tensor, index)
        return _PUT(tensor, index, value)
    with recorder.copied.assignment(tensor, index, value):
        _put_at(tensor, picks, value)


def _put_at(tensor: torch.Tensor, picks: tuple[Any, ...], value: Any) -> None:
    """Assign to the rows at the tensors of `picks`, which may be several dimensions."""
    rest, picked = picks
    target = _GET(tensor, rest)
    if isinstance(value, torch.Tensor) and value.dim():
        value = value.expand([n for d, n in enumerate(target.shape) if d not in [p for p, _ in picked]])
        for dim, _ in picked:
            value = value.unsqueeze(dim)
    if len(picked) == 1:
        _PUT(target, (slice(None),) * picked[0][0] + (picked[0][1].reshape(1),), value)
    else:
        positions = [torch.arange(n, device=target.device) for n in target.shape]
        for dim, i in picked:
            positions[dim] = i.reshape(1)
        _PUT(target, torch.meshgrid(*positions, indexing="ij"), value)


def _row(recorder: Recorder, tensor: torch.Tensor, index: Any) -> tuple[Any, ...]:
    """Return the view at the numbers of the 0-d tensors of an index, and the index without them."""
    parts = index if type(index) is tuple else (index,)
    return _selected(tensor, tuple(i.item() if _is_pick(recorder, i) else i for i in parts))


def _split(recorder: Recorder, tensor: torch.Tensor, index: Any) -> tuple[Any, ...]:
    """Return the tensor, the index, and what `_picks` says of them: None without a capture.

    A mask without dimensions is taken as a mask of one row.
    """
    if recorder is None:
        return tensor, index, None
    if _is_flag(index):
        tensor, index = tensor.unsqueeze(0), index.reshape(1)
    return tensor, index, _picks(recorder, tensor, index)


def _overrides_besides_this_mode(active: Callable[..., Any]) -> Replacements:
    """Return replacements of torch's questions whether a tensor has __torch_function__.

    Torch's functions in Python would take a slower branch if only this mode is on.
    """
    sequence = torch.overrides.has_torch_function

    def besides(original: Callable[..., Any]) -> Any:
        def has(*args: Any) -> Any:
            if not active() or torch._C._len_torch_function_stack() != 1:
                return original(*args)
            return any(map(_overrides, args[0] if original is sequence else args))

        return has

    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    originals = {name: getattr(torch.overrides, name) for name in names}
    return {name: (original, besides(original)) for name, original in originals.items()}


def _overrides(value: Any) -> bool:
    value_type = type(value)
    return (
        value_type not in (torch.Tensor, torch.nn.Parameter, FakeTensor)
        and getattr(value_type, "__torch_function__", _PLAIN) is not _PLAIN
    )


_PLAIN = torch._C._disabled_torch_function_impl


def _selected(tensor: torch.Tensor, index: Any) -> tuple[Any, ...]:
    """Return the tensor selected at the integers that a program computes, and the index without them."""
    parts = list(index) if type(index) is tuple else [index]
    for n in [n for n, i in enumerate(parts) if type(i) is torch.SymInt][::-1]:
        if Ellipsis in [i for i in parts[:n] if not isinstance(i, torch.Tensor)]:
            dim = tensor.dim() - sum(map(_dims_of, parts[n:]))
        else:
            dim = sum(map(_dims_of, parts[:n]))
        tensor, index = tensor.select(dim, parts.pop(n)), tuple(parts)
    return tensor, index


def _dims_of(index: Any) -> Any:
    """Return how many dimensions of the tensor an index stands for."""
    if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
        return index.dim()
    return 0 if index is None or type(index) is bool else 1


def _is_integer(tensor: torch.Tensor) -> bool:
    return type(tensor) is FakeTensor and not (
        tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
    )


def _is_flag(index: Any) -> bool:
    """Whether the index is a mask without dimensions, whose value eager reads."""
    return type(index) is FakeTensor and index.dim() == 0 and index.dtype is torch.bool


def _single(index: Any) -> Any:
    return type(index) is FakeTensor and index.dim() == 0 and index.dtype in _INTEGERS


def _unknown(recorder: Recorder, index: Any) -> bool:
    node = getattr(index, "_of_node", None)
    return "_value" not in index.__dict__ and node is not None and constant_value(recorder, node) is None


def _picks(recorder: Recorder, tensor: torch.Tensor, index: Any) -> tuple[Any, ...] | None:
    """Return (the index with `:` for each 0-d tensor, [(dimension of the result, that tensor)]).

    Return None if there is no such tensor, or if there are lists and other tensors beside.
    """
    index = index if type(index) is tuple else (index,)
    if not any(_is_pick(recorder, i) for i in index):
        return None
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    dim, rest, picked = 0, [], []
    for i in index:
        if _is_pick(recorder, i):
            picked.append((dim, i))
            rest.append(slice(None))
            dim += 1
            continue
        rest.append(i)
        if i is Ellipsis:
            dim += tensor.dim() - used
        elif i is None or type(i) is slice:
            dim += 1
        elif type(i) is not int and not _single(i):
            return None
    return tuple(rest), picked


def _is_pick(recorder: Recorder, i: Any) -> bool:
    """Whether the program computes the index: a 0-d integer tensor that is no constant."""
    return _single(i) and _unknown(recorder, i)
