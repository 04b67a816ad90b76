"""The captured operators of a region as the reference of a compiled one: run as captured, in float64, and on
inputs that differ by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.fx.node import map_aggregate, map_arg

from ...program.codegen import compile_program
from ...program.program import is_view, roots, written_args
from ...program.random_functions import samples
from ..copies import mapped

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ...program.program import CompiledFunction

_SEED = 20  # seed of the perturbed inputs
_ULPS = 2  # largest perturbation of an input, in units in the last place


@dataclass(frozen=True)
class _Code:
    """What becomes a function (see codegen.PrintableProgram)."""

    name: str
    graph: Graph
    constants: dict[str, torch.Tensor]


class Reference:
    """The captured operators of a region. `written` are the positions of inputs that the region writes."""

    def __init__(self, graph: Graph, constants: dict[str, torch.Tensor]) -> None:
        """The graph is copied, because compilers rewrite the graph that they are given."""
        copies: dict[Node, Node] = {}
        self.graph = torch.fx.Graph()
        self.graph.output(self.graph.graph_copy(graph, copies))
        for node, copy in copies.items():
            copy.meta = dict(node.meta)
        self.constants = constants
        inputs = self.graph.find_nodes(op="placeholder")
        self.written = tuple(i for i, node in enumerate(inputs) if node in _written(self.graph))
        results: Any = self.graph.output_node().args[0]
        self.results: tuple[Node, ...] = tuple(results)
        self.samples = any(samples(n.target) for n in self.graph.nodes)
        self._functions: dict[tuple[int, ...], CompiledFunction] = {}
        self._roundings: dict[Node, float] = {}

    def function(self, results: Iterable[int] | None = None) -> CompiledFunction:
        """Return the function over the inputs that computes all results, or those of these positions."""
        chosen = tuple(range(len(self.results)) if results is None else results)
        if chosen not in self._functions:
            graph = self.graph if len(chosen) == len(self.results) else self._with_results(chosen)
            self._functions[chosen] = compile_program(_Code("region", graph, self.constants), "region")
        return self._functions[chosen]

    def in_float64(self, results: Sequence[int], inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        """Return the results, and then the inputs after the run, computed in float64."""
        module = torch.nn.Module()
        for name, value in self.constants.items():
            module.register_buffer(name, value)
        wide = mapped(inputs, _widened)
        run = _InFloat64(module, graph=self._with_results(results)).run(*wide)
        return [*run, *wide]

    def on_perturbed(
        self, results: Sequence[int], inputs: Sequence[Any], eps: float, trial: int
    ) -> Sequence[torch.Tensor]:
        """Return the results, and then the inputs after the run, of inputs that differ by rounding.

        `eps` is the spacing of numbers near 1.
        """
        generator = torch.Generator().manual_seed(_SEED + trial)
        perturbed = mapped(inputs, lambda v: _perturbed(v, eps, generator))
        return [*self.function(results)(*perturbed), *perturbed]

    def rounding_of_result(self, position: int) -> float:
        """Return the largest spacing of numbers near 1 among the floating dtypes that a result is made of."""
        return self._coarsest(self.results[position])

    def rounding_of_input(self, position: int) -> float:
        """Return the same for the value that an input has after the run."""
        return self._coarsest(self.graph.find_nodes(op="placeholder")[position])

    def _coarsest(self, node: Node) -> float:
        if node not in self._roundings:
            infos = (n.meta.get("tensor") for n in self._made_of(node))
            dtypes = {info.dtype for info in infos if info is not None and info.dtype.is_floating_point}
            self._roundings[node] = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
        return self._roundings[node]

    def _made_of(self, result: Node) -> set[Node]:
        """Return the nodes that the value of a node at the end of the run depends on."""
        needed = {result, *roots([result])}
        for node in reversed(self.graph.nodes):
            writes = node.op == "call_function" and not needed.isdisjoint(roots(written_args(node)))
            if node.op != "output" and (writes or node in needed):
                needed |= {node, *node.all_input_nodes, *roots(node.all_input_nodes)}
        return needed

    def _with_results(self, positions: Sequence[int]) -> Graph:
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        for node in self.graph.nodes:
            if node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = dict(node.meta)
        graph.output(tuple(copies[self.results[i]] for i in positions))
        graph.eliminate_dead_code()  # keeps what writes and samples
        return graph


def _written(graph: Graph) -> set[Node]:
    return {
        base
        for node in graph.nodes
        if node.op == "call_function"
        for value in written_args(node)
        for base in roots([value])
    }


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _perturbed(value: torch.Tensor, eps: float, generator: torch.Generator) -> torch.Tensor:
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    expanded = real.shape
    for dim, step in enumerate(real.stride()):
        if step == 0:  # several elements in one place
            real = real.narrow(dim, 0, min(real.shape[dim], 1))
    steps = torch.randint(-_ULPS, _ULPS + 1, real.shape, generator=generator, dtype=torch.int8)
    changed = (real.double() * (1 + steps.to(real.device) * eps)).to(real.dtype)
    changed = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=real.device).copy_(
        changed
    )
    changed = changed.expand(expanded)
    return torch.view_as_complex(changed) if value.is_complex() else changed


class _InFloat64(torch.fx.Interpreter):
    """Run captured operators on float64 values.

    An operator that has no kernel for float64, or whose meaning depends on the dtype (a sampler, a view of
    the bits), runs in the captured dtypes, and its results are widened.
    """

    def run_node(self, node: Node) -> Any:
        if node.op == "get_attr":
            return map_aggregate(super().run_node(node), _wide_copy)
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return super().run_node(node)
        if not samples(node.target) and not _reads_bits(node):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            try:
                result = node.target(*map_aggregate(args, _wide_dtype), **map_aggregate(kwargs, _wide_dtype))
                return map_aggregate(result, _wide) if not is_view(node) else result
            except RuntimeError:  # kernels refuse a dtype before they write
                pass
        return self._in_captured_dtypes(node)

    def _in_captured_dtypes(self, node: Node) -> Any:
        narrow: dict[int, torch.Tensor] = {}

        def captured(argument: Node) -> Any:
            value, info = self.env[argument], argument.meta.get("tensor")
            if not isinstance(value, torch.Tensor) or info is None or value.dtype == info.dtype:
                return value
            narrow[id(value)] = narrow.get(id(value), value.to(info.dtype))
            return narrow[id(value)]

        args, kwargs = map_arg(node.args, captured), map_arg(node.kwargs, captured)
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        originals = {id(narrow[id(v)]): v for v in self.env.values() if id(v) in narrow}
        for written in written_args(node):
            value = self.env[written]
            if id(value) in narrow:
                value.copy_(narrow[id(value)])
        return map_aggregate(result, lambda r: originals.get(id(r), _wide(r)))


def _reads_bits(node: Node) -> bool:
    return node.target is torch.ops.aten.view.dtype


def _wide(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and (
        value.is_floating_point() and value.dtype != torch.float64 or value.dtype == torch.complex64
    )
    return _widened(value) if is_narrow else value


def _wide_copy(value: Any) -> Any:
    return _widened(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _wide_dtype(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return torch.complex128 if isinstance(value, torch.dtype) and value.is_complex else value
