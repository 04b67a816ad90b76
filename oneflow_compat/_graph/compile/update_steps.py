"""Elementwise operators as steps, as csrc/cpu/blocks.h runs them: of optimizer updates and of groups."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from ..._kernels import _ext

if TYPE_CHECKING:
    from torch.fx import Graph

    from ..program.tensor_info import TensorInfo


STEPS = {  # number of operands, in the order of enum Block of csrc/cpu/kernels.h
    **dict.fromkeys(
        ("copy", "neg", "abs", "sqrt", "reciprocal", "add_number", "mul_number", "div_number"), 1
    ),
    **dict.fromkeys(("add", "mul", "div", "maximum", "minimum", "lerp"), 2),
    **dict.fromkeys(("addcmul", "addcdiv"), 3),
    **dict.fromkeys(("relu", "tanh", "exp", "log", "erf", "sin", "cos"), 1),
    **dict.fromkeys(("tanh_backward", "sigmoid_backward", "threshold_backward"), 2),
}
_CODE = {name: code for code, name in enumerate(STEPS)}
_WITH_NUMBER = ("add", "mul", "div")  # steps that also accept a scalar as the second operand
_SCALED = ("add", "addcmul", "addcdiv")  # operators scaled by `alpha` or `value`
_NEEDS_NUMBER = ("lerp", "threshold_backward")
_WITH_SCALAR = ("add_number", "mul_number", "div_number", *_SCALED, *_NEEDS_NUMBER)
TEMPORARIES = 8  # kBlockTemporaries


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
def is_exact(name: str, dtype: torch.dtype) -> bool:
    """Whether a step gives torch's exact results here; both are run and compared once per process."""
    if _ext.load() != "loaded":
        _ext.warn_if_missing()
        return False
    try:
        return all(
            _have_equal_bits(_run_step(name, operands, number), _expected(name, operands, number))
            for operands in (_test_values(dtype),)
            for number in ((0.1, 0.7, 0.0) if name in _WITH_SCALAR else (0.0,))
        )
    except RuntimeError:  # a step that needs MKL, and a torch without it
        return False


@functools.cache
def _test_values(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Return three operands whose length is no multiple of a vector's.

    They hold random values of many magnitudes, signed zeros, infinities, NaN, denormal values, and values
    whose products overflow or underflow.
    """
    generator = torch.Generator().manual_seed(0)
    mantissas, exponents = torch.randn(2, 3, 1003, dtype=dtype, device="cpu", generator=generator)
    values = mantissas * (3 * exponents).exp()
    limits = torch.finfo(dtype)
    small = limits.smallest_normal
    special = torch.tensor(
        [0.0, -0.0, math.inf, -math.inf, math.nan, limits.max, small, -small / 8, small**0.5 / 3, -88.0, 1.0],
        dtype=dtype,
        device="cpu",
    )
    chosen = torch.randint(len(special), values.shape, device="cpu", generator=generator)
    is_special = torch.rand(values.shape, device="cpu", generator=generator) < 0.25
    x, y, z = torch.where(is_special, special[chosen], values)
    return x, y, z


def _run_step(name: str, operands: tuple[torch.Tensor, ...], number: float) -> torch.Tensor:
    result = torch.empty_like(operands[0])
    code = [_CODE[name], 0, *padded([1, 2, 3][: STEPS[name]]), 0]
    torch.ops.oneflow.blocks_([result], list(operands), 1, code, [number], [])
    return result


def _expected(name: str, operands: tuple[torch.Tensor, ...], number: float) -> torch.Tensor:
    """Return what torch's operator computes."""
    scaled = {"add": "alpha", "addcmul": "value", "addcdiv": "value"}
    if name == "copy":
        return operands[0]
    operator = getattr(torch.ops.aten, name.removesuffix("_number"))
    numbers = (number,) if name.endswith("_number") or name in _NEEDS_NUMBER else ()
    options = {scaled[name]: number} if name in scaled else {}
    expected: torch.Tensor = operator(*operands[: STEPS[name]], *numbers, **options)
    return expected


def _have_equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are equal, with the signs of zeros. NaN equals NaN, whatever its bits."""
    bits = torch.int32 if a.dtype == torch.float32 else torch.int64
    return bool(((a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())).all())


def padded(operands: list[int]) -> list[int]:
    return [*operands, *[-1] * (3 - len(operands))]


def block_code(steps: Sequence[Step], tensors: Sequence[Node]) -> tuple[int, ...] | None:
    """Return the code of blocks_ for steps on tensors: six integers per step (see csrc/ops.cpp), with scalars
    numbered like the steps.

    What is not among the tensors is a temporary. Return None if there are too many temporaries.
    """
    positions = {t: i for i, t in enumerate(tensors)}
    free = [len(positions) + i for i in range(TEMPORARIES)]
    operands = ((t, i) for i, step in enumerate(steps) for t in (step.to, *step.tensors))
    last = {t: i for t, i in operands if t not in positions}
    code: list[int] = []
    for i, step in enumerate(steps):
        read_positions = padded([positions[t] for t in step.tensors])
        if step.to not in positions:
            if not free:
                return None
            positions[step.to] = free.pop(0)
        code += [_CODE[step.name], positions[step.to], *read_positions, i]
        free[:0] = [positions[t] for t in last if last[t] == i]
    return tuple(code)


def update_nodes(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op == "call_function" and n.meta.get("phase") == "update")


def operator_of(node: Node) -> Operator | None:
    """Return the operator of a node that may be a step, else None."""
    return _operator(node.target) if isinstance(node.target, torch._ops.OpOverload) else None


@functools.cache
def _operator(target: torch._ops.OpOverload) -> Operator | None:
    schema = target._schema
    if not schema.name.startswith("aten::") or schema.overload_name not in (
        "",
        "Tensor",
        "Scalar",
        "List",
        "ScalarList",
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
    if step is None or not is_exact(step, to.meta["tensor"].dtype) or len(tensors) != STEPS[step]:
        return None
    if is_subtraction:
        if isinstance(scalar, Node):
            return None
        scalar = -float(scalar) if step == "add_number" else -scalar  # -0 - 0 is -0
    return Step(node, index, step, to, tensors, scalar)


def _with_scalar(
    name: str, tensors: int, scalars: tuple[Scalar, ...], factor: Scalar
) -> tuple[str | None, Any]:
    """Return the step of an operator on this many tensors, and the step's scalar. The step is None if no step
    takes these scalars.
    """
    if not scalars:
        return None if name in _NEEDS_NUMBER else name, factor if name in _SCALED else 0
    if len(scalars) == 1 and name in _WITH_NUMBER and tensors == 1 and factor == 1:
        return f"{name}_number", scalars[0]
    if len(scalars) == 1 and name in (*_NEEDS_NUMBER, "addcmul", "addcdiv"):
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
