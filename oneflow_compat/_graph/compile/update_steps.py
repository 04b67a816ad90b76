"""The steps of an optimizer update: its elementwise operators, as csrc/cpu/blocks.h runs them."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from ..._kernels import _ext

if TYPE_CHECKING:
    from torch.fx import Graph

    from ..program.tensor_info import TensorInfo


_UNARY = ("copy", "neg", "abs", "sqrt", "reciprocal", "add_number", "mul_number", "div_number")
_BINARY = ("add", "mul", "div", "maximum", "minimum", "lerp")
_TERNARY = ("addcmul", "addcdiv")
STEPS = (*_UNARY, *_BINARY, *_TERNARY)  # enum Block of csrc/cpu/kernels.h
_WITH_NUMBER = ("add", "mul", "div")  # steps that also accept a scalar as the second operand
_SCALED = ("add", "addcmul", "addcdiv")  # operators scaled by `alpha` or `value`


Scalar = Node | float | None  # a number, or the node of a number


@dataclass
class Step:
    """to = name(*tensors; scalar), for the element `index` of the lists of a node."""

    node: Node
    index: int
    name: str
    to: Node
    tensors: tuple[Node, ...]
    scalar: Scalar = None


Steps = dict[Node, list[Step]]


class Operator(NamedTuple):
    """The effect of an ATen operator of an update: a step (or "sub"), on tensors or on lists of tensors."""

    name: str
    on_lists: bool
    in_place: bool


@functools.cache
def exact_steps(dtype: torch.dtype) -> frozenset[str]:
    """Return the steps that give torch's exact results here; both are run and compared."""
    if _ext.load() != "loaded":
        _ext.warn_if_missing()
        return frozenset()
    x, y, z = torch.randn(3, 1003, dtype=dtype, device="cpu", generator=torch.Generator().manual_seed(0))
    plain = {
        "copy": lambda s: x,
        "add_number": lambda s: x + s,
        "mul_number": lambda s: x * s,
        "div_number": lambda s: x / s,
        "add": lambda s: x.add(y, alpha=s),
        "lerp": lambda s: x.lerp(y, s),
        "addcmul": lambda s: x.addcmul(y, z, value=s),
        "addcdiv": lambda s: x.addcdiv(y, z, value=s),
    }

    def exact(code: int, name: str, s: float) -> bool:
        expected = plain[name](s) if name in plain else getattr(torch, name)(*(x, y)[: _arity(name)])
        out, operands = torch.empty_like(x), [1, 2, 3][: _arity(name)]
        torch.ops.oneflow.blocks_([out], [x, y, z], 1, [code, 0, *padded(operands), 0], [s], [])
        return torch.equal(out.nan_to_num(), expected.nan_to_num())

    return frozenset(name for code, name in enumerate(STEPS) if all(exact(code, name, s) for s in (0.1, 0.7)))


def _arity(name: str) -> int:
    return 1 if name in _UNARY else 2 if name in _BINARY else 3


def padded(operands: list[int]) -> list[int]:
    return [*operands, *[-1] * (3 - len(operands))]


def update_nodes(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op == "call_function" and n.meta.get("phase") == "update")


def operator_of(node: Node) -> Operator | None:
    """Return the operator of a node that may be a step, else None."""
    schema = getattr(node.target, "_schema", None)
    if (
        schema is None
        or not schema.name.startswith("aten::")
        or schema.overload_name not in ("", "Tensor", "Scalar", "List", "ScalarList")
    ):
        return None
    full_name = schema.name.removeprefix("aten::")
    on_lists, in_place = full_name.startswith("_foreach_"), full_name.endswith("_")
    name = full_name.removeprefix("_foreach_").removesuffix("_")
    if name not in (*STEPS, "sub") or name == "copy" and not in_place:
        return None
    return Operator(name, on_lists, in_place)


def steps_of_update(graph: Graph) -> Steps:
    """Return {node: its steps} for the nodes of the update that may run in blocks."""
    candidates = {node: steps for node in update_nodes(graph) if (steps := steps_of(node))}
    while True:  # a result with another reader must be materialized
        stepped = {
            (step.node, t)
            for steps in candidates.values()
            for step in steps
            for t in (step.to, *step.tensors)
        }
        escaped = [
            step
            for node, steps in candidates.items()
            if not operator_of(node).in_place
            for step in steps
            if any((user, step.to) not in stepped for user in step.to.users)
        ]
        if not escaped:
            return candidates
        for step in escaped:
            candidates[step.node].remove(step)


def steps_of(node: Node) -> list[Step]:
    """Return one step per element of the node's lists; for a node without lists, its single step."""
    op = operator_of(node)
    if op is None or node.kwargs.keys() - {"alpha", "value"} or op.in_place and node.users:
        return []
    # a scalar may stand for a list of scalars
    columns = [a if isinstance(a, (list, tuple)) else (a,) for a in node.args]
    count = len(columns[0])
    if any(len(column) not in (1, count) for column in columns):
        return []
    results = columns[0] if op.in_place else _results(node, count) if op.on_lists else [node]
    rows = zip(*(column if len(column) == count else column * count for column in columns))
    steps = (_step(node, i, op.name, to, row) for i, (to, row) in enumerate(zip(results, rows)))
    return [step for step in steps if step is not None]


def _results(node: Node, count: int) -> list[Node | None]:
    """Return the nodes that read the elements of a list of results."""
    readers: list[Node | None] = [None] * count
    for user in node.users:
        index: Any = user.args[1] if user.target is operator.getitem else None
        if index is None or readers[index] is not None:
            return [None] * count
        readers[index] = user
    return readers


def _step(node: Node, index: int, name: str, to: Node | None, values: tuple[Any, ...]) -> Step | None:
    """Return the step of one element, or None if there is no such step."""
    tensors = tuple(itertools.takewhile(_is_tensor, values))
    scalars = values[len(tensors) :]
    factor: Any = node.kwargs.get("alpha", node.kwargs.get("value", 1))
    if to is None or not all(map(_is_scalar, (*scalars, factor))) or not _alike([to, *tensors]):
        return None
    if name == "copy":
        tensors = tensors[1:]
    is_subtraction = name == "sub"
    step, scalar = _with_scalar("add" if is_subtraction else name, len(tensors), scalars, factor)
    if step is None or step not in exact_steps(to.meta["tensor"].dtype) or len(tensors) != _arity(step):
        return None
    if is_subtraction:
        if isinstance(scalar, Node):
            return None
        scalar = -scalar
    return Step(node, index, step, to, tensors, scalar)


def _with_scalar(
    name: str, tensors: int, scalars: tuple[Scalar, ...], factor: Scalar
) -> tuple[str | None, Any]:
    """Return the step of an operator on this many tensors, and the step's scalar. The step is None if no step
    takes these scalars.
    """
    if not scalars:
        return None if name == "lerp" else name, factor if name in _SCALED else 0
    if len(scalars) == 1 and name in _WITH_NUMBER and tensors == 1 and factor == 1:
        return f"{name}_number", scalars[0]
    if len(scalars) == 1 and name in ("lerp", *_TERNARY):
        return name, scalars[0]
    return None, None


def _is_tensor(value: object) -> bool:
    return isinstance(value, Node) and value.meta.get("tensor") is not None


def _is_scalar(value: object) -> bool:
    if isinstance(value, Node):
        return value.meta.get("tensor") is None and value.target is not operator.getitem
    return type(value) in (int, float)


def _alike(nodes: Iterable[Node]) -> bool:
    """Return True if the tensors are on the CPU and share one float dtype, shape and dense layout."""
    infos = [n.meta.get("tensor") for n in nodes]
    return (
        infos[0] is not None
        and infos[0].dtype in (torch.float32, torch.float64)
        and infos[0].device.type == "cpu"
        and _is_dense(infos[0])
        and all(info is not None and _layout(info) == _layout(infos[0]) for info in infos)
    )


def _is_dense(info: TensorInfo) -> bool:
    """Return True if a tensor has static sizes, and its elements fill its memory without gaps."""
    if info.stride is None or not all(type(n) is int for n in (*info.shape, *info.stride)):
        return False
    expected = 1
    sizes: Any = info.shape
    for stride, size in sorted((st, size) for size, st in zip(sizes, info.stride) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _layout(info: TensorInfo) -> tuple[Any, ...]:
    return (
        info.shape,
        info.dtype,
        info.device,
        info.stride and tuple(st for size, st in zip(info.shape, info.stride) if size != 1),
    )
