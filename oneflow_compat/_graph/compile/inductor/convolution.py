"""Convolutions of float32 images and signals on the CPU through oneDNN's block matrix kernels, for inductor.

oneDNN's own convolutions, which torch calls, are as fast unless they need little relayout. Kernels of one
pixel, kernels that do not overlap (patches) and results of a few pixels take half to a tenth of their time
here (measured).
"""

from __future__ import annotations

import operator

import torch

aten = torch.ops.aten
WORTH = 200_000  # floating point operations of a product; a smaller product takes as long as the call
_FEW_PIXELS = 64


def convolve_in_blocks(graph, channels_last):
    """Replace convolutions and their gradients in the graph, in place.

    `channels_last`: whether inductor is free to use that layout for the images.
    """
    for node in list(graph.nodes):
        if node.kwargs or node.target not in (aten.convolution.default, aten.convolution_backward.default):
            continue
        backward = node.target is aten.convolution_backward.default
        dy, x, weight, _, *window = node.args[:10] if backward else (node, *node.args)
        if not _plain(x.meta["val"], weight.meta["val"], *window):
            continue
        window = [_each(sizes, x.meta["val"].ndim - 2) for sizes in window[:3]]
        form = _way(dy.meta["val"], x.meta["val"], weight.meta["val"], *window, channels_last)
        if form is None or backward and any(n.target is not operator.getitem for n in node.users):
            continue
        with graph.inserting_before(node):
            if backward:
                parts = {n.args[1]: n for n in node.users}
                replacements = {
                    i: new
                    for i in parts
                    if (new := form.gradient(graph, i, dy, x, weight, *window)) is not None
                }
            else:
                parts, replacements = {0: node}, {0: form.result(graph, x, weight, *window)}
                if node.args[2] is not None:
                    replacements[0] = _new(
                        graph,
                        aten.add.Tensor,
                        replacements[0],
                        _new(
                            graph, aten.reshape.default, node.args[2], [-1] + [1] * (x.meta["val"].ndim - 2)
                        ),
                    )
        for i, new in replacements.items():
            parts[i].replace_all_uses_with(new)
            graph.erase_node(parts[i])
        if backward and node.users:
            node.args = (*node.args[:-1], [i in parts and i not in replacements for i in range(3)])
        elif backward:
            graph.erase_node(node)


def _plain(x, weight, stride, padding, dilation, transposed, more, groups):
    known = all(type(size) is int for size in (*x.shape, *weight.shape))
    return (
        known
        and x.ndim in (3, 4)
        and x.device.type == "cpu"
        and x.dtype is torch.float32
        and not transposed
        and groups == 1
    )


def _each(sizes, dims):
    """Return one value per dimension. convolution() also takes one value for all of them: padding="valid"
    gives a padding of [0].
    """
    return [*sizes] * (dims if len(sizes) == 1 else 1)


def _way(result, x, weight, stride, padding, dilation, channels_last):
    """Return the replacement that is faster than oneDNN's own convolution, or None."""
    pixels, kernel = result.numel() // result.shape[1] if result.numel() else 0, list(weight.shape[2:])
    if 2 * pixels * weight.numel() < WORTH:
        return None
    is_pointwise, apart = (
        set(kernel) == {1},
        kernel == list(stride) and not any(padding) and set(dilation) == {1},
    )  # kernels that do not overlap
    if not channels_last and x.is_contiguous() and weight.is_contiguous():
        return (
            (_Planes if x.ndim == 4 else _Lines) if is_pointwise or apart or pixels <= _FEW_PIXELS else None
        )
    return (
        _Pixels
        if apart and is_pointwise and x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
        else None
    )


class _Planes:
    """Images channel by channel: oneflow::convolution."""

    @staticmethod
    def result(graph, x, weight, stride, padding, dilation):
        return _new(graph, torch.ops.oneflow.convolution.default, x, weight, *stride, *padding, *dilation)

    @staticmethod
    def gradient(graph, i, dy, x, weight, stride, padding, dilation):
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        if i == 1:
            return _new(
                graph,
                torch.ops.oneflow.convolution_backward_weight.default,
                dy,
                x,
                *weight.meta["val"].shape[2:],
                *stride,
                *padding,
                *dilation,
            )
        if list(stride) == [1, 1]:
            return _new(
                graph,
                torch.ops.oneflow.convolution_backward_input.default,
                dy,
                weight,
                *x.meta["val"].shape[2:],
                *padding,
                *dilation,
            )


class _Lines:
    """Signals (N, C, L): images of one row."""

    @staticmethod
    def result(graph, x, weight, *window):
        return _Lines._signal(
            graph,
            _Planes.result(
                graph, _Lines._row(graph, x), _Lines._row(graph, weight), *_Lines._of_rows(*window)
            ),
        )

    @staticmethod
    def gradient(graph, i, dy, x, weight, *window):
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2])
        made = _Planes.gradient(
            graph, i, *(_Lines._row(graph, t) for t in (dy, x, weight)), *_Lines._of_rows(*window)
        )
        return made and _Lines._signal(graph, made)

    @staticmethod
    def _row(graph, signal):
        return _new(graph, aten.unsqueeze.default, signal, 2)

    @staticmethod
    def _signal(graph, row):
        return _new(graph, aten.squeeze.dim, row, 2)

    @staticmethod
    def _of_rows(stride, padding, dilation):
        return [1, *stride], [0, *padding], [1, *dilation]


class _Pixels:
    """Images pixel by pixel and a kernel of one pixel: matrix products."""

    @staticmethod
    def result(graph, x, weight, *_):
        return _Pixels._image(
            graph,
            _new(
                graph,
                aten.mm.default,
                _Pixels._matrix(graph, x),
                _new(graph, aten.permute.default, _Pixels._square(graph, weight), [1, 0]),
            ),
            x,
        )

    @staticmethod
    def gradient(graph, i, dy, x, weight, *_):
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        rows = _Pixels._matrix(graph, dy)
        if i == 0:
            return _Pixels._image(
                graph, _new(graph, aten.mm.default, rows, _Pixels._square(graph, weight)), x
            )
        product = _new(
            graph, aten.mm.default, _new(graph, aten.permute.default, rows, [1, 0]), _Pixels._matrix(graph, x)
        )
        return _new(graph, aten.reshape.default, product, list(weight.meta["val"].shape))

    @staticmethod
    def _square(graph, weight):
        return _new(graph, aten.reshape.default, weight, list(weight.meta["val"].shape[:2]))

    @staticmethod
    def _matrix(graph, images):
        return _new(
            graph,
            aten.reshape.default,
            _new(graph, aten.permute.default, images, [0, 2, 3, 1]),
            [-1, images.meta["val"].shape[1]],
        )

    @staticmethod
    def _image(graph, matrix, like):
        n, _, h, w = like.meta["val"].shape
        return _new(
            graph,
            aten.permute.default,
            _new(graph, aten.reshape.default, matrix, [n, h, w, -1]),
            [0, 3, 1, 2],
        )


def _new(graph, target, *args):
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node
