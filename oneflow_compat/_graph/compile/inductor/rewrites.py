"""Rewrites of the functional graph of a region before inductor (torch 2.13) compiles it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node

from ...program.program import is_view
from ...program.random_functions import samples

if TYPE_CHECKING:
    pass

aten = torch.ops.aten
_HALF = torch.bfloat16, torch.float16
_ROUNDED_SIDES = {
    **dict.fromkeys((aten.eq.Tensor, aten.ne.Tensor), (*_HALF, torch.float32, torch.float64)),
    **dict.fromkeys((aten.le.Tensor, aten.lt.Tensor, aten.ge.Tensor, aten.gt.Tensor), _HALF),
}


def scalars_as_full(gm: GraphModule) -> None:
    """Rewrite 0-d constants as aten.full, because some inductor lowerings (pow) do not take inductor's own
    form of a constant.
    """
    for node in [n for n in gm.graph.nodes if n.op == "get_attr"]:
        value = getattr(gm, node.target)
        if (
            isinstance(value, torch.Tensor)
            and value.ndim == 0
            and not value.is_complex()
            and value.device.type == "cpu"
        ):
            with gm.graph.inserting_before(node), unset_fake_temporarily():
                options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
                full = gm.graph.call_function(aten.full.default, ([], value.item()), options)
            full.meta.update(node.meta)
            node.replace_all_uses_with(full)
            gm.graph.erase_node(node)


def samplers_in_captured_layout(graph: Graph) -> None:
    """Give samplers the memory layouts of the capture, because ATen fills some tensors in the order of their
    memory. Inductor chooses layouts of its own.
    """
    for node in [n for n in graph.nodes if n.op == "call_function" and samples(n.target)]:
        if node.target is aten.bernoulli.p and all(type(n) is int for n in node.args[0].meta["val"].shape):
            _sample_in_place(graph, node)
            continue
        for x in node.all_input_nodes:
            if _has_other_layouts(x):
                with graph.inserting_before(node):
                    node.replace_input_with(x, _in_memory(graph, x, x.meta["val"].stride()))


def _sample_in_place(graph: Graph, node: Node) -> None:
    """Write the numbers of bernoulli into a constant in the layout of the argument, whose values bernoulli
    does not read. Inductor's own form writes them into a copy of the argument, whose layout is not fixed.
    """
    value, *options = node.args[0].meta["val"], *node.args[1:]
    with graph.inserting_before(node):
        kind = {"dtype": value.dtype, "device": value.device}
        fresh = graph.call_function(aten.full.default, ([*value.shape], 0), kind)
        fresh.meta["val"] = torch.empty_like(value)
        fresh = _in_memory(graph, fresh, _strides(value, torch.preserve_format))
        sampled = graph.call_function(aten.bernoulli_.float, (fresh, *options))
    sampled.meta.update(fresh.meta)
    node.replace_all_uses_with(sampled)
    graph.erase_node(node)


def _has_other_layouts(node: Node) -> bool:
    """Whether the tensor of the node could have other strides of the same shape. Symbols stay as they are."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.ndim > 1 and all(type(n) is int for n in value.stride())


def products_with_zero(graph: Graph) -> None:
    """Multiply floating tensors by 0.0 instead of 0. Inductor folds x * 0 to 0 without a look at x, whose NaN
    and infinite elements give NaN.
    """
    for target in (aten.mul.Tensor, aten.mul.Scalar):
        for node in graph.find_nodes(op="call_function", target=target):
            if node.meta["val"].is_floating_point() or node.meta["val"].is_complex():
                node.args = tuple(0.0 if type(a) in (int, bool) and a == 0 else a for a in node.args)


def sums_of_constants(graph: Graph) -> None:
    """Rewrite cumsum of a constant tensor in a form that inductor's own pass does not match. The result of
    that pass has the dtype of the constant, and its rows share memory.
    """
    for node in graph.find_nodes(op="call_function", target=aten.cumsum.default):
        constant = node.args[0]
        if constant.target is aten.full.default:
            with graph.inserting_before(node):
                copy = graph.node_copy(constant)
            copy.kwargs = {k: v for k, v in copy.kwargs.items() if k != "pin_memory"}
            node.replace_input_with(constant, copy)


def read_plainly(graph: Graph) -> None:
    """Materialize the input of a view that regroups dimensions (31 rows of 16 as 16 of 31).

    Inductor composes the index expressions instead. Two such views with slices between them (the relative
    shift of attention scores) took it minutes; torch.compile has the same problem.
    """
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        x = node.args[0]
        if _regroups(x.meta["val"].shape, node.meta["val"].shape):
            with graph.inserting_before(node):
                dense = _in_memory(graph, x, _strides(x.meta["val"], torch.contiguous_format))
            node.replace_input_with(x, dense)


def _strides(value: torch.Tensor, memory_format: torch.memory_format) -> tuple[int, ...]:
    return torch.empty_like(value, memory_format=memory_format, device="meta").stride()


def _regroups(shape: Sequence[int], new_shape: Sequence[int]) -> bool:
    """Return True if the two shapes are not merges of the dimensions of a common third shape."""
    if not all(type(size) is int for size in (*shape, *new_shape)):
        return False  # symbols: their order is not known
    ends = sorted({end for sizes in (shape, new_shape) for end in itertools.accumulate(sizes, operator.mul)})
    return 0 not in ends and any(after % end for end, after in itertools.pairwise(ends))


def permutations_apart(graph: Graph) -> None:
    """Put a node between a random permutation and its readers.

    Inductor's pattern of x[randperm(n)] raises an error if the permutation has other readers, such as the
    gradient (2.13, torch.compile too): an argument of the pattern is not in it.
    """
    for node in graph.find_nodes(op="call_function", target=aten.randperm.default):
        with graph.inserting_after(node):
            permutation = _in_memory(graph, node, node.meta["val"].stride())
        node.replace_all_uses_with(permutation, delete_user_cb=lambda user: user is not permutation)


def compare_results_in_memory(graph: Graph) -> None:
    """Make both sides of a comparison results in memory if rounding decides it: an equality of floating
    values, as in the gradients of the largest elements (x == x.amax()), or a comparison of half types.

    Inductor recomputes x in each loop, in one as scalars and in the other as vectors whose erf is off by a
    rounding, or leaves half types as wide as they were. No element was equal, and the gradient was lost, or
    NaN; torch.compile has the same problem.
    """
    for target, dtypes in _ROUNDED_SIDES.items():
        for node in graph.find_nodes(op="call_function", target=target):
            for side in dict.fromkeys(map(_viewed, node.args)):
                if isinstance(side, Node) and side.op == "call_function" and side.meta["val"].dtype in dtypes:
                    with graph.inserting_after(side):
                        result = _in_memory(graph, side, side.meta["val"].stride())
                    side.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)


def _viewed(node: Any) -> Any:
    """Return the node that a node is a view of; another argument is returned as it is."""
    while (
        isinstance(node, Node)
        and node.op == "call_function"
        and node.target is not operator.getitem
        and is_view(node)
    ):
        node = node.args[0]
    return node


def one_copy(graph: Graph) -> None:
    """Compute a tensor once, in channels last, if a convolution and other nodes read it (its own gradient,
    for example).

    Inductor recomputes it for each reader if that takes few reads, and writes and keeps every copy. Measured
    on the CPU: 0.71 of the time of MobileNetV2's training step with 16 images.
    """
    output = graph.output_node()
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        x = node.args[0]
        if _is_pointwise_image(x) and len(x.users) > 1:
            with graph.inserting_after(x):
                image = _in_memory(graph, x, _strides(x.meta["val"], torch.channels_last))
            x.replace_all_uses_with(image, delete_user_cb=lambda user: user not in (image, output))

    def with_captured_layout(node: Node) -> Node:
        """Return a result in the layout of the capture, which the update and the user expect, of gradients
        too.
        """
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.ndim != 4:
            return node
        with graph.inserting_before(output):
            return _in_memory(graph, node, value.stride())

    output.args = torch.fx.node.map_arg(output.args, with_captured_layout)


def _is_pointwise_image(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and torch.Tag.pointwise in getattr(node.target, "tags", ())
        and value is not None
        and value.ndim == 4
        and value.device.type == "cpu"
    )


def _in_memory(graph: Graph, node: Node, strides: tuple[int, ...]) -> Node:
    """Return the result of the node as a tensor in memory."""
    result = graph.call_function(torch.ops.prims.inductor_force_stride_order.default, (node, strides))
    result.meta.update(node.meta)
    return result
