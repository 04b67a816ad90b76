"""Shared code of the rewrites.

It holds patterns traced from Python functions, and an editor that changes a graph only where values stay
equal.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ...._kernels import _ext
from ...capture.recorder import Recorder
from ..operators import has_new_results
from ..program import is_view, node_argument, written_args
from ..tensor_info import describe
from .cleanup import drop_aliases, drop_dead, has_effect

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx.node import Argument as FxArgument
    from torch.fx.node import Target

    from ..program import Program
    from ..tensor_info import TensorInfo


aten = torch.ops.aten
_SAME: dict[Any, Any] = {
    aten.mul.Scalar: aten.mul.Tensor,
    aten.add.Scalar: aten.add.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
}
_COMMUTE = {aten.mul.Tensor, aten.add.Tensor}
_FULL = {aten.scalar_tensor.default: 0, aten.full.default: 1}
_VIEWS = {aten.view.default, aten._unsafe_view.default}
_UNKNOWN = object()
Match = dict[Node, Node]  # node of a pattern -> node of a program


def base_of(node: Node) -> Node:
    """Return the node whose memory this node uses: itself, or the node it is a view of."""
    while (
        node.op == "call_function"
        and (node.target is aten._unsafe_view.default or is_view(node))
        and not _one_of_several(node)
    ):
        base: Any = node.args[0]
        node = base if isinstance(base, Node) else base[0]
    return node


def _one_of_several(node: Node) -> bool:
    """Whether the node is one result of an operator with several results, each in a fresh buffer."""
    return node.target is operator.getitem and _makes_memory(node_argument(node, 0))


def _makes_memory(node: Node) -> bool:
    """Whether each result of the operator is in a fresh buffer."""
    return (
        has_new_results(node.target)
        and not node.target._schema.is_mutable
        and node.target is not aten._unsafe_view.default
    )


def owns_memory(node: Node) -> bool:
    """Whether this program allocated the memory of the node, for the node alone."""
    return node.op == "call_function" and (_one_of_several(node) or _makes_memory(node))


def users_of_memory(node: Node) -> Iterator[Node]:
    """Yield every node that uses a node or a view of it."""
    for user in node.users:
        yield user
        if user.op == "call_function" and not _one_of_several(user) and not _makes_memory(user):
            yield from users_of_memory(user)


class Editor:
    """A program's graph with the order of its nodes and the positions of memory writes.

    New nodes take the position of old ones.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.graph, self.constants = program, program.graph, program.constants
        self.order: dict[Node, float] = {node: i for i, node in enumerate(self.graph.nodes)}
        self.writes: dict[Node, list[float]] = {}  # node that owns memory -> positions of writes to it
        self.inputs_written: list[float] = []
        for node, i in self.order.items():
            if node.op == "call_function":
                for target in written_args(node):
                    base = base_of(target)
                    self.writes.setdefault(base, []).append(i)
                    if base.op == "placeholder":
                        self.inputs_written.append(i)

    def nodes(self, *targets: Target) -> list[Node]:
        """Return the current nodes with one of these targets."""
        return [n for n in self.graph.nodes if n.op == "call_function" and n.target in targets]

    def constant_between(self, node: Node, begin: float, end: float) -> bool:
        """Whether nothing writes the memory of `node` between two positions.

        Inputs may share memory with each other.
        """
        base = base_of(node)
        writes = self.inputs_written if base.op == "placeholder" else self.writes.get(base, ())
        return not any(begin < i < end for i in writes)

    def untouched(self, node: Node) -> bool:
        return not self.writes.get(base_of(node))

    def number(self, value: FxArgument) -> float | None:
        """Return the Python number that an argument is, also as a 0-d constant; None for anything else."""
        if not isinstance(value, Node):
            return _plain_number(value)
        if not self.untouched(value):
            return None
        if value.op == "get_attr":
            return _real_scalar(self.constants[str(value.target)])
        info = value.meta.get("tensor")
        if value.op != "call_function" or info is None or info.shape != ():
            return None
        if value.target in _FULL:
            return _plain_number(value.args[_FULL[value.target]])
        if value.target in (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default):
            return 0.0
        is_copy = value.target in (aten.clone.default, aten._to_copy.default)
        return self.number(value.args[0]) if is_copy else None

    def insert(
        self,
        before: Node,
        target: Callable[..., Any],
        args: tuple[FxArgument, ...],
        kwargs: dict[str, Any] | None = None,
        info: object = _UNKNOWN,
    ) -> Node:
        """Insert a node in front of `before`, with the metadata of `before`.

        `info` describes the result, for operators that must not run on meta tensors.
        """
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, args, kwargs or {})
        node.meta.update({k: v for k, v in before.meta.items() if k != "tensor"})
        node.meta["tensor"] = described(node) if info is _UNKNOWN else info
        self.order[node] = self.order[before] - 0.5
        return node

    def replace(
        self,
        old: Node,
        target: OpOverload,
        args: tuple[FxArgument, ...],
        kwargs: dict[str, Any] | None = None,
    ) -> Node | None:
        """Compute `old` by another operator.

        If shape, dtype or layout would differ, nothing changes and the result is None.
        """
        try:
            new = self.insert(old, target, args, kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            self.graph.erase_node(old.prev)
            return None
        if not same_layout(new.meta["tensor"], old.meta["tensor"]):
            self.graph.erase_node(new)
            return None
        self.swap(old, new)
        return new

    def replace_by_kernel(
        self, old: Node, name: str, args: tuple[FxArgument, ...], part: int | None = None
    ) -> Node | None:
        """Compute `old` by an operator of oneflow._ext, whose results are contiguous.

        `part` selects a result of an operator with several.
        """
        info = old.meta["tensor"]
        if not kernel_for(info) or not contiguous(info):
            return None
        new = self.insert(
            old, getattr(torch.ops.oneflow, name).default, args, info=None if part is not None else info
        )
        if part is not None:
            new = self.insert(old, operator.getitem, (new, part), info=info)
        self.swap(old, new)
        return new

    def swap(self, old: Node, new: Node) -> None:
        """Hand the users of `old` to `new`, and drop nodes that only `old` needed."""
        old.replace_all_uses_with(new)
        self.erase(old)

    def erase(self, node: Node) -> None:
        """Drop an unused node, and then those of its arguments that are unused and write nothing."""
        todo = [node]
        while todo:
            n = todo.pop()
            if n.users or n._erased or n.op == "placeholder" or n.op == "call_function" and has_effect(n):
                continue
            todo.extend(n.all_input_nodes)
            self.graph.erase_node(n)


def kernel_for(info: TensorInfo) -> bool:
    """Whether oneflow._ext has a kernel for tensors of this dtype and device."""
    device = info.device.type
    if info.dtype not in _ext._FLOATS and not (device == "cuda" and info.dtype is torch.float16):
        return False
    return device in ("cpu", "cuda") and _ext.status() == "loaded" and _ext.has_kernels(device)


def same_layout(a: TensorInfo | None, b: TensorInfo | None) -> bool:
    """Whether shape, dtype, device and strides are equal, except for strides of dimensions of length 1."""
    if a is None or b is None or a[:2] != b[:2] or a.stride is None or b.stride is None:
        return False
    return all(m == n for size, m, n in zip(a.shape, a.stride, b.stride) if size != 1)


def contiguous(info: TensorInfo) -> bool:
    """Whether a tensor with this metadata is contiguous."""
    expected = 1
    sizes: Any = info.shape  # sizes without symbols
    for size, stride in zip(reversed(sizes), reversed(info.stride or ())):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return info.stride is not None


def described(node: Node) -> TensorInfo | tuple[TensorInfo, ...]:
    """Return the metadata of a node's result, from running it on meta tensors.

    Return a tuple of metadata for an operator with several results.
    """
    devices = []

    def meta(n: Node) -> torch.Tensor:
        info = n.meta["tensor"]
        devices.append(info.device)
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device="meta")

    def info_of(out: torch.Tensor) -> TensorInfo:
        info = describe(out)
        device: Any = devices[0] if devices else node.kwargs.get("device", info.device)
        return info._replace(device=device)

    target: Any = node.target
    out = target(*torch.fx.node.map_arg(node.args, meta), **torch.fx.node.map_arg(node.kwargs, meta))
    return info_of(out) if isinstance(out, torch.Tensor) else tuple(info_of(o) for o in out or ())


def only_user(node: Node) -> Node | None:
    """Return the single node that uses this one, or None if there are several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def through_views(node: Node) -> Node:
    """Return the node below a chain of view() calls with one user each."""
    while node.op == "call_function" and node.target in _VIEWS and len(node.users) == 1:
        node = node_argument(node, 0)
    return node


class Pattern:
    """The graph of a Python function of tensors, or of its gradient, to match in programs.

    `inputs` are its placeholders by name. Numbers match within 1e-6, products and sums in either order.
    """

    def __init__(self, output: Node, inputs: dict[str, Node], gradient: Node | None) -> None:
        self.output, self.inputs, self.gradient = output, inputs, gradient
        self.backward: set[Node] = set()  # nodes that depend on the gradient
        for node in output.graph.nodes:
            if gradient is not None and (
                node is gradient or any(a in self.backward for a in node.all_input_nodes)
            ):
                self.backward.add(node)

    def find(self, editor: Editor) -> Iterator[tuple[Node, dict[str, Node]]]:
        """Yield (output node, {name: node}) for each match whose output is safe to replace."""
        for node in editor.nodes(
            *(t for t in (self.output.target, *(s for s, t in _SAME.items() if t is self.output.target)))
        ):
            match = next(self._match(self.output, node, {}, editor), None)
            if match is not None and self._safe(match, node, editor):
                yield node, {name: match[holder] for name, holder in self.inputs.items()}

    def _safe(self, match: Match, output: Node, editor: Editor) -> bool:
        inner = {n for p, n in match.items() if p.op == "call_function"}
        gone = (
            inner
            if self.gradient is None
            else {n for p, n in match.items() if p in self.backward and p.op == "call_function"}
        )
        if any(user not in inner for n in gone if n is not output for user in n.users) or not all(
            editor.untouched(n) for n in inner
        ):
            return False
        begin, end = min(editor.order[n] for n in inner), editor.order[output]
        return all(editor.constant_between(match[p], begin, end) for p in self.inputs.values())

    def _match(self, pattern: Node, node: FxArgument, match: Match, editor: Editor) -> Iterator[Match]:
        if pattern in match:
            if match[pattern] is node:
                yield match
            return
        if not isinstance(node, Node) or node.meta.get("tensor") is None:
            return
        if pattern.op == "placeholder":
            yield {**match, pattern: node}
            return
        target = _SAME.get(pattern.target, pattern.target)
        if (
            node.op != "call_function"
            or _SAME.get(node.target, node.target) is not target
            or dict(node.kwargs) != dict(pattern.kwargs)
        ):
            return
        orders = [node.args]
        if target in _COMMUTE and len(node.args) == 2:
            orders.append(node.args[::-1])
        for args in orders:
            yield from self._match_args(pattern.args, args, {**match, pattern: node}, editor)

    def _match_args(
        self, patterns: tuple[FxArgument, ...], args: tuple[FxArgument, ...], match: Match, editor: Editor
    ) -> Iterator[Match]:
        if len(patterns) != len(args):
            return
        if not patterns:
            yield match
            return
        head, rest = patterns[0], patterns[1:]
        if isinstance(head, Node):
            for extended in self._match(head, args[0], match, editor):
                yield from self._match_args(rest, args[1:], extended, editor)
        elif _equal(head, args[0], editor):
            yield from self._match_args(rest, args[1:], match, editor)


def _equal(expected: FxArgument, argument: FxArgument, editor: Editor) -> bool:
    if type(expected) is int or type(expected) is float:
        value = editor.number(argument)
        return value is not None and math.isclose(expected, value, rel_tol=1e-6, abs_tol=0.0)
    return expected == argument


_traced: dict[Callable[..., torch.Tensor], tuple[Pattern, Pattern]] = {}


def traced(function: Callable[..., torch.Tensor], inputs: int = 1) -> tuple[Pattern, Pattern]:
    """Return the patterns of function(*tensors) and of its gradient by the first tensor, traced once."""
    if function not in _traced:
        recorder = Recorder()
        names = [*"xyzw"[:inputs], "dy"]
        with torch.inference_mode(False), torch.enable_grad():
            tensors = [recorder.symbolic(torch.ones(2, 3), name) for name in names]
            tensors[0].requires_grad_()
            with recorder:
                y = function(*tensors[:-1])
                (dx,) = torch.autograd.grad(y, tensors[0], tensors[-1])
        graph = recorder.finish([recorder._convert(t)[0] for t in (y, dx)])
        captured: Any = SimpleNamespace(graph=graph)
        drop_dead(drop_aliases(captured))
        forward, backward = next(n for n in graph.nodes if n.op == "output").args[0]
        holders = dict(zip(names, (n for n in graph.nodes if n.op == "placeholder")))
        gradient = holders.pop("dy")
        _traced[function] = (
            Pattern(forward, holders, None),
            Pattern(backward, {**holders, "dy": gradient}, gradient),
        )
    return _traced[function]


def _plain_number(value: FxArgument) -> float | None:
    return value if type(value) is int or type(value) is float else None


def _real_scalar(constant: torch.Tensor) -> float | None:
    is_real = constant.dtype is not torch.bool and not constant.is_complex()
    return constant.item() if constant.ndim == 0 and is_real else None
