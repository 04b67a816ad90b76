"""Rewrites of the functional graph of a region before inductor (torch 2.13) compiles it."""

from __future__ import annotations

import itertools
import operator

import torch

from ...program.program import is_view

aten = torch.ops.aten
_LARGEST = {aten.amax.default, aten.amin.default, aten.max.default, aten.min.default}


def numbers_as_full(gm):
    """Rewrite 0-d constants as aten.full, because some inductor lowerings (pow) do not take inductor's own
    form of a constant.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    for node in [n for n in gm.graph.nodes if n.op == "get_attr"]:
        value = getattr(gm, node.target)
        if (
            isinstance(value, torch.Tensor)
            and value.ndim == 0
            and not value.is_complex()
            and value.device.type == "cpu"
        ):
            with gm.graph.inserting_before(node), unset_fake_temporarily():
                made = gm.graph.call_function(
                    aten.full.default, ([], value.item()), {"dtype": value.dtype, "device": value.device}
                )
            made.meta.update(node.meta)
            node.replace_all_uses_with(made)
            gm.graph.erase_node(node)


def sums_of_constants(graph):
    """Rewrite cumsum of a constant tensor in a form that inductor's own pass does not match. The result of
    that pass has the dtype of the constant, and its rows share memory.
    """
    for node in [
        n for n in graph.nodes if n.target is aten.cumsum.default and n.args[0].target is aten.full.default
    ]:
        with graph.inserting_before(node):
            made = graph.node_copy(node.args[0])
        made.kwargs = {k: v for k, v in made.kwargs.items() if k != "pin_memory"}
        node.replace_input_with(node.args[0], made)


def read_plainly(graph):
    """Materialize the input of a view that regroups dimensions (31 rows of 16 as 16 of 31).

    Inductor composes the index expressions instead. Two such views with slices between them (the relative
    shift of attention scores) took it minutes; torch.compile has the same problem.
    """
    for node in [n for n in graph.nodes if n.target is aten.view.default]:
        x = node.args[0].meta["val"]
        if _regroups(x.shape, node.meta["val"].shape):
            with graph.inserting_before(node):
                made = _in_memory(
                    graph,
                    node.args[0],
                    torch.empty_like(x, memory_format=torch.contiguous_format, device="meta").stride(),
                )
            node.replace_input_with(node.args[0], made)


def _regroups(first, second):
    """Return True if the two shapes are not merges of the dimensions of a common third shape."""
    if not all(type(size) is int for size in (*first, *second)):
        return False  # symbols: their order is not known
    ends = sorted({end for shape in (first, second) for end in itertools.accumulate(shape, operator.mul)})
    return 0 not in ends and any(after % end for end, after in itertools.pairwise(ends))


def compare_one_result(graph):
    """Make both sides of x == x.amax() read one computed result, in the gradients of largest and smallest
    elements.

    Inductor recomputes x in each loop, in one as scalars and in the other as vectors whose erf is off by a
    rounding. No element was equal and the gradient was lost; torch.compile has the same problem.
    """
    for node in [n for n in graph.nodes if n.target is aten.eq.Tensor]:
        sides = [_viewed(side) for side in node.args]
        for x, largest in (sides, sides[::-1]):
            if largest.target in _LARGEST and x is _viewed(largest.args[0]) and x.op == "call_function":
                with graph.inserting_after(x):
                    made = _in_memory(graph, x, x.meta["val"].stride())
                x.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


def _viewed(node):
    while (
        isinstance(node, torch.fx.Node)
        and node.op == "call_function"
        and node.target is not operator.getitem
        and is_view(node)
    ):
        node = node.args[0]
    return node


def one_copy(graph):
    """Compute a tensor once, in channels last, if a convolution and other nodes read it (its own gradient,
    for example).

    Inductor recomputes it for each reader if that takes few reads, and writes and keeps every copy. Measured
    on the CPU: 0.71 of the time of MobileNetV2's training step with 16 images.
    """
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    for node in [n for n in graph.nodes if n.target is aten.convolution.default]:
        x = node.args[0]
        value = x.meta.get("val")
        if (
            x.op == "call_function"
            and len(x.users) > 1
            and value is not None
            and value.ndim == 4
            and value.device.type == "cpu"
            and torch.Tag.pointwise in getattr(x.target, "tags", ())
        ):
            with graph.inserting_after(x):
                made = _in_memory(
                    graph,
                    x,
                    torch.empty_like(value, memory_format=torch.channels_last, device="meta").stride(),
                )
            x.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made and user is not output)

    def as_captured(
        node,
        # the update and the user get results, weights' gradients among them, in the layout they were captured
        # in
    ):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.ndim != 4:
            return node
        with graph.inserting_before(output):
            return _in_memory(graph, node, value.stride())

    output.args = torch.fx.node.map_arg(output.args, as_captured)


def _in_memory(graph, node, strides):
    """Return the result of the node as a tensor in memory."""
    made = graph.call_function(torch.ops.prims.inductor_force_stride_order.default, (node, strides))
    made.meta.update(node.meta)
    return made
