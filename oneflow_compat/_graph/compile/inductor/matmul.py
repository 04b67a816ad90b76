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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch.fx import Graph, Node

from .... import _env
from ...._kernels import _ext
from . import bounds_checks, convolution, in_place_fixes, upstream_fixes
from .convolution import WORTH, convolve_in_blocks

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx.node import Argument as FxArgument

aten = torch.ops.aten


@functools.cache
def product_pass(blocks: bool, channels_last: bool) -> Callable[[Graph], None]:
    """Return the pass in inductor's form, created on demand because importing inductor takes seconds.

    `blocks`: the result of blocks_are_faster(); `channels_last`: whether inductor may use that layout for
    images.
    """
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    class SumsApart(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            rows_into_product(graph)
            part_biases(graph)
            if blocks:
                convolve_in_blocks(graph, channels_last)
                multiply_in_blocks(graph)

        def uuid(self) -> bytes:
            modules = bounds_checks, convolution, in_place_fixes, upstream_fixes
            files = (__file__, *(module.__file__ for module in modules))
            # part of the key of inductor's cache
            return get_hash_for_files(files) + bytes([blocks, channels_last])

    return SumsApart()


def part_biases(graph: Graph) -> None:
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


_WORTH_EACH = 50_000  # size of one matrix of a batch
_TYPICAL = 64  # size of a dimension that differs from call to call
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
    if not (_env.is_set("ONEFLOW_GRAPH_BLOCKS") if said else mkl_is_slow):
        return False
    if _ext.status() != "loaded":
        _ext.warn_if_missing()
        return False
    a = torch.ones(4, 4, dtype=torch.float32, device="cpu")
    try:
        torch.ops.oneflow.mm(a, a)
    except RuntimeError:  # the torch version or the processor has no such kernel
        return False
    return True


def _processor() -> str:
    """Return the vendor of an x86 processor: vendor_id of /proc/cpuinfo, else Python's description."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line for line in file if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()


def multiply_in_blocks(graph: Graph) -> None:
    """Replace mm and bmm of float32 on the CPU by oneflow::mm and bmm, in place."""
    ours = {aten.mm.default: torch.ops.oneflow.mm.default, aten.bmm.default: torch.ops.oneflow.bmm.default}
    for node in graph.nodes:
        if node.target in ours and not node.kwargs and _is_worth_blocks(*(n.meta["val"] for n in node.args)):
            node.target = ours[node.target]


def _is_worth_blocks(a: torch.Tensor, b: torch.Tensor) -> bool:
    *batch, m, k, n = map(_size_or_typical, (*a.shape, b.shape[-1]))
    if a.device.type != "cpu" or a.dtype is not torch.float32:
        return False
    each = 2 * m * k * n
    return bool(each >= _WORTH_EACH and math.prod(batch) * each >= WORTH and min(m, n) >= _LEAST)


def _size_or_typical(size: int | torch.SymInt) -> int:
    """Return the size; of a symbol a typical one, so that the first call does not decide the kernels."""
    return size if type(size) is int else _TYPICAL


def rows_into_product(graph: Graph) -> None:
    """Rewrite addmm(e, a, b), add(e, x) and add(x, e), where `e` is the gradient of an embedding, in place.

    The rows of the gradient are added into mm(a, b) or into x.
    """
    for node in list(graph.nodes):
        if node.target is aten.addmm.default and not node.kwargs:
            table = node.args[0]
            if _adds_rows_to_zeros(table) and _same(table.meta["val"], node.meta["val"]):
                with graph.inserting_before(node):
                    product = graph.call_function(aten.mm.default, node.args[1:])
                    # a fresh buffer, because it is written
                    product.meta.update(node.meta, val=node.meta["val"].clone())
                _replace_with_rows(graph, node, table, product)
        elif node.target is aten.add.Tensor and not node.kwargs:
            table, addend = node.args if _adds_rows_to_zeros(node.args[0]) else node.args[::-1]
            if (
                _adds_rows_to_zeros(table)
                and addend is not table
                and all(
                    isinstance(n, Node) and _same(n.meta["val"], node.meta["val"]) for n in (table, addend)
                )
            ):
                _replace_with_rows(graph, node, table, addend)


def _replace_with_rows(graph: Graph, node: Node, table: Node, base: Node) -> None:
    """Replace the node, the sum of `base` and the table, by `base` with the rows of the table added."""
    arguments: Any = table.args
    zeros, mask, indices, rows = arguments
    value = node.meta["val"]
    with graph.inserting_before(node):
        masked_rows = _call(graph, aten.where.self, rows, mask, rows, _scalar(graph, 0.0, value))
        clamped = [None if i is None else _clamped(graph, i, size) for size, i in zip(value.shape, indices)]
        total = graph.call_function(aten._unsafe_index_put.default, (base, clamped, masked_rows, True))
    total.meta.update(node.meta)
    node.replace_all_uses_with(total)
    graph.erase_node(node)
    graph.erase_node(table)
    if not zeros.users:
        graph.erase_node(zeros)


def _call(graph: Graph, target: OpOverload, like: Node, *args: FxArgument) -> Node:
    """Return a new node whose result has the metadata of the node `like`."""
    node = graph.call_function(target, args)
    node.meta["val"] = like.meta["val"].clone()
    return node


def _scalar(graph: Graph, value: float, like: torch.Tensor) -> Node:
    node = graph.call_function(aten.full.default, ([], value), {"dtype": like.dtype, "device": like.device})
    node.meta["val"] = like.new_empty(())
    return node


def _clamped(graph: Graph, index: Node, size: int) -> Node:
    """Clamp the index to the rows of the table.

    The index changes only where the mask drops the row (a padding index of -1 of a table without rows, for
    example).
    """
    low, high = (_scalar(graph, n, index.meta["val"]) for n in (-size, size - 1))
    at_most = _call(graph, aten.minimum.default, index, index, high)
    return _call(graph, aten.maximum.default, index, at_most, low)


def _adds_rows_to_zeros(node: FxArgument) -> TypeGuard[Node]:
    """Return True if the node adds rows to a table of zeros and has exactly one reader."""
    if (
        not isinstance(node, Node)
        or node.target is not aten._unsafe_masked_index_put_accumulate.default
        or len(node.users) != 1
    ):
        return False
    zeros = node.args[0]
    return zeros.target is aten.full.default and bool(zeros.args[1] == 0)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype is b.dtype and a.device == b.device
