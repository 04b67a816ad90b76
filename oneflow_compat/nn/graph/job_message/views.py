"""Operators of a graph's job that move, cut or copy: what OneFlow 0.9.0 writes for ATen's views.

Part of `calls.CALLS`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    Value = torch.fx.Node | str  # a value of the job: the node that computes it, or its name
    Arguments = dict[str, Any]  # ATen's arguments of a node, by name
    Setting = tuple[str, Any]  # (field of AttrValue, its value)
    Settings = dict[str, Setting]
    CallWriter = Callable[["OperatorWriter", torch.fx.Node, Arguments], str | None]
    PartWriter = Callable[["OperatorWriter", torch.fx.Node, Arguments, int], str | None]


class OperatorWriter(Protocol):
    """The attributes of JobWriter (graph_proto.py) that the functions for single operators use."""

    def name_of(self, x: Value) -> str: ...
    def size(self, x: Value) -> Any: ...
    def result(self, node: torch.fx.Node) -> Any: ...
    def dtype(self, node: torch.fx.Node) -> Any: ...
    def scalar(self, node: torch.fx.Node, op_name: str, tensor: Value, scalar: float) -> str: ...

    def user(
        self,
        node: torch.fx.Node,
        op_name: str,
        inputs: Mapping[str, Sequence[Value]],
        output: str,
        settings: Settings,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> str: ...


def ints(*values: int) -> Setting:
    return "at_list_int32", list(values)


def longs(*values: int) -> Setting:
    return "at_list_int64", list(values)


def flag(value: object) -> Setting:
    return "at_bool", bool(value)


def numbers(value: float) -> Settings:
    """Return the four settings in which OneFlow keeps a Python scalar."""
    integral = isinstance(value, int) and not isinstance(value, bool)
    return {
        "has_int_operand": flag(integral),
        "has_float_operand": flag(not integral),
        "int_operand": ("at_int64", value if integral else 0),
        "float_operand": ("at_double", 0.0 if integral else value),
    }


def typed(floating: bool, value: float, names: tuple[str, str] = ("floating", "integral")) -> Settings:
    """Return a Python scalar in the two settings of which OneFlow uses one, depending on the dtype class of
    the tensor.
    """
    whole = 0 if floating or not math.isfinite(value) else int(value)
    return {names[0]: ("at_double", float(value) if floating else 0.0), names[1]: ("at_int64", whole)}


def dims(w: OperatorWriter, x: Value, dims: int | Sequence[int] | None) -> list[int]:
    """Return the dimensions as nonnegative indices; all dimensions if none is named."""
    rank = len(w.size(x))
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    return [d % max(1, rank) for d in ([dims] if isinstance(dims, int) else dims)]


def reshape(w: OperatorWriter, node: torch.fx.Node, x: Value, shape: Sequence[int]) -> str:
    return w.user(node, "reshape", {"in": [x]}, "out", {"shape": ("at_shape", list(shape))}, shape)


def transpose(w: OperatorWriter, node: torch.fx.Node, x: Value, perm: Sequence[int]) -> str:
    shape = w.size(x)
    return w.user(
        node, "transpose", {"input": [x]}, "output", {"perm": ints(*perm)}, [shape[d] for d in perm]
    )


def swapped(
    w: OperatorWriter, node: torch.fx.Node, x: Value, dim: int, compute: Callable[[Value], str]
) -> str:
    """Apply `compute` to the last dimension; the dimension is exchanged with it before and after."""
    rank = len(w.size(x))
    dim %= max(1, rank)
    if rank < 2 or dim == rank - 1:
        return compute(x)
    perm = list(range(rank))
    perm[dim], perm[-1] = perm[-1], perm[dim]
    return transpose(w, node, compute(transpose(w, node, x, perm)), perm)


def _narrow(w: OperatorWriter, node: torch.fx.Node, x: Value, dim: int, start: int, length: int) -> str:
    shape = list(w.size(x))
    shape[dim] = length
    return w.user(
        node,
        "narrow",
        {"in": [x]},
        "out",
        {"dim": ("at_int64", dim), "length": ("at_int64", length), "start": ("at_int64", start)},
        shape,
    )


def _split(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str:
    x, [dim] = a["self"], dims(w, a["self"], a["dim"])
    size = w.size(x)[dim]
    lengths: Any = a.get("split_sizes") or a.get("split_size")
    if isinstance(lengths, int):
        lengths = [min(lengths, size - at) for at in range(0, size, lengths)] if size else [0]
    return _narrow(w, node, x, dim, sum(lengths[:index]), lengths[index])


def _unbind(w: OperatorWriter, node: torch.fx.Node, a: Arguments, index: int) -> str:
    [dim] = dims(w, a["self"], a["dim"])
    return w.user(
        node, "squeeze", {"in": [_narrow(w, node, a["self"], dim, index, 1)]}, "out", {"axes": ints(dim)}
    )


def _window(
    w: OperatorWriter, node: torch.fx.Node, x: Value, dim: int, start: int, stop: int, step: int
) -> str:
    shape = w.size(x)
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dim], stops[dim], steps[dim] = start, stop, step
    after = [len(range(*bounds)) for bounds in zip(starts, stops, steps)]
    return w.user(
        node,
        "slice",
        {"x": [x]},
        "y",
        {"start": longs(*starts), "stop": longs(*stops), "step": longs(*steps)},
        after,
    )


def _slice(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    [dim] = dims(w, a["self"], a["dim"])
    start, stop, step = slice(a["start"], a["end"], a["step"]).indices(w.size(a["self"])[dim])
    return _window(w, node, a["self"], dim, start, stop, step)


def _select(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    [dim] = dims(w, a["self"], a["dim"])
    start = a["index"] % w.size(a["self"])[dim]
    return reshape(w, node, _window(w, node, a["self"], dim, start, start + 1, 1), w.result(node))


def _squeeze(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    shape = w.size(a["self"])
    axes = [d for d in dims(w, a["self"], a.get("dim")) if shape[d] == 1]
    return (
        w.user(node, "squeeze", {"in": [a["self"]]}, "out", {"axes": ints(*axes)})
        if axes
        else w.name_of(a["self"])
    )


def _repeat(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    """Write a repeat: a dimension of size 1 is inserted before each dimension and expanded. The expansion
    also adds new dimensions.
    """
    shape, repeats = w.size(a["self"]), a["repeats"]
    new = len(repeats) - len(shape)
    split, wide = [], repeats[:new]
    for size, times in zip(shape, repeats[new:]):
        split += [1, size] if times > 1 and size > 1 else [size]
        wide += [times, size] if times > 1 and size > 1 else [size * times]
    x = reshape(w, node, a["self"], split)
    return reshape(
        w,
        node,
        w.user(node, "expand", {"in": [x]}, "out", {"expand_shape": ("at_shape", wide)}, wide),
        w.result(node),
    )


def _expand(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.user(node, "expand", {"in": [a["self"]]}, "out", {"expand_shape": ("at_shape", w.result(node))})


def _unsqueeze(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.user(
        node,
        "expand_dims",
        {"in": [a["self"]]},
        "out",
        {"axis": ("at_int32", a["dim"] % len(w.result(node)))},
    )


def _view(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return reshape(w, node, a["self"], w.result(node))


def _pixel_shuffle(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    n, c, high, wide = w.size(a["self"])
    r = a["upscale_factor"]
    x = reshape(w, node, a["self"], [n, c // r**2, r**2, high, wide])
    x = transpose(w, node, reshape(w, node, x, [n, c // r**2, r, r, high, wide]), [0, 1, 4, 2, 5, 3])
    return reshape(w, node, x, w.result(node))


def _same(w: OperatorWriter, node: torch.fx.Node, a: Arguments) -> str:
    return w.name_of(a["self"])


VIEWS = {
    "slice": _slice,
    "select": _select,
    "squeeze": _squeeze,
    "repeat": _repeat,
    "view": _view,
    "_unsafe_view": _view,
    "reshape": _view,
    "expand": _expand,
    "unsqueeze": _unsqueeze,
    "pixel_shuffle": _pixel_shuffle,
    "alias": _same,
    "detach": _same,
    "clone": _same,
}
VIEW_PARTS = {"split": _split, "split_with_sizes": _split, "unbind": _unbind}
