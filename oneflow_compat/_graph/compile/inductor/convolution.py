"""Convolutions of float32 images and signals on the CPU through oneDNN's block matrix kernels, for inductor.

oneDNN's own convolutions, which torch calls, are as fast unless they need little relayout. Kernels of one
pixel, kernels that do not overlap (patches) and results of a few pixels take half to a tenth of their time
here (measured).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import Graph

from ...program.program import node_argument

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx import Node
    from torch.fx.node import Argument as FxArgument


aten = torch.ops.aten
WORTH = 200_000  # floating point operations of a product; a smaller product takes as long as the call
_FEW_PIXELS = 64
Window = list[list[int]]  # stride, padding and dilation of a convolution
Form: TypeAlias = "type[_Planes] | type[_Lines] | type[_Pixels]"


def convolve_in_blocks(graph: Graph, channels_last: bool) -> None:
    """Replace convolutions and their gradients in the graph, in place.

    `channels_last`: whether inductor is free to use that layout for the images.
    """
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and not node.kwargs:
            _replace_convolution(graph, node, channels_last)
        elif node.target is aten.convolution_backward.default and not node.kwargs:
            _replace_gradients(graph, node, channels_last)


def _replace_convolution(graph: Graph, node: Node, channels_last: bool) -> None:
    x, weight, (bias, *options) = node_argument(node, 0), node_argument(node, 1), node.args[2:]
    form, window = _form_and_window(node, x, weight, options, channels_last)
    if form is None:
        return
    with graph.inserting_before(node):
        result = form.result(graph, x, weight, *window)
        if bias is not None:
            shape = [-1] + [1] * (x.meta["val"].ndim - 2)
            result = _new(graph, aten.add.Tensor, result, _new(graph, aten.reshape.default, bias, shape))
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _replace_gradients(graph: Graph, node: Node, channels_last: bool) -> None:
    """Replace the gradients that the form computes; the node keeps the others."""
    dy, x, weight = (node_argument(node, i) for i in range(3))
    form, window = _form_and_window(dy, x, weight, node.args[4:10], channels_last)
    if form is None or any(n.target is not operator.getitem for n in node.users):
        return
    gradients: dict[Any, Node] = {n.args[1]: n for n in node.users}  # {index: node}
    with graph.inserting_before(node):
        replacements = {i: form.gradient(graph, i, dy, x, weight, *window) for i in gradients}
    for i, replacement in replacements.items():
        if replacement is not None:
            gradients[i].replace_all_uses_with(replacement)
            graph.erase_node(gradients[i])
    if node.users:
        node.args = (*node.args[:-1], [i in replacements and replacements[i] is None for i in range(3)])
    else:
        graph.erase_node(node)


def _form_and_window(
    result: Node, x: Node, weight: Node, options: Sequence[Any], channels_last: bool
) -> tuple[Form | None, Window]:
    """Return the form that replaces a convolution, or None, and its stride, padding and dilation."""
    image, kernel = x.meta["val"], weight.meta["val"]
    stride, padding, dilation, transposed, _, groups = options
    if transposed or groups != 1 or not _is_supported(image, kernel):
        return None, []
    window = [_each(sizes, image.ndim - 2) for sizes in (stride, padding, dilation)]
    return _form(result.meta["val"], image, kernel, window[0], window[1], window[2], channels_last), window


def _is_supported(x: torch.Tensor, weight: torch.Tensor) -> bool:
    has_static_sizes = all(type(size) is int for size in (*x.shape, *weight.shape))
    return has_static_sizes and x.ndim in (3, 4) and x.device.type == "cpu" and x.dtype is torch.float32


def _each(sizes: Sequence[int], dims: int) -> list[int]:
    """Return one value per dimension. convolution() also takes one value for all of them: padding="valid"
    gives a padding of [0].
    """
    return [*sizes] * (dims if len(sizes) == 1 else 1)


def _form(
    result: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    channels_last: bool,
) -> Form | None:
    """Return the form that is faster than oneDNN's own convolution, or None."""
    pixels = result.numel() // result.shape[1] if result.numel() else 0
    if 2 * pixels * weight.numel() < WORTH:
        return None
    kernel = list(weight.shape[2:])
    is_pointwise, is_disjoint = set(kernel) == {1}, _is_disjoint(kernel, stride, padding, dilation)
    if not channels_last and x.is_contiguous() and weight.is_contiguous():
        is_faster = is_pointwise or is_disjoint or pixels <= _FEW_PIXELS
        return (_Planes if x.ndim == 4 else _Lines) if is_faster else None
    if x.ndim == 4 and is_pointwise and is_disjoint and x.is_contiguous(memory_format=torch.channels_last):
        return _Pixels
    return None


def _is_disjoint(kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> bool:
    """Return True if the windows of a convolution do not overlap."""
    return kernel == list(stride) and not any(padding) and set(dilation) == {1}


class _Planes:
    """Images channel by channel: oneflow::convolution."""

    @staticmethod
    def result(
        graph: Graph, x: Node, weight: Node, stride: list[int], padding: list[int], dilation: list[int]
    ) -> Node:
        return _new(graph, torch.ops.oneflow.convolution.default, x, weight, *stride, *padding, *dilation)

    @staticmethod
    def gradient(
        graph: Graph,
        i: int,
        dy: Node,
        x: Node,
        weight: Node,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
    ) -> Node | None:
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        ops, window = torch.ops.oneflow, (*padding, *dilation)
        if i == 1:
            sizes = weight.meta["val"].shape[2:]
            return _new(graph, ops.convolution_backward_weight.default, dy, x, *sizes, *stride, *window)
        if list(stride) == [1, 1]:
            sizes = x.meta["val"].shape[2:]
            return _new(graph, ops.convolution_backward_input.default, dy, weight, *sizes, *window)
        return None


class _Lines:
    """Signals (N, C, L): images of one row."""

    @staticmethod
    def result(graph: Graph, x: Node, weight: Node, *window: list[int]) -> Node:
        rows = _row(graph, x), _row(graph, weight)
        return _signal(graph, _Planes.result(graph, *rows, *_window_of_rows(*window)))

    @staticmethod
    def gradient(graph: Graph, i: int, dy: Node, x: Node, weight: Node, *window: list[int]) -> Node | None:
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2])
        rows = _row(graph, dy), _row(graph, x), _row(graph, weight)
        gradient = _Planes.gradient(graph, i, *rows, *_window_of_rows(*window))
        return gradient and _signal(graph, gradient)


def _row(graph: Graph, signal: Node) -> Node:
    return _new(graph, aten.unsqueeze.default, signal, 2)


def _signal(graph: Graph, row: Node) -> Node:
    return _new(graph, aten.squeeze.dim, row, 2)


def _window_of_rows(stride: list[int], padding: list[int], dilation: list[int]) -> Window:
    return [[1, *stride], [0, *padding], [1, *dilation]]


class _Pixels:
    """Images pixel by pixel and a kernel of one pixel: matrix products."""

    @staticmethod
    def result(graph: Graph, x: Node, weight: Node, *_: list[int]) -> Node:
        rows = _matrix(graph, x)
        transposed = _new(graph, aten.permute.default, _square(graph, weight), [1, 0])
        return _image(graph, _new(graph, aten.mm.default, rows, transposed), x)

    @staticmethod
    def gradient(graph: Graph, i: int, dy: Node, x: Node, weight: Node, *_: list[int]) -> Node | None:
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        rows = _matrix(graph, dy)
        if i == 0:
            return _image(graph, _new(graph, aten.mm.default, rows, _square(graph, weight)), x)
        columns = _new(graph, aten.permute.default, rows, [1, 0])
        product = _new(graph, aten.mm.default, columns, _matrix(graph, x))
        return _new(graph, aten.reshape.default, product, list(weight.meta["val"].shape))


def _square(graph: Graph, weight: Node) -> Node:
    return _new(graph, aten.reshape.default, weight, list(weight.meta["val"].shape[:2]))


def _matrix(graph: Graph, images: Node) -> Node:
    """Return one row per pixel."""
    pixels = _new(graph, aten.permute.default, images, [0, 2, 3, 1])
    return _new(graph, aten.reshape.default, pixels, [-1, images.meta["val"].shape[1]])


def _image(graph: Graph, matrix: Node, like: Node) -> Node:
    n, _, h, w = like.meta["val"].shape
    pixels = _new(graph, aten.reshape.default, matrix, [n, h, w, -1])
    return _new(graph, aten.permute.default, pixels, [0, 3, 1, 2])


def _new(graph: Graph, target: OpOverload, *args: FxArgument) -> Node:
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node
