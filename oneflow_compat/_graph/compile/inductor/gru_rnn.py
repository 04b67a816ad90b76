"""GRU and RNN layers as one operator of oneflow._ext for forward and one for backward.

The capture records them as such layers (capture/patches/recurrent_layers.py).

The gradients of a layer's weights become one product over all steps. Results differ by rounding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...._kernels import _ext
from ...program.passes.cleanup import has_effect
from ...program.program import is_view, node_argument, roots, written_args
from ...program.recurrent_layer import WHOLE_LAYERS
from ...program.tensor_info import TensorInfo

if TYPE_CHECKING:
    from torch.fx import Graph, Node
    from torch.fx.node import Argument as FxArgument

    from ...program.recurrent_layer import Layer


aten = torch.ops.aten
Marks = dict[tuple[str, int], "Node"]  # (role, step) -> the marked node; see program/recurrent_layer.py
Order = dict["Node", int]
_WHOLE = {op: name for name, op in WHOLE_LAYERS.items()}
_DTYPES = (torch.float32, torch.float64)
_VIEWS = {aten.t.default, aten.view.default, aten.transpose.int, aten._unsafe_view.default}


def merge_steps(graph: torch.fx.Graph) -> None:
    """Merge the steps of layers in place, in a graph whose operators may write. Do nothing without the
    library.
    """
    whole = [n for n in graph.nodes if n.target in _WHOLE and _is_supported(n.args[0].meta["tensor"])]
    layers = _marked(graph)
    if not whole and not layers:
        return
    if _ext.status() != "loaded":
        _ext.warn_if_missing()
        return
    for node in whole:
        node.args, node.target = (_WHOLE[node.target], *node.args), _whole
    if not layers:
        return
    order = {node: i for i, node in enumerate(graph.nodes)}
    written = {
        root for node in graph.nodes if node.op == "call_function" for root in roots(written_args(node))
    }
    recomputed = _recomputed_modules(layers)
    for layer, marks in layers.items():
        if _is_complete(layer, marks, order) and marks["given", 0].meta["module"] not in recomputed:
            _Merger(graph, layer, marks).merge(order, written)
    graph.eliminate_dead_code(has_effect)
    _drop_inner(graph)


def _recomputed_modules(layers: dict[Layer, Marks]) -> set[str]:
    """Return the modules whose backward reads a second, shorter run."""
    nodes = (n for marks in layers.values() for n in marks.values())
    return {n.meta["module"] for n in nodes if n.meta.get("recomputed")}


def _is_supported(info: TensorInfo) -> bool:
    return info.dtype in _DTYPES and info.device.type == "cpu"


def _whole(
    name: str,
    x: torch.Tensor,
    h: torch.Tensor,
    weights: list[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute layers without gradients, recorded as one call, by the kernels."""
    ops, x = torch.ops.oneflow, x.transpose(0, 1) if batch_first else x
    per_layer = len(weights) // len(h)
    last: list[torch.Tensor] = []
    for _ in range(layers):
        out = []
        for reverse in (False, True) if bidirectional else (False,):
            index = len(last)
            of_layer: Any = weights[index * per_layer : (index + 1) * per_layer]
            w_ih, w_hh, b_ih, b_hh = (*of_layer, None, None)[:4]
            projected = torch.nn.functional.linear(x, w_ih, b_ih)
            y = (
                ops.gru(projected, w_hh, b_hh, h[index], reverse)[0]
                if name == "gru"
                else ops.rnn(projected, w_hh, b_hh, h[index], name == "rnn_relu", reverse)
            )
            out.append(y)
            last.append(y[0 if reverse else -1])
        x = torch.cat(out, -1) if bidirectional else out[0]
    return x.transpose(0, 1) if batch_first else x, torch.stack(last)


def _marked(graph: Graph) -> dict[Layer, Marks]:
    """Return {layer: {(role, step): node}}. A layer lacks entries if a mark is on two nodes or two marks met
    on one node.
    """
    marks: dict[Layer, Marks] = {}
    for node in graph.nodes:
        for layer, role, step in node.meta.get("recurrent", ()):
            if role != "inner":
                marks.setdefault(layer, {})[role, step] = node
    return marks


def _is_complete(layer: Layer, marks: Marks, order: Order) -> bool:
    """Return True if all nodes of a layer are marked, and the kernels can replace them."""
    return (
        _has_all_marks(layer, marks)
        and _is_product(marks["product", 0])
        and _gradients_arrive_first(marks, order)
    )


def _has_all_marks(layer: Layer, marks: Marks) -> bool:
    steps = range(layer.steps)
    needed = [("given", 0), ("out", 0), *((role, i) for role in ("product", "state") for i in steps)]
    return layer.marks == len(marks) and all(mark in marks for mark in needed)


def _is_product(node: Node) -> bool:
    """Return True if the node multiplies by a transposed weight, all in one dtype that the kernels take."""
    infos = [n.meta["tensor"] for n in node.args if isinstance(n, torch.fx.Node)]
    return (
        node.target in (aten.addmm.default, aten.mm.default)
        and not node.kwargs
        and node.args[-1].target is aten.t.default
        and all(_is_supported(info) and info.dtype is node.meta["tensor"].dtype for info in infos)
    )


def _gradients_arrive_first(marks: Marks, order: Order) -> bool:
    """Return True if the layer's backward follows the gradients of its results."""
    backward = [order[n] for (role, _), n in marks.items() if role in ("dproduct", "dgiven")]
    return not backward or all(
        order[marks[role, 0]] < min(backward) for role in ("dout", "dlast") if (role, 0) in marks
    )


class _Merger:
    """Replace the marked nodes of one layer by calls of the kernels."""

    def __init__(self, graph: Graph, layer: Layer, marks: Marks) -> None:
        self.graph, self.layer, self.marks = graph, layer, marks
        self.start = marks["product", 0]  # nodes of the forward pass are inserted before it
        arguments: Any = self.start.args
        *bias, self.h0, transposed = arguments
        self.bias, self.weight = bias[0] if bias else None, transposed.args[0]
        self.info = marks["out", 0].meta["tensor"]

    def merge(self, order: Order, written: set[Node]) -> None:
        layer, marks, ops = self.layer, self.marks, torch.ops.oneflow
        out, inputs = marks["out", 0], (marks["given", 0], self.weight, self.bias, self.h0)
        if layer.name == "gru":
            results = self._insert(ops.gru.default, (*inputs, layer.reverse))
            hidden, self.work = (self._insert(operator.getitem, (results, i)) for i in (0, 1))
        else:
            hidden = self._insert(ops.rnn.default, (*inputs, layer.name == "rnn_relu", layer.reverse))
        self.hidden = hidden
        self._backward(order)
        out.replace_all_uses_with(self._insert(aten.clone.default, (hidden,)) if out in written else hidden)
        for i in range(layer.steps):
            self._swap(marks["state", i], functools.partial(self._row, hidden, i, self.start))

    def _backward(self, order: Order) -> None:
        layer, marks, ops = self.layer, self.marks, torch.ops.oneflow
        gradients = [marks[key] for key in marks if key[0] in ("dproduct", "dgiven")]
        if not gradients:
            return
        before = min(gradients, key=order.__getitem__)
        dout, dlast = marks.get(("dout", 0)), marks.get(("dlast", 0))
        if dlast is not None:
            dlast = self._insert(aten.select.int, (dlast, 0, layer.index), before)
        if layer.name == "gru":
            parts = self._insert(
                ops.gru_backward.default,
                (dout, dlast, self.hidden, self.work, self.h0, self.weight, layer.reverse),
                before,
            )
            dgiven, dproduct, dfirst = (self._insert(operator.getitem, (parts, i), before) for i in range(3))
            if ("dfirst", 0) in marks:  # the layer's own use of it comes before
                marks["dfirst", 0].replace_all_uses_with(
                    dfirst, delete_user_cb=lambda user: order.get(user, 0) > order[before]
                )
        else:
            dgiven = dproduct = self._insert(
                ops.rnn_backward.default,
                (dout, dlast, self.hidden, self.weight, layer.name == "rnn_relu", layer.reverse),
                before,
            )
        self._weights(dproduct, before)
        for i in range(layer.steps):
            if ("dproduct", i) in marks:
                self._swap(marks["dproduct", i], functools.partial(self._row, dproduct, i, before))
        if ("dgiven", 0) in marks:
            marks["dgiven", 0].replace_all_uses_with(dgiven)

    def _weights(self, dproduct: Node, before: Node) -> None:
        """Replace the gradients of the weight and the bias by one product and one sum if every step has its
        own and they are added up.
        """
        steps, marks = self.layer.steps, self.marks
        if not all(("dproduct", i) in marks for i in range(steps)):
            return
        gradients = [marks["dproduct", i] for i in range(steps)]
        states = [self.h0, *(marks["state", i] for i in range(steps - 1))]
        products = [_product_with(gradient, state) for gradient, state in zip(gradients, states)]
        sums = [_sum_of_rows(gradient) for gradient in gradients]
        rows, gates = self.info.shape[0] * self.info.shape[1], marks["given", 0].meta["tensor"].shape[2]
        flat = None
        for term_of_step, together in ((products, self._product), (sums, self._sum)):
            terms = [term for term in term_of_step if term is not None]
            additions = _additions(terms) if len(terms) == steps else None
            if additions is None:
                continue
            flat = flat or self._insert(aten.view.default, (dproduct, [rows, gates]), before)
            terms[-1].replace_all_uses_with(together(flat, rows, before))
            for addition, position in additions:
                addition.replace_all_uses_with(node_argument(addition, position))

    def _product(self, flat: Node, rows: int, before: Node) -> Node:
        steps, reverse = self.layer.steps, self.layer.reverse
        most = self._insert(
            aten.slice.Tensor, (self.hidden, 0, *((1, steps) if reverse else (0, steps - 1))), before
        )
        initial = self._insert(aten.unsqueeze.default, (self.h0, 0), before)
        states = self._insert(aten.cat.default, ([most, initial] if reverse else [initial, most],), before)
        states = self._insert(aten.view.default, (states, [rows, self.info.shape[2]]), before)
        return self._insert(aten.mm.default, (self._insert(aten.t.default, (flat,), before), states), before)

    def _sum(self, flat: Node, rows: int, before: Node) -> Node:
        return self._insert(aten.sum.dim_IntList, (flat, [0], True), before)

    def _row(self, tensor: Node, step: int, before: Node) -> Node:
        return self._insert(
            aten.select.int, (tensor, 0, self.layer.steps - 1 - step if self.layer.reverse else step), before
        )

    def _insert(
        self, target: Callable[..., Any], args: tuple[FxArgument, ...], before: Node | None = None
    ) -> Node:
        with self.graph.inserting_before(before or self.start):
            node = self.graph.call_function(target, args)
        node.meta["tensor"] = TensorInfo((), self.info.dtype, self.info.device, None)
        return node

    def _swap(self, old: Node, make: Callable[[], Node]) -> None:
        """Replace `old` for the readers outside the layer."""
        users = [u for u in old.users if not _is_inner(u)]
        if users:
            new = make()
            for user in users:
                user.replace_input_with(old, new)


def _product_with(gradient: Node, state: Node) -> Node | None:
    """Return the only product of the transposed gradient and the state, or None."""
    products = [
        product
        for transposed in gradient.users
        if transposed.target is aten.t.default
        for product in transposed.users
        if product.target is aten.mm.default and product.args == (transposed, state)
    ]
    return products[0] if len(products) == 1 else None


def _sum_of_rows(gradient: Node) -> Node | None:
    """Return the only sum over the rows of the gradient, or None."""
    sums = [u for u in gradient.users if u.target is aten.sum.dim_IntList and list(u.args[1:]) == [[0], True]]
    return sums[0] if len(sums) == 1 else None


def _additions(terms: Sequence[Node]) -> list[tuple[Node, int]] | None:
    """For all terms but the last, return the addition that takes the term, through views, and the position of
    the other term in its arguments. Return None if a term is used otherwise.
    """
    additions = []
    for term in terms[:-1]:
        node = term
        while len(node.users) == 1 and next(iter(node.users)).target in _VIEWS:
            node = next(iter(node.users))
        addition = next(iter(node.users)) if len(node.users) == 1 else None
        if (
            addition is None
            or addition.target is not aten.add.Tensor
            or addition.kwargs
            or len(addition.args) != 2
            or addition.args[0] is addition.args[1]
        ):
            return None
        additions.append((addition, 1 if addition.args[0] is node else 0))
    return additions if len({addition for addition, _ in additions}) == len(additions) else None


def _is_inner(node: Node) -> bool:
    return any(role == "inner" for _, role, _ in node.meta.get("recurrent", ()))


def _drop_inner(graph: Graph) -> None:
    """Erase the inner nodes of layers that nothing reads. Writes among these nodes have no effect outside the
    layer.
    """
    inner = [n for n in graph.nodes if _is_inner(n)]
    live: set[Any] = set()
    for node in graph.nodes:
        if not _is_inner(node) and (node.op != "call_function" or node.users or has_effect(node)):
            _add_with_inputs(live, node)
    groups = _by_memory(inner)
    while writes := _writes_of_live_memory(groups, live):
        for node in writes:
            _add_with_inputs(live, node)
    for node in reversed(inner):
        if node not in live:
            graph.erase_node(node)


def _add_with_inputs(live: set[Node], node: Node) -> None:
    """Add the node, and all that it is computed from, to the live nodes."""
    pending = [node]
    while pending:
        n = pending.pop()
        if n not in live:
            live.add(n)
            pending.extend(n.all_input_nodes)


def _by_memory(inner: list[Node]) -> dict[Node, list[Node]]:
    """Return {node that allocates memory: inner nodes that read or write it}."""
    groups: dict[Any, Any] = {}
    for node in inner:
        base = node
        while _is_inner(base) and (
            base.target in (operator.getitem, aten.unsafe_split.Tensor) or is_view(base) or written_args(base)
        ):
            base = node_argument(base, 0)
        groups.setdefault(base, []).append(node)
    return groups


def _writes_of_live_memory(groups: dict[Node, list[Node]], live: set[Node]) -> list[Node]:
    return [
        node
        for base, members in groups.items()
        if base in live or not live.isdisjoint(members)
        for node in members
        if node not in live and written_args(node)
    ]
