"""GRU and RNN layers (recurrent.py) as one operator of oneflow._ext for forward and one for backward.

The gradients of a layer's weights become one product over all steps. Results differ by rounding.
"""

from __future__ import annotations

import operator

import torch

from ...._kernels import _ext
from ...program.passes.cleanup import has_effect
from ...program.program import is_view, roots, written_args
from ...program.recurrent_layer import WHOLE_LAYERS
from ...program.tensor_info import TensorInfo

aten = torch.ops.aten
_WHOLE = {op: name for name, op in WHOLE_LAYERS.items()}
_DTYPES = (torch.float32, torch.float64)
_VIEWS = {aten.t.default, aten.view.default, aten.transpose.int, aten._unsafe_view.default}


def merge_steps(graph):
    """Merge the steps of layers in place, in a graph whose operators may write. Do nothing without the
    library.
    """
    if _ext.status() != "loaded":
        return
    for node in graph.nodes:
        if (
            node.target in _WHOLE
            and node.args[0].meta["tensor"].dtype in _DTYPES
            and node.args[0].meta["tensor"].device.type == "cpu"
        ):
            node.args, node.target = (_WHOLE[node.target], *node.args), _whole
    layers = _marked(graph)
    if not layers:
        return
    order = {node: i for i, node in enumerate(graph.nodes)}
    written = {
        root for node in graph.nodes if node.op == "call_function" for root in roots(written_args(node))
    }
    again = {
        n.meta["module"] for marks in layers.values() for n in marks.values() if n.meta.get("recomputed")
    }
    for layer, marks in layers.items():
        if (
            _complete(layer, marks, order) and marks["given", 0].meta["module"] not in again
        ):  # whose backward reads a second, shorter run
            _Merger(graph, layer, marks).merge(order, written)
    graph.eliminate_dead_code(has_effect)
    _drop_inner(graph)


def _whole(name, x, h, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    """Compute layers without gradients, recorded as one call, by the kernels."""
    ops, x = torch.ops.oneflow, x.transpose(0, 1) if batch_first else x
    per_layer, last = len(weights) // len(h), []
    for _ in range(layers):
        out = []
        for reverse in (False, True) if bidirectional else (False,):
            index = len(last)
            w_ih, w_hh, b_ih, b_hh = (*weights[index * per_layer : (index + 1) * per_layer], None, None)[:4]
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


def _marked(graph):
    """Return {layer: {(role, step): node}}. A layer lacks entries if a mark is on two nodes or two marks met
    on one node.
    """
    marks = {}
    for node in graph.nodes:
        for layer, role, step in node.meta.get("recurrent", ()):
            if role != "inner":
                marks.setdefault(layer, {})[role, step] = node
    return marks


def _complete(layer, marks, order):
    if layer.marks != len(marks) or not all((role, 0) in marks for role in ("given", "out")):
        return False
    if not all((role, i) in marks for role in ("product", "state") for i in range(layer.steps)):
        return False
    first = marks["product", 0]
    tensors = [n for n in first.args if isinstance(n, torch.fx.Node)]
    info = first.meta["tensor"]
    if (
        first.target not in (aten.addmm.default, aten.mm.default)
        or first.kwargs
        or first.args[-1].target is not aten.t.default
    ):
        return False
    if info.dtype not in _DTYPES or any(
        n.meta["tensor"].dtype is not info.dtype or n.meta["tensor"].device.type != "cpu" for n in tensors
    ):
        return False
    backward = [order[n] for (role, _), n in marks.items() if role in ("dproduct", "dgiven")]
    return not backward or all(
        order[marks[role, 0]] < min(backward) for role in ("dout", "dlast") if (role, 0) in marks
    )


class _Merger:
    def __init__(self, graph, layer, marks):
        self.graph, self.layer, self.marks = graph, layer, marks
        first = marks["product", 0]
        *bias, self.h0, turned = first.args
        self.bias, self.weight = bias[0] if bias else None, turned.args[0]
        self.info = marks["out", 0].meta["tensor"]
        self.after = first  # what is made for the forward pass stands in front of it

    def merge(self, order, written):
        layer, marks, ops = self.layer, self.marks, torch.ops.oneflow
        out, given = marks["out", 0], marks["given", 0]
        if layer.kind == "gru":
            both = self._insert(ops.gru.default, (given, self.weight, self.bias, self.h0, layer.reverse))
            hidden, self.work = (self._insert(operator.getitem, (both, i)) for i in (0, 1))
        else:
            hidden = self._insert(
                ops.rnn.default,
                (given, self.weight, self.bias, self.h0, layer.kind == "rnn_relu", layer.reverse),
            )
        self.hidden = hidden
        self._backward(order)
        out.replace_all_uses_with(self._insert(aten.clone.default, (hidden,)) if out in written else hidden)
        for i in range(layer.steps):
            self._swap(marks["state", i], lambda i=i: self._row(hidden, i, self.after))

    def _backward(self, order):
        layer, marks, ops = self.layer, self.marks, torch.ops.oneflow
        made = [marks[key] for key in marks if key[0] in ("dproduct", "dgiven")]
        if not made:
            return
        before = min(made, key=order.get)
        dout, dlast = marks.get(("dout", 0)), marks.get(("dlast", 0))
        if dlast is not None:
            dlast = self._insert(aten.select.int, (dlast, 0, layer.at), before)
        if layer.kind == "gru":
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
                (dout, dlast, self.hidden, self.weight, layer.kind == "rnn_relu", layer.reverse),
                before,
            )
        self._weights(dproduct, before)
        for i in range(layer.steps):
            if ("dproduct", i) in marks:
                self._swap(marks["dproduct", i], lambda i=i: self._row(dproduct, i, before))
        if ("dgiven", 0) in marks:
            marks["dgiven", 0].replace_all_uses_with(dgiven)

    def _weights(self, dproduct, before):
        """Replace the gradients of the weight and the bias by one product and one sum if every step has its
        own and they are added up.
        """
        steps, marks = self.layer.steps, self.marks
        if not all(("dproduct", i) in marks for i in range(steps)):
            return
        states = [self.h0] + [marks["state", i] for i in range(steps - 1)]
        products, sums = [], []
        for i in range(steps):
            users = list(marks["dproduct", i].users)
            turned = [
                t
                for u in users
                if u.target is aten.t.default
                for t in u.users
                if t.target is aten.mm.default and t.args == (u, states[i])
            ]
            products += turned[:1] if len(turned) == 1 else []
            summed = [
                u for u in users if u.target is aten.sum.dim_IntList and list(u.args[1:]) == [[0], True]
            ]
            sums += summed[:1] if len(summed) == 1 else []
        rows, gates = self.info.shape[0] * self.info.shape[1], marks["given", 0].meta["tensor"].shape[2]
        flat = None
        for terms, together in ((products, self._product), (sums, self._sum)):
            additions = _additions(terms) if len(terms) == steps else None
            if additions is None:
                continue
            flat = flat or self._insert(aten.view.default, (dproduct, [rows, gates]), before)
            terms[-1].replace_all_uses_with(together(flat, rows, before))
            for addition, other in additions:
                addition.replace_all_uses_with(other())

    def _product(self, flat, rows, before):
        steps, reverse = self.layer.steps, self.layer.reverse
        most = self._insert(
            aten.slice.Tensor, (self.hidden, 0, *((1, steps) if reverse else (0, steps - 1))), before
        )
        first = self._insert(aten.unsqueeze.default, (self.h0, 0), before)
        states = self._insert(aten.cat.default, ([most, first] if reverse else [first, most],), before)
        states = self._insert(aten.view.default, (states, [rows, self.info.shape[2]]), before)
        return self._insert(aten.mm.default, (self._insert(aten.t.default, (flat,), before), states), before)

    def _sum(self, flat, rows, before):
        return self._insert(aten.sum.dim_IntList, (flat, [0], True), before)

    def _row(self, tensor, step, before):
        return self._insert(
            aten.select.int, (tensor, 0, self.layer.steps - 1 - step if self.layer.reverse else step), before
        )

    def _insert(self, target, args, before=None):
        with self.graph.inserting_before(before or self.after):
            node = self.graph.call_function(target, args)
        node.meta["tensor"] = TensorInfo((), self.info.dtype, self.info.device, None)
        return node

    def _swap(self, old, make):
        """Replace `old` for the readers outside the layer."""
        users = [
            u for u in old.users if not any(role == "inner" for _, role, _ in u.meta.get("recurrent", ()))
        ]
        if users:
            new = make()
            for user in users:
                user.replace_input_with(old, new)


def _additions(terms):
    """For all terms but the last, return the addition that takes the term, through views, and the other term
    it adds. Return None if a term is used otherwise.
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
        place = 1 if addition.args[0] is node else 0
        additions.append((addition, lambda addition=addition, place=place: addition.args[place]))
    return additions if len({addition for addition, _ in additions}) == len(additions) else None


def _drop_inner(graph):
    """Erase the inner nodes of layers that nothing reads. Writes among these nodes have no effect outside the
    layer.
    """
    inner = {n for n in graph.nodes if any(role == "inner" for _, role, _ in n.meta.get("recurrent", ()))}
    live, groups = set(), {}

    def keep(node):
        pending = [node]
        while pending:
            n = pending.pop()
            if n not in live:
                live.add(n)
                pending.extend(n.all_input_nodes)

    def memory(node):
        while node in inner and (
            node.target in (operator.getitem, aten.unsafe_split.Tensor) or is_view(node) or written_args(node)
        ):
            node = node.args[0]
        return node

    for node in graph.nodes:
        if node not in inner and (node.op != "call_function" or node.users or has_effect(node)):
            keep(node)
        elif node in inner:
            groups.setdefault(memory(node), []).append(node)
    changed = True
    while changed:
        changed = False
        for base, members in groups.items():
            if base in live or any(n in live for n in members):
                for n in members:
                    if n not in live and written_args(n):
                        keep(n)
                        changed = True
    for node in reversed(list(graph.nodes)):
        if node in inner and node not in live:
            graph.erase_node(node)
