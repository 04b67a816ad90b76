"""Products of float32 matrices on the CPU by oneDNN's kernels, with the bits of ATen's.

    y = addmm(bias, x, w)        ->        y = exact_product(bias, x, w)

ATen calls MKL. oneflow::exact_product (csrc/cpu/exact_matmul.cpp) adds in MKL's order. For each shape, layout
and number of threads it is compared with ATen once in a process, and runs only where its bits are equal and
its time is shorter. On AMD processors with AVX-512, MKL takes about twice the time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, Node

from ..._kernels import _ext
from ..program.node_editing import copied
from ..program.program import Program
from ..program.tensor_info import TensorInfo

_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default)
_LEAST_WORK = 100_000  # floating-point operations; kLeastWork of csrc/cpu/exact_matmul.cpp
_LEAST_SIZE = 2  # rows and columns
_TYPICAL = 64  # a size that differs from call to call
_FULL_PRECISION = ("none", "ieee")


def in_exact_products(program: Program, skipped_passes: Collection[str] = ()) -> Program:
    """Return the program with the products that are faster so, or the program itself if it has none."""
    if "in_exact_products" in skipped_passes:
        return program
    replaced = {node for node in program.graph.nodes if _is_product(node)}
    if not replaced or not _has_kernels():
        return program
    replaced = {node for node in replaced if _is_faster(node)}
    if not replaced:
        return program
    graph, copies = Graph(), dict[Node, Node]()
    for node in program.graph.nodes:
        copy = copies[node] = copied(graph, node, copies)
        if node in replaced:
            copy.target = torch.ops.oneflow.exact_product.default
            copy.args = _operands(copy)
    return program.with_(graph=graph)


def _has_kernels() -> bool:
    """Whether the library is loaded, and torch computes products in float32."""
    if _ext.load() != "loaded":
        _ext.warn_if_missing()
        return False
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # the older and the newer settings of torch contradict each other
        return False
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return precision == "highest" and getattr(matmul, "fp32_precision", "none") in _FULL_PRECISION


def _is_product(node: Node) -> bool:
    """Whether a node multiplies float32 matrices on the CPU, large enough to be compared."""
    if node.target not in _PRODUCTS or node.kwargs:
        return False
    infos = [_info(operand) for operand in node.args]
    if not all(i and i.dtype is torch.float32 and i.device.type == "cpu" and i.stride for i in infos):
        return False
    a, b = infos[-2:]
    *batch, rows, depth, columns = (_size(n) for n in (*a.shape, b.shape[-1]))
    work = 2 * rows * depth * columns * (batch[0] if batch else 1)
    return work >= _LEAST_WORK and min(rows, columns) >= _LEAST_SIZE


def _info(operand: object) -> TensorInfo | None:
    return operand.meta.get("tensor") if isinstance(operand, Node) else None


def _size(size: object) -> int:
    return size if type(size) is int else _TYPICAL


def _operands(node: Node) -> tuple[Any, ...]:
    """Return the arguments of exact_product: (addend or None, a, b)."""
    return node.args if len(node.args) == 3 else (None, *node.args)


def _is_faster(node: Node) -> bool:
    """Whether exact_product takes less time than ATen. With symbolic sizes each call decides."""
    infos = [operand and operand.meta["tensor"] for operand in _operands(node)]
    if not all(type(n) is int for i in infos if i for n in (*i.shape, *i.stride)):
        return True
    examples = (i and torch.empty_strided(i.shape, i.stride, dtype=i.dtype, device="cpu") for i in infos)
    _, is_faster = torch.ops.oneflow.product_blocks(*examples)
    return bool(is_faster)
