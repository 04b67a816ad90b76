"""Split a Program into the region for a compiler (forward and backward) and the rest (the update), which
runs as captured.

The update is a few fused in-place operators over all parameters, or Python arithmetic around them. A compiler
would functionalize it, copy every parameter, and take longer to compile for no gain.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch.fx import Node

from ...guards.dimensions import DimensionGuards
from ...program import node_editing
from ...program.locations import Argument
from ...program.operators import facts_of
from ...program.program import Program, is_view, roots, written_args
from ...program.random_functions import samples
from ...program.writes import first_of_update, written_inputs

if TYPE_CHECKING:
    from torch.fx import Graph

    from ...program.program import CompiledFunction
    from ...program.tensor_info import TensorInfo


_SIZE = torch.ops.aten.sym_size.int
_VIEWS_OR_COPIES = {
    getattr(torch.ops.aten, name)
    for name in (
        "reshape", "reshape_as", "flatten", "ravel", "contiguous",
        "to", "type_as", "resolve_conj", "resolve_neg",
    )
}  # fmt: skip


class Region(torch.nn.Module):
    """The graph of a region, and the constants that it reads as buffers.

    A GraphModule would generate Python code, which a region from the program cache does not need.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        super().__init__()
        self.graph = graph
        self.guards: DimensionGuards | None = None  # guards of the inputs, if shapes have symbols


class CompiledRegion(Protocol):
    """A function over the inputs of a region, as `compile_region` and the program cache return it."""

    layouts: list[TensorInfo]  # layouts of the results
    guards: DimensionGuards | None  # guards of the sizes, if the shapes of the region have symbols

    def __call__(self, *values: Any) -> Sequence[Any]: ...


class Split(NamedTuple):
    """The region of a program for a compiler, and what remains."""

    region: Region
    inputs: list[Node]  # placeholders of the program that the region takes
    outputs: list[Node]  # nodes of the program that the region computes
    late: set[Node]  # nodes of the rest


def split(program: Program) -> Split:
    """Split a program into the compiled region and the rest."""
    graph = program.graph
    late = first_of_update(graph)
    late |= _scalars_of_update(graph, late)
    early = [n for n in graph.nodes if n.op in ("call_function", "get_attr") and n not in late]
    views = _returned_views_of_inputs(early)
    early = _without_unread(early, views)
    used = {u for n in early for u in n.all_input_nodes} | arguments_with_symbols(program)
    inputs = [n for n in graph.nodes if n.op == "placeholder" and n in used]
    late |= views
    sizes, computed = _sizes_for_the_rest(program, late), set(early)
    outputs = [n for n in early if n not in sizes | views and any(u not in computed for u in n.users)]
    region = _region_with(early, inputs, outputs, program.constants)
    region.guards = guards_of_region(program, inputs)
    return Split(region, inputs, outputs, late | sizes)


def _returned_views_of_inputs(early: list[Node]) -> set[Node]:
    """Return the views of inputs that the rest or the results use, and the views between. The rest computes
    them, so they share memory with the input. A region that writes the input would return a copy of it.
    """
    changed = _with_other_metadata(early)
    computed, views = set(early), set()
    for node in early:
        if all(user in computed for user in node.users):
            continue
        *chain, base = roots([node])
        if base.op == "placeholder" and changed.isdisjoint([base, *chain]) and not any(map(_may_copy, chain)):
            views.update(chain)
    return views


def _with_other_metadata(nodes: list[Node]) -> set[Node]:
    """Return the tensors whose shape or strides an operator changes, and those that share their memory."""
    changed: set[Node] = set()
    for node in nodes:
        argument = node.args[0] if facts_of(node.target).changes_metadata else None
        while isinstance(argument, Node) and argument not in changed:
            changed.add(argument)
            shares = argument.op == "call_function" and (is_view(argument) or written_args(argument))
            argument = argument.args[0] if shares else None
    return changed


def _may_copy(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _VIEWS_OR_COPIES


def _without_unread(early: list[Node], views: set[Node]) -> list[Node]:
    """Return the nodes without the views that no other node among them reads."""
    kept = set(early)
    for node in reversed(early):
        if node in views and not any(user in kept for user in node.users):
            kept.discard(node)
    return [n for n in early if n in kept]


def takes_numbers(program: Program) -> bool:
    """Whether forward or backward computes with a Python number that is an input, as a learning rate is."""
    graph = program.graph
    scalars = [n for n in graph.find_nodes(op="placeholder") if n.meta.get("tensor") is None]
    if not any(user.op == "call_function" for n in scalars for user in n.users):
        return False
    late = first_of_update(graph)
    late |= _scalars_of_update(graph, late)
    return any(user.op == "call_function" and user not in late for n in scalars for user in n.users)


def _scalars_of_update(graph: Graph, late: set[Node]) -> set[Node]:
    """Return the constants, and the scalars computed from lr, that only the update reads."""
    scalars: set[Node] = set()
    for node in reversed(graph.nodes):
        is_scalar = node.op == "get_attr" or node.op == "call_function" and _computes_scalar(node)
        if (
            is_scalar
            and node not in late
            and node.users
            and all(u in late or u in scalars for u in node.users)
        ):
            scalars.add(node)
    return scalars


def _region_with(
    nodes: list[Node], inputs: list[Node], outputs: list[Node], constants: dict[str, torch.Tensor]
) -> Region:
    graph, copies = torch.fx.Graph(), {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    region = Region(graph)
    for node in nodes:
        copies[node] = node_editing.copied(graph, node, copies)
        if node.op == "get_attr":
            region.register_buffer(str(node.target), constants[str(node.target)])
    graph.output(tuple(copies[n] for n in outputs))
    return region


def _sizes_for_the_rest(program: Program, late: set[Node]) -> set[Node]:
    """Return the nodes of sizes that the rest or the results need; the rest computes them itself."""
    if program.dimensions is None:
        return set()
    sizes: set[Node] = set()
    for node in reversed(program.graph.nodes):
        if (
            node.op == "call_function"
            and node not in late
            and (_computes_scalar(node) or node.target is _SIZE)
        ):
            if any(user in late or user in sizes or user.op == "output" for user in node.users):
                sizes.add(node)
    return sizes


def host_program(
    program: Program, inputs: list[Node], outputs: list[Node], late: set[Node], function: CompiledFunction
) -> Program:
    """Return a Program that calls `function` for the compiled region and runs the rest as captured.

    Results get the strides of the capture. Inductor writes dense results only, but a tensor that build()
    wrote may have gaps: those of the caller's argument.
    """
    layouts = getattr(function, "layouts", [None] * len(outputs))
    graph = torch.fx.Graph()
    copies = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            copies[node] = graph.node_copy(node)
    call = graph.call_function(function, tuple(copies[n] for n in inputs))
    call.meta["phase"] = "compiled"
    computed = [n for n in program.graph.nodes if n.op == "call_function" and n not in late]
    written = written_inputs(computed)
    call.meta["writes"] = [i for i, n in enumerate(inputs) if n in written]
    call.meta["region"] = computed
    call.meta["samples"] = any(samples(n.target) for n in computed)
    for i, node in enumerate(outputs):
        copies[node] = graph.call_function(operator.getitem, (call, i))
        if layouts[i] is not None and _has_other_gaps(node.meta["tensor"], layouts[i]):
            copies[node] = graph.call_function(_with_strides, (copies[node], node.meta["tensor"].stride))
        copies[node].meta.update(node.meta)
    for node in program.graph.nodes:
        if node in late and node not in copies:
            copies[node] = node_editing.copied(graph, node, copies)
    graph.output(torch.fx.map_arg(program.output_node.args[0], lambda n: copies[n]))
    return program.with_(graph=graph)


def _has_other_gaps(captured: TensorInfo | None, compiled: TensorInfo) -> bool:
    if captured is None or captured.stride is None or 0 in (*captured.shape, *captured.stride):
        return False  # a result of stride 0 shares memory with itself and cannot be written
    sizes: Any = captured.shape
    return any(n > 1 and a != b for n, a, b in zip(sizes, captured.stride, compiled.stride or ()))


def _with_strides(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)


def _computes_scalar(node: Node) -> bool:
    module = getattr(node.target, "__module__", None)
    return node.meta.get("tensor") is None and module in ("_operator", "math")


def guards_of_region(program: Program, inputs: list[Node]) -> DimensionGuards | None:
    """Return the guards of a program by the inputs of its region instead of by arguments."""
    if program.dimensions is None:
        return None
    arguments = {
        slot.location.index: node
        for slot, node in zip(program.slots, program.placeholders)
        if slot.role == "arg"
    }
    positions = {index: inputs.index(node) for index, node in arguments.items() if node in inputs}
    guards = program.dimensions
    return DimensionGuards(
        tuple(replace(d, argument=positions[d.argument]) for d in guards.dimensions),
        {positions[index]: layout for index, layout in guards.layouts.items() if index in positions},
        guards.conditions,
    )


def arguments_with_symbols(program: Program) -> set[Node]:
    """Return the placeholders that a region must take, because its symbols are read off them."""
    symbols = {d.argument for d in program.dimensions.dimensions} if program.dimensions is not None else ()
    return {
        node
        for slot, node in zip(program.slots, program.placeholders)
        if isinstance(slot.location, Argument) and slot.location.index in symbols
    }
