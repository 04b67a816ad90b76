"""What is added to a matrix product, for inductor: rewritten after inductor's own passes, which join the two into addmm.

- A bias, on the CPU: added where the product is read. addmm copies it into every row before it multiplies, through two more
  operators. Measured: 0.82 to 0.98 of the time of steps and inference of MLPs, LSTM, GPT-2 and BERT, level for large batches of
  the LSTM and the wide MLP.
- The gradient of an embedding whose weight is also the last layer's (tied): its rows are added into the product. By itself it is a
  table of zeros with a few rows filled in, as large as the weight, and addmm copies that too.
- Products of float32 go to oneDNN's kernels where those are faster than MKL, which torch calls: on processors with AVX-512 that are
  not Intel's they are twice as fast.
"""
from __future__ import annotations

import functools
import math
import operator
import time

import torch

from ..._ops.custom import _ext

aten = torch.ops.aten


@functools.cache
def product_pass(blocks, channels_last):
    """The pass in inductor's form (importing inductor takes seconds). `blocks`: what blocks_are_faster() says; `channels_last`: whether
    inductor may lay images out so."""
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    from . import scheduling

    class SumsApart(CustomGraphPass):
        def __call__(self, graph):
            rows_into_product(graph)
            part_biases(graph)
            if blocks:
                convolve_in_blocks(graph, channels_last)
                multiply_in_blocks(graph)

        def uuid(self):
            return get_hash_for_files((__file__, scheduling.__file__)) + bytes([blocks, channels_last])  # part of the key of inductor's cache

    return SumsApart()


def part_biases(graph):
    """addmm(bias, x, w) of a vector `bias` as mm(x, w) + bias, in place. Half precision stays: oneDNN adds its bias while it multiplies."""
    for node in [n for n in graph.nodes if n.target is aten.addmm.default and not n.kwargs]:
        bias, x, weight = node.args
        value = bias.meta["val"]
        if value.ndim == 1 and value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64):
            with graph.inserting_before(node):
                product = graph.call_function(aten.mm.default, (x, weight))
                total = graph.call_function(aten.add.Tensor, (product, bias))
            product.meta.update(node.meta)
            total.meta.update(node.meta)
            node.replace_all_uses_with(total)
            graph.erase_node(node)


_WORTH = 200_000  # operations of a product; a smaller one takes as long as the call
_WORTH_EACH = 50_000  # of one matrix of a batch
_LEAST = 4  # rows and columns of the result; MKL reads a weight for few of them as fast as memory gives it


@functools.cache
def blocks_are_faster() -> bool:
    """Does oneflow::mm take at most three quarters of torch's time here? Measured once in a process, in some milliseconds."""
    if _ext.status() != "loaded":
        return False
    a, b = torch.ones(128, 256), torch.ones(256, 256)

    def seconds(product):
        taken = []
        for _ in range(7):
            begin = time.perf_counter()
            product(a, b)
            taken.append(time.perf_counter() - begin)
        return min(taken)

    try:
        return seconds(torch.ops.oneflow.mm.default) < 0.75 * seconds(torch.mm)
    except RuntimeError:  # this torch, or this processor, has no such kernel
        return False


def multiply_in_blocks(graph):
    """mm and bmm of float32 on the CPU by oneflow::mm and bmm, in place."""
    ours = {aten.mm.default: torch.ops.oneflow.mm.default, aten.bmm.default: torch.ops.oneflow.bmm.default}
    for node in graph.nodes:
        if node.target in ours and not node.kwargs:
            a, b = (n.meta["val"] for n in node.args)
            *batch, m, k, n = sizes = (*a.shape, b.shape[-1])
            if a.device.type == "cpu" and a.dtype is torch.float32 and all(type(size) is int for size in sizes):
                each = 2 * m * k * n
                if each >= _WORTH_EACH and math.prod(batch) * each >= _WORTH and min(m, n) >= _LEAST:
                    node.target = ours[node.target]


def convolve_in_blocks(graph, channels_last):
    """Convolutions of float32 images on the CPU, and their gradients, by oneDNN's kernels for blocks where that is faster, in place.

    oneDNN's own convolutions are level where they need not lay out much anew: kernels of one pixel, kernels that do not overlap and
    results of a few pixels take half to a tenth of their time here (measured). Channels last, a kernel of one pixel is a product.
    `channels_last`: inductor is free to lay the images out so.
    """
    for node in list(graph.nodes):
        if node.kwargs or node.target not in (aten.convolution.default, aten.convolution_backward.default):
            continue
        backward = node.target is aten.convolution_backward.default
        dy, x, weight, _, *window = node.args[:10] if backward else (node, *node.args)
        if not _plain_images(x.meta["val"], weight.meta["val"], *window):
            continue
        way = _way(dy.meta["val"], x.meta["val"], weight.meta["val"], *window[:3], channels_last)
        if way is None or backward and any(n.target is not operator.getitem for n in node.users):
            continue
        with graph.inserting_before(node):
            if backward:
                parts = {n.args[1]: n for n in node.users}
                made = {i: new for i in parts if (new := way.gradient(graph, i, dy, x, weight, *window[:3])) is not None}
            else:
                parts, made = {0: node}, {0: way.result(graph, x, weight, *window[:3])}
                if node.args[2] is not None:
                    made[0] = _new(graph, aten.add.Tensor, made[0], _new(graph, aten.reshape.default, node.args[2], [-1, 1, 1]))
        for i, new in made.items():
            parts[i].replace_all_uses_with(new)
            graph.erase_node(parts[i])
        if backward and node.users:
            node.args = (*node.args[:-1], [i in parts and i not in made for i in range(3)])
        elif backward:
            graph.erase_node(node)


_FEW_PIXELS = 64


def _plain_images(x, weight, stride, padding, dilation, transposed, more, groups):
    known = all(type(size) is int for size in (*x.shape, *weight.shape))
    return known and x.ndim == 4 and x.device.type == "cpu" and x.dtype is torch.float32 and not transposed and groups == 1


def _way(result, x, weight, stride, padding, dilation, channels_last):
    """How a convolution is better computed than by oneDNN's own, or None."""
    pixels, kernel = result.shape[0] * result.shape[2] * result.shape[3], list(weight.shape[2:])
    if 2 * pixels * weight.numel() < _WORTH:
        return None
    apart = kernel == list(stride) and list(padding) == [0, 0] and list(dilation) == [1, 1]  # kernels that do not overlap
    if not channels_last and x.is_contiguous() and weight.is_contiguous():
        return _Planes if kernel == [1, 1] or apart or pixels <= _FEW_PIXELS else None
    return _Pixels if apart and kernel == [1, 1] and x.is_contiguous(memory_format=torch.channels_last) else None


class _Planes:
    """Images channel by channel: oneflow::convolution."""

    @staticmethod
    def result(graph, x, weight, *window):
        return _new(graph, torch.ops.oneflow.convolution.default, x, weight, *window)

    @staticmethod
    def gradient(graph, i, dy, x, weight, stride, padding, dilation):
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        if i == 1:
            return _new(graph, torch.ops.oneflow.convolution_backward_weight.default, dy, x, *weight.meta["val"].shape[2:], stride, padding, dilation)
        if list(stride) == [1, 1]:
            return _new(graph, torch.ops.oneflow.convolution_backward_input.default, dy, weight, *x.meta["val"].shape[2:], padding, dilation)


class _Pixels:
    """Images pixel by pixel, and a kernel of one: products of matrices."""

    @staticmethod
    def result(graph, x, weight, *_):
        return _Pixels._image(graph, _new(graph, aten.mm.default, _Pixels._matrix(graph, x), _new(graph, aten.permute.default, _Pixels._square(graph, weight), [1, 0])), x)

    @staticmethod
    def gradient(graph, i, dy, x, weight, *_):
        if i == 2:
            return _new(graph, aten.sum.dim_IntList, dy, [0, 2, 3])
        rows = _Pixels._matrix(graph, dy)
        if i == 0:
            return _Pixels._image(graph, _new(graph, aten.mm.default, rows, _Pixels._square(graph, weight)), x)
        product = _new(graph, aten.mm.default, _new(graph, aten.permute.default, rows, [1, 0]), _Pixels._matrix(graph, x))
        return _new(graph, aten.reshape.default, product, list(weight.meta["val"].shape))

    @staticmethod
    def _square(graph, weight):
        return _new(graph, aten.reshape.default, weight, list(weight.meta["val"].shape[:2]))

    @staticmethod
    def _matrix(graph, images):
        return _new(graph, aten.reshape.default, _new(graph, aten.permute.default, images, [0, 2, 3, 1]), [-1, images.meta["val"].shape[1]])

    @staticmethod
    def _image(graph, matrix, like):
        n, _, h, w = like.meta["val"].shape
        return _new(graph, aten.permute.default, _new(graph, aten.reshape.default, matrix, [n, h, w, -1]), [0, 3, 1, 2])


def _new(graph, target, *args):
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node


def rows_into_product(graph):
    """addmm(e, a, b), add(e, x) or add(x, e) of the gradient `e` of an embedding: its rows put into mm(a, b) or x, in place."""
    for node in [n for n in graph.nodes if n.target in (aten.addmm.default, aten.add.Tensor) and not n.kwargs]:
        table, other = next(((a, b) for a, b in (node.args[:2], node.args[1::-1]) if _rows_in_zeros(a)), (None, None))
        if table is None or node.target is aten.addmm.default and other is not node.args[1]:
            continue
        value = node.meta["val"]
        if node.target is aten.add.Tensor and not (isinstance(other, torch.fx.Node) and _same(other.meta["val"], value)) or not _same(table.meta["val"], value):
            continue
        zeros, mask, indices, rows = table.args
        with graph.inserting_before(node):
            if node.target is aten.addmm.default:
                other = graph.call_function(aten.mm.default, node.args[1:])
                other.meta.update(node.meta, val=value.clone())  # memory of its own, which is written
            kept = _call(graph, aten.where.self, rows, mask, rows, _number(graph, 0.0, value))
            places = [None if i is None else _within(graph, i, size) for size, i in zip(value.shape, indices)]
            total = graph.call_function(aten._unsafe_index_put.default, (other, places, kept, True))
        total.meta.update(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)
        graph.erase_node(table)
        if not zeros.users:
            graph.erase_node(zeros)


def _call(graph, target, like, *args):
    """A new node whose result is like the one of the node `like`."""
    node = graph.call_function(target, args)
    node.meta["val"] = like.meta["val"].clone()
    return node


def _number(graph, number, like):
    node = graph.call_function(aten.full.default, ([], number), {"dtype": like.dtype, "device": like.device})
    node.meta["val"] = like.new_empty(())
    return node


def _within(graph, index, size):
    """The index where it is one, any other where the mask drops the row (a padding index of -1 of a table with no rows, say)."""
    low, high = (_number(graph, n, index.meta["val"]) for n in (-size, size - 1))
    return _call(graph, aten.maximum.default, index, _call(graph, aten.minimum.default, index, index, high), low)


def _rows_in_zeros(node):
    """Is the node rows added into a table of zeros, and read by one other node alone?"""
    if not isinstance(node, torch.fx.Node) or node.target is not aten._unsafe_masked_index_put_accumulate.default or len(node.users) != 1:
        return False
    zeros = node.args[0]
    return zeros.target is aten.full.default and zeros.args[1] == 0


def _same(a, b):
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype is b.dtype and a.device == b.device
