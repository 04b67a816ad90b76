"""Random numbers in a compiled region: ATen's samplers, called in program order, as eager mode calls them.

The settings of a region choose ATen's samplers (`fallback_random`) and keep their order. This file keeps each
sampler apart from equal ones, keeps samplers whose numbers nobody reads, and gives each sampler memory in the
layout of the capture, because ATen fills some tensors in the order of their memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from ...program.program import is_view, written_args
from ...program.random_functions import samples

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ...program.tensor_info import TensorInfo


def samples_into_gaps(graph: Graph) -> bool:
    """Return True if a sampler writes a tensor with gaps in its memory, a column of a matrix for example.

    Without the write, its numbers would go to a dense copy, which ATen fills in another way.
    """
    return any(
        not _is_dense(value)
        for node in graph.nodes
        if node.op == "call_function" and samples(node.target)
        for value in written_args(node)
    )


def _is_dense(node: Node) -> bool:
    """Whether the elements of a tensor lie side by side, in any order of the dimensions."""
    info: TensorInfo | None = node.meta.get("tensor")
    if info is None or info.stride is None:
        return False
    steps: list[Any] = [(step, size) for size, step in zip(info.shape, info.stride) if size != 1]
    if not all(type(step) is int and type(size) is int for step, size in steps):
        return not (node.op == "call_function" and is_view(node))  # symbols: a fresh tensor is dense
    end = 1
    for step, size in sorted(steps):
        if step != end and size != 0:
            return False
        end *= size
    return True


@contextlib.contextmanager
def equal_samplings_apart(graph: Graph) -> Iterator[None]:
    """Let torch's fx_graph_cse keep all samplers. Its own list (torch 2.13) misses randn_like, exponential
    and others, so two samplings of equal arguments became one.
    """
    from torch._functorch import compile_utils

    targets = {n.target.overloadpacket for n in graph.nodes if samples(n.target)}
    with mock.patch.object(compile_utils, "rand_ops", [*compile_utils.rand_ops, *targets]):
        yield


@contextlib.contextmanager
def unread_samplings_kept() -> Iterator[None]:
    """Let inductor's scheduler keep bernoulli_ if nobody reads its numbers, because it advances the
    generator. Inductor (torch 2.13) keeps all other samplers.
    """
    from torch._inductor.ir import InplaceBernoulliFallback

    has = lambda self: True
    with mock.patch.object(InplaceBernoulliFallback, "has_side_effects", has, create=True):
        yield


def random_from(x: torch.Tensor, lower: int, upper: int | None = None) -> Any:
    """Sample integers of a range by a sampler whose name is no keyword of Python. torch.fx cannot print the
    code of a call of `aten.random.from`.
    """
    if upper is None:
        return NotImplemented
    integers = torch.empty_like(x, dtype=torch.int64)
    return torch.ops.aten.random.to(integers, upper - lower).add(lower).to(x.dtype)
