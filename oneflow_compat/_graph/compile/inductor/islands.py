"""Programs with value-dependent sizes: each run of operators on static sizes is compiled separately.

A run consists of adjacent nodes of the program, so the order does not change. A run stays with the captured
operators if it is short, or if memory that it shares with other nodes is written: a compiled region knows
only the tensors it is given.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx

from ...config import Config
from ...program.operators import has_collectives
from ...program.program import CompiledFunction, Program, is_view, roots, written_args
from ...program.random_functions import replays_random_numbers, samples
from ...program.writes import first_of_update
from .. import aten
from ..notices import Announcement
from ..proof import proved
from .compiler import compile_region, subject_of
from .lstm import is_layer
from .out_of_reach import out_of_reach
from .regions import Region

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ...program.tensor_info import Shape, TensorInfo
    from .regions import CompiledRegion


SHORT = 6  # a run with fewer operators (views not counted) is not worth a separate call


def compile(program: Program, config: Config) -> CompiledFunction:
    """Return a function over the slot values."""
    if replays_random_numbers(program.graph) or has_collectives(program.graph):
        return aten.compile(program, config)
    graph = torch.fx.Graph()
    copies = {
        node: graph.node_copy(node)
        for node in (*program.placeholders, *program.graph.find_nodes(op="get_attr"))
    }
    compiled = {run[0]: run for run in _runs(program.graph) if _is_closed(run, program.graph)}
    done = set()
    proofs: list[str] = []
    with Announcement(program.name, sum(map(len, compiled.values()))) as notice:
        for node in program.graph.nodes:
            if node in compiled and _call(graph, copies, compiled[node], config, notice, proofs):
                done.update(compiled[node])
            if node not in done and node.op == "call_function":
                copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(torch.fx.map_arg(program.output_node.args[0], lambda n: copies[n]))
    run: Any = aten.compile(program.with_(graph=graph), config)
    run.proofs = proofs
    return cast(CompiledFunction, run)


def _runs(graph: Graph) -> Iterator[list[Node]]:
    """Return lists of adjacent nodes, before the update, that touch static sizes only."""
    late, run = first_of_update(graph), []
    for node in graph.nodes:
        if node.op != "call_function" or node in late:
            continue
        # one of several results of a node outside the run cannot be an input: only tensors are
        is_apart = node.target is operator.getitem and node.args[0] not in run
        if _is_static(node) and not is_apart:
            run.append(node)
            continue
        yield run
        run = []
    yield run


def _is_static(node: Node) -> bool:
    return (
        not is_layer(node.target)
        and isinstance(node.target, torch._ops.OpOverload | type(operator.getitem))
        and all(map(_has_static_sizes, (node, *node.all_input_nodes)))
    )


def _has_static_sizes(node: Node) -> bool:
    info = node.meta.get("tensor")
    if info is None:  # several results
        results = [u for u in node.users if u.target is operator.getitem]
        return bool(results) and len(results) == len(node.users) and all(map(_has_static_sizes, results))
    return info.stride is not None and not any(type(n) is str for n in (*info.shape, *info.stride))


def _is_closed(run: list[Node], graph: Graph) -> bool:
    """Return True if a run is long enough and nobody else writes the tensors that it writes or returns."""
    if sum(not is_view(n) for n in run) < SHORT:
        return False
    within = set(run)
    inputs = {i for n in run for i in n.all_input_nodes if i not in within}
    for base in _bases_written(run) - within:
        if base.op != "placeholder" or sum(_base(i) is base for i in inputs) > 1:
            return False
    late = first_of_update(graph)  # writes its inputs, which nobody reads afterwards
    others = (n for n in graph.nodes if n not in within and n not in late and n.op == "call_function")
    return _bases_written(others).isdisjoint(map(_base, _outputs(run)))


def _base(node: Node) -> Node:
    return list(roots([node]))[-1]


def _bases_written(nodes: Iterable[Node]) -> set[Node]:
    return {_base(value) for node in nodes for value in written_args(node)}


def _outputs(run: list[Node]) -> list[Node]:
    """Return the values that a run computes for other nodes, except views of its inputs."""
    within = set(run)
    return [n for n in run if _base(n) in within and any(u not in within for u in n.users)]


def _call(
    graph: Graph,
    copies: dict[Node, Node],
    run: list[Node],
    config: Config,
    notice: Announcement,
    proofs: list[str],
) -> bool:
    """Put a call of the compiled run and its outputs into the graph. Return False if inductor has no form for
    it, or returns another layout than the operators do.
    """
    within = set(run)
    inputs = list(dict.fromkeys(i for n in run for i in n.all_input_nodes if i not in within))
    outputs = _outputs(run)
    region = _region(run, inputs, outputs)
    if out_of_reach(region.graph) is not None:
        return False
    infos = [n.meta["tensor"] for n in inputs]
    subject = replace(subject_of(notice.name, region, config), log=proofs)
    compiled = compile_region(region, infos, config.backend_options, notice)
    if any(_layout(r) != _layout(n.meta["tensor"]) for r, n in zip(compiled.layouts, outputs)):
        return False
    function = proved(_with_input_layouts(compiled, [info.stride for info in infos]), subject)
    call = graph.call_function(function, tuple(copies[n] for n in inputs))
    call.meta["writes"] = [i for i, n in enumerate(inputs) if _base(n) in _bases_written(run)]
    call.meta["samples"] = any(samples(n.target) for n in run)
    for i, node in enumerate(outputs):
        copies[node] = graph.call_function(operator.getitem, (call, i))
        copies[node].meta.update(node.meta)
    for node in run:
        if node not in copies and _base(node) not in within:  # a view of an input of the run
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    return True


def _region(run: list[Node], inputs: list[Node], outputs: list[Node]) -> Region:
    graph, copies = torch.fx.Graph(), {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    for node in run:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[n] for n in outputs))
    return Region(graph)


def _with_input_layouts(function: CompiledRegion, strides: list[Shape]) -> CompiledFunction:
    """Copy inputs whose layout differs from the expected one, because the region reads memory by the expected
    layouts.
    """

    def with_stride(value: torch.Tensor, stride: Shape) -> torch.Tensor:
        if value.stride() == stride:
            return value
        steps: Any = stride  # sizes without symbols
        return torch.empty_strided(value.shape, steps, dtype=value.dtype, device=value.device).copy_(value)

    def region(*values: torch.Tensor) -> Sequence[Any]:
        return function(*map(with_stride, values, strides))

    return region


def _layout(info: TensorInfo) -> list[tuple[int, int]]:
    """Return the sizes above 1 with their strides; there are no symbols."""
    sizes: Any = info.shape
    strides: Any = info.stride
    return [(size, step) for size, step in zip(sizes, strides) if size > 1]
