"""What is added to a matrix product, for inductor: rewritten after inductor's own passes, which join the two
into addmm.

- A bias, on the CPU: added where the product is read. addmm copies it into every row before it multiplies,
  through two more operators. Measured: 0.82 to 0.98 of the time of steps and inference of MLPs, LSTM, GPT-2
  and BERT, level for large batches of the LSTM and the wide MLP.
- The gradient of an embedding whose weight is also the last layer's (tied): its rows are added into the
  product. By itself it is a table of zeros with a few rows filled in, as large as the weight, and addmm
  copies that too.
- Products of float32 go to oneDNN's kernels for blocks on processors with AVX-512 that are not Intel's: MKL,
  which torch calls, has no AVX-512 for those and takes twice the time (measured on an AMD EPYC). So do some
  convolutions (convolution.py).
"""

from __future__ import annotations

import functools
import math
import platform

import torch

from .... import _env
from ...._kernels import _ext
from .convolution import WORTH, convolve_in_blocks

aten = torch.ops.aten


@functools.cache
def product_pass(blocks, channels_last):
    """Return the pass in inductor's form, created on demand because importing inductor takes seconds.

    `blocks`: the result of blocks_are_faster(); `channels_last`: whether inductor may use that layout for
    images.
    """
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    from . import convolution, upstream_fixes

    class SumsApart(CustomGraphPass):
        def __call__(self, graph):
            rows_into_product(graph)
            part_biases(graph)
            if blocks:
                convolve_in_blocks(graph, channels_last)
                multiply_in_blocks(graph)

        def uuid(self):
            return get_hash_for_files((__file__, convolution.__file__, upstream_fixes.__file__)) + bytes(
                [blocks, channels_last]
            )  # part of the key of inductor's cache

    return SumsApart()


def part_biases(graph):
    """Rewrite addmm(bias, x, w) with a vector `bias` as mm(x, w) + bias, in place.

    Half precision stays, because oneDNN adds its bias while it multiplies.
    """
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


_WORTH_EACH = 50_000  # of one matrix of a batch
_LEAST = 4  # rows and columns of the result; MKL reads a weight for few of them as fast as memory gives it


@functools.cache
def blocks_are_faster() -> bool:
    """Return True if oneflow::mm and the block convolutions are faster than MKL's on this processor.

    The processor decides, not a measurement, so that a program computes the same bits in each process.
    ONEFLOW_GRAPH_BLOCKS overrides it, for different machines that must compute the same bits.
    """
    said = _env.get("ONEFLOW_GRAPH_BLOCKS")
    mkl_is_slow = (
        torch.backends.mkl.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and "GenuineIntel" not in _processor()
    )
    if _ext.status() != "loaded" or not (_env.is_set("ONEFLOW_GRAPH_BLOCKS") if said else mkl_is_slow):
        return False
    a = torch.ones(4, 4, dtype=torch.float32, device="cpu")
    try:
        torch.ops.oneflow.mm(a, a)
    except RuntimeError:  # this torch version or processor has no such kernel
        return False
    return True


def _processor():
    """Return the vendor of an x86 processor: vendor_id of /proc/cpuinfo, else Python's description."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line for line in file if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()


def multiply_in_blocks(graph):
    """Replace mm and bmm of float32 on the CPU by oneflow::mm and bmm, in place."""
    ours = {aten.mm.default: torch.ops.oneflow.mm.default, aten.bmm.default: torch.ops.oneflow.bmm.default}
    for node in graph.nodes:
        if node.target in ours and not node.kwargs:
            a, b = (n.meta["val"] for n in node.args)
            *batch, m, k, n = sizes = (*a.shape, b.shape[-1])
            if (
                a.device.type == "cpu"
                and a.dtype is torch.float32
                and all(type(size) is int for size in sizes)
            ):
                each = 2 * m * k * n
                if each >= _WORTH_EACH and math.prod(batch) * each >= WORTH and min(m, n) >= _LEAST:
                    node.target = ours[node.target]


def rows_into_product(graph):
    """Rewrite addmm(e, a, b), add(e, x) and add(x, e), where `e` is the gradient of an embedding, in place.

    The rows of the gradient are added into mm(a, b) or into x.
    """
    for node in [
        n for n in graph.nodes if n.target in (aten.addmm.default, aten.add.Tensor) and not n.kwargs
    ]:
        table, other = next(
            ((a, b) for a, b in (node.args[:2], node.args[1::-1]) if _rows_in_zeros(a)), (None, None)
        )
        if table is None or node.target is aten.addmm.default and other is not node.args[1]:
            continue
        value = node.meta["val"]
        if (
            node.target is aten.add.Tensor
            and not (isinstance(other, torch.fx.Node) and _same(other.meta["val"], value))
            or not _same(table.meta["val"], value)
        ):
            continue
        zeros, mask, indices, rows = table.args
        with graph.inserting_before(node):
            if node.target is aten.addmm.default:
                other = graph.call_function(aten.mm.default, node.args[1:])
                other.meta.update(node.meta, val=value.clone())  # a fresh buffer, because it is written
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
    """Return a new node whose result has the metadata of the node `like`."""
    node = graph.call_function(target, args)
    node.meta["val"] = like.meta["val"].clone()
    return node


def _number(graph, number, like):
    node = graph.call_function(aten.full.default, ([], number), {"dtype": like.dtype, "device": like.device})
    node.meta["val"] = like.new_empty(())
    return node


def _within(graph, index, size):
    """Clamp the index to the rows of the table.

    The index changes only where the mask drops the row (a padding index of -1 of a table without rows, for
    example).
    """
    low, high = (_number(graph, n, index.meta["val"]) for n in (-size, size - 1))
    return _call(
        graph, aten.maximum.default, index, _call(graph, aten.minimum.default, index, index, high), low
    )


def _rows_in_zeros(node):
    """Return True if the node adds rows to a table of zeros and has exactly one reader."""
    if (
        not isinstance(node, torch.fx.Node)
        or node.target is not aten._unsafe_masked_index_put_accumulate.default
        or len(node.users) != 1
    ):
        return False
    zeros = node.args[0]
    return zeros.target is aten.full.default and zeros.args[1] == 0


def _same(a, b):
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype is b.dtype and a.device == b.device
