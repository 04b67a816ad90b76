"""Forward and backward compiled by torch's inductor as one graph; the update runs as fused in-place
operators.

The region goes to inductor's inner compiler directly: AOT autograd would trace it again, partition it, and
wrap each call. Python numbers (lr, step counters) stay in the host part, so a changed lr never compiles
again.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx import Graph

from ...._signals import error_of_handler
from ...._upstream.hooks import INDUCTOR
from ...._upstream.missing import require
from ...config import Config
from ...garbage_collection import rare_collection
from ...program.codegen import compile_program
from ...program.operators import has_collectives
from ...program.program import Program
from ...program.tensor_info import TensorInfo, describe
from .. import aten, compiling, program_cache
from ..call_wrapper import runner
from ..notices import Announcement
from ..program_cache.store import Store, default_store
from ..proof import NEVER, Reference, Subject, proved
from ..update_blocks import in_blocks
from .availability import met_another_interface, where_available
from .data_dependent import with_known_shapes
from .fake_tensor_updates import propagation_of_changes
from .functional_graph import functional_graph
from .gru_rnn import merge_steps
from .kernel_results import results_laid_out
from .out_of_reach import not_compiled, out_of_reach
from .regions import Region, host_program, split
from .rewrites import (
    compare_results_in_memory,
    one_copy,
    permutations_apart,
    products_with_zero,
    read_plainly,
    samplers_in_captured_layout,
    scalars_as_full,
    sums_of_constants,
)
from .samplers import unread_samplings_kept
from .separate_results import results_apart
from .settings import quick_compiler, samples_as_eager, settings
from .shortcuts import shortcuts
from .symbols import SymbolicInputs, Variants, at_sizes_of, caller_with_sizes
from .templates_on_demand import import_lowerings
from .upstream_fixes import inductor_fixes

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from ...guards.dimensions import Dimension
    from ...program.program import CompiledFunction
    from ..known_operators import KnownOperator
    from .regions import CompiledRegion
    from .symbols import OtherVariant


def compile(program: Program, config: Config, name: str = "inductor") -> CompiledFunction:
    """Return a function over the slot values."""
    reason = out_of_reach(program.graph)
    if reason is not None:
        warnings.warn(
            f"graph {program.name} {reason}: it runs on the aten backend, not the inductor backend",
            stacklevel=6,
        )
    plan = plan_for(program, config)
    if plan is None:
        run: Any = aten.compile(program, config)
        run.proofs = not_compiled(program.graph)
        return cast("CompiledFunction", run)
    with Announcement(program.name, plan.operators) as notice:
        return plan.program_with(
            compile_region(plan.region, plan.infos, config.backend_options, notice, plan.request)
        )


@dataclass(frozen=True)
class Plan:
    """A program split into the region that inductor compiles and the rest, which runs as captured."""

    program: Program
    config: Config
    region: Region
    inputs: list[Node]  # placeholders of the program that the region takes
    outputs: list[Node]  # nodes of the program that the region computes
    late: set[Node]  # nodes of the rest
    request: program_cache.Request | None  # None if the program cache cannot keep the region
    subject: Subject | None  # the captured form that a compiled form is compared with, or None

    @property
    def infos(self) -> list[TensorInfo]:
        return [n.meta["tensor"] for n in self.inputs]

    @property
    def operators(self) -> int:
        return sum(n.op == "call_function" for n in self.region.graph.nodes)

    def program_with(
        self,
        function: CompiledRegion,
        *others: CompiledRegion,
        other_variant: OtherVariant | None = None,
    ) -> CompiledFunction:
        """Return the function over the slot values that calls `function` for the region.

        A region with symbols may have other compiled variants; see Variants for `other_variant`.
        """
        if self.region.guards is not None:
            if other_variant is None and self.config.backend == "inductor":
                other_variant = self._compile_variant
            functions, captured = [function, *others], self._captured_region()
            called: CompiledFunction = Variants(functions, captured, other_variant, self._proved)
        else:
            called = self._proved(function)
        parts = self.program, self.inputs, self.outputs, self.late, called
        run = runner(lambda: in_blocks(host_program(*parts), self.config.skipped_passes))
        run.region, run.proofs = called, self.proofs  # type: ignore[attr-defined]
        return run

    @property
    def proofs(self) -> list[str]:
        """What was compared with the captured operators, for graph.explain()."""
        if self.subject is not None:
            return self.subject.log
        reason = "verify() says so" if self.config.verify == NEVER else "it communicates with other ranks"
        return [f"not compared with the captured operators, because {reason}"]

    def region_inputs(self, values: Sequence[Any]) -> list[Any]:
        """Return the inputs of the region among the values of the slots."""
        positions = {node: i for i, node in enumerate(self.program.placeholders)}
        return [values[positions[node]] for node in self.inputs]

    def _proved(self, function: CompiledRegion) -> CompiledRegion:
        return proved(function, self.subject)

    def _captured_region(self) -> CompiledFunction:
        """The region as captured, for sizes that no compiled variant serves."""
        graph, constants = self.region.graph, dict(self.region.named_buffers())
        return compile_program(self.program.with_(graph=graph, constants=constants), "region")

    def _compile_variant(self, variants: Variants, values: tuple[Any, ...]) -> CompiledRegion:
        """Compile the region for the sizes of these inputs, while the call waits."""
        with compiling:
            function = variants.variant_for(values)  # another thread may have added it meanwhile
            if function is not None:
                return function
            region = at_sizes_of(self.region, values)
            with Announcement(self.program.name, self.operators) as notice:
                return variants.add(compile_region(region, self.infos, self.config.backend_options, notice))


def plan_for(program: Program, config: Config) -> Plan | None:
    """Return how inductor compiles a program, or None if it runs on aten as a whole."""
    graph = program.graph
    if out_of_reach(graph) is not None:
        return None
    region, inputs, outputs, late = split(program)
    subject = _subject(program, region, config)
    if region.guards is None:  # the kernels for whole layers need the number of rows
        merge_steps(region.graph)
    infos: list[Any] = [n.meta.get("tensor") for n in inputs]
    if None in infos:  # a number that changes from call to call
        return None
    sparse = any(info.stride is None for info in infos)  # inductor does not support such an input
    if sparse or not any(n.op == "call_function" for n in region.graph.nodes):
        return None
    request = program_cache.request_for(region, infos, config.backend_options)
    return Plan(program, config, region, inputs, outputs, late, request, subject)


def _subject(program: Program, region: Region, config: Config) -> Subject | None:
    """Return what a compiled form of a region is compared with, or None if it is not compared."""
    # a rank that compares would run its collectives once more than the others
    if config.verify == NEVER or has_collectives(region.graph):
        return None
    return subject_of(program.name, region, config)


def subject_of(name: str, region: Region, config: Config) -> Subject:
    """Return what a compiled form of a region is compared with: its operators before any rewrite."""

    def compile_prefix(graph: Graph, constants: dict[str, torch.Tensor]) -> CompiledFunction:
        part = Region(graph)
        part.guards = region.guards
        for target, value in constants.items():
            part.register_buffer(target, value)
        with_known_shapes(graph)
        infos = [n.meta["tensor"] for n in graph.find_nodes(op="placeholder")]
        return _compiled(part, infos, {"fx_graph_cache": False, **config.backend_options})

    reference = Reference(region.graph, dict(region.named_buffers()))
    return Subject(
        name,
        reference,
        config.verify,
        has_own_samplers=not samples_as_eager(config.backend_options),
        compile_prefix=compile_prefix,
    )


def compile_region(
    region: Region,
    infos: list[TensorInfo],
    options: dict[str, Any] | tuple[Any, ...] = (),
    notice: Announcement | None = None,
    request: program_cache.Request | None = None,
    store: Store | None = None,
) -> CompiledRegion:
    """Return a function over the inputs of a region, whose operators may write them in place.

    The function comes from the program cache if it is there. Its `layouts` are the infos of its results.
    `notice`: the Announcement of the compilation. `request`: that of the region, if there is one already.
    `store`: the store of the binary, if not the user's cache.
    """
    request = request or program_cache.request_for(region, infos, options)
    function: Any = None if request is None else program_cache.load(request, store)
    if function is None:
        if notice is not None:
            notice.begin()
        begin = time.perf_counter()
        import_lowerings()
        known_operators = with_known_shapes(region.graph)
        if request and (store or default_store()):  # our store keeps what inductor's cache would keep
            options = {"fx_graph_cache": False, **dict(options)}
        function = _compiled(region, infos, options)
        built = library_of(function, known_operators)
        if request is not None and built is not None:
            name = getattr(notice, "name", "graph")
            function.library = program_cache.keep(request, built, name, time.perf_counter() - begin, store)
    function.request = request
    compiled: CompiledRegion = function
    return compiled


@rare_collection()
def _compiled(
    module: Region, infos: list[TensorInfo], options: dict[str, Any] | tuple[Any, ...]
) -> CompiledRegion:
    require(INDUCTOR)
    chosen = settings(module.graph, infos, options)
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # inductor calls deprecated functions of torch
            warnings.simplefilter("ignore", category)
        try:
            return _compile(module, infos, chosen)
        except Exception as error:
            failure = error
        if error_of_handler(failure) is None and met_another_interface(failure):
            try:
                return _compile(module, infos, chosen, is_quick=False)
            except Exception as error:
                failure = error
        is_own_choice = chosen.get("cpp_wrapper") and "cpp_wrapper" not in options
        if not is_own_choice or error_of_handler(failure) is not None:
            raise failure
        # operators that can only be called from Python
        return _compile(module, infos, {**chosen, "cpp_wrapper": False})


def library_of(region: Any, known_operators: list[KnownOperator]) -> program_cache.Built | None:
    """Return what the program cache keeps of a region, or None if it is not one library of machine code."""
    call: Any = getattr(region, "call", None)
    scope = getattr(call, "__globals__", {})
    module = getattr(scope.get("inductor_entry"), "__self__", None)
    if module is None or call.__qualname__ != "_wrap_func.<locals>.g":
        return None
    code = scope["cpp_wrapper_src"]
    return program_cache.Built(
        library=Path(module.__file__),
        constants=[scope[n] for n in call.__code__.co_names if isinstance(scope.get(n), torch.Tensor)],
        results=region.layouts,
        known_operators=known_operators,
        calls_kernels="oneflow" in code,
        guards=region.guards,
        sizes=tuple((d.argument, d.dim) for d in region.sizes),
    )


def _compile(
    module: Region, infos: list[TensorInfo], chosen: dict[str, Any], is_quick: bool = True
) -> CompiledRegion:
    """Compile a region. `is_quick`: with the shortcuts, whose code torch may have changed."""
    from torch._guards import TracingContext, tracing
    from torch._inductor import config as inductor_config  # importing inductor takes seconds
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    symbols = SymbolicInputs(module.guards, environment) if module.guards else None
    with mode:
        sizes, tensors = _example_inputs(symbols, infos)
    examples = [*(size for _, size in sizes), *tensors]
    with (
        torch.no_grad(),
        inductor_config.patch(chosen),
        where_available(*([lambda: quick_compiler(module.graph), shortcuts] if is_quick else ())),
        inductor_fixes(),
        results_laid_out(),
        results_apart(module.graph),
        unread_samplings_kept(),
        mode,
        tracing(TracingContext(mode)),
    ):
        # Some kernels need each size as a number in C++; their Python forms do not.
        with torch._C._EnablePythonDispatcher() if symbols else contextlib.nullcontext():
            gm = functional_graph(module, examples, len(sizes))
        changes_only = [lambda: propagation_of_changes(gm)] if is_quick and not symbols else []
        with V.set_fake_mode(mode), where_available(*changes_only):
            _prepare(gm, may_move_channels=inductor_config.layout_optimization and not symbols)
            gm = joint_graph_passes(gm)
            compiled = _call_inductor(gm, examples)
    region = _callable_region(compiled, gm, [dimension for dimension, _ in sizes])
    region.guards = symbols.guards_after_compiling() if symbols else None
    region.settings = chosen
    function: CompiledRegion = region
    return function


def _callable_region(compiled: Any, gm: GraphModule, sizes: list[Dimension]) -> Any:
    """Return the function of a compiled region, with what the program cache and the tests read of it."""
    call = getattr(compiled, "current_callable", None) or compiled
    region: Any = caller_with_sizes(call, sizes)
    region.sizes, region.graph, region.call = sizes, gm.graph, call
    region.layouts = [describe(r.meta["val"]) for r in gm.graph.output_node().args[0]]
    return region


def _prepare(gm: GraphModule, may_move_channels: bool) -> None:
    scalars_as_full(gm)
    products_with_zero(gm.graph)
    read_plainly(gm.graph)
    compare_results_in_memory(gm.graph)
    permutations_apart(gm.graph)
    if may_move_channels:
        one_copy(gm.graph)
    samplers_in_captured_layout(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def _call_inductor(gm: GraphModule, examples: Sequence[Any]) -> Any:
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner

    sums_of_constants(gm.graph)
    gm.recompile()  # inductor's cache key is the code
    output = gm.graph.output_node()
    results: Any = output.args[0]
    output.meta["user_visible_output_idxs"] = list(range(len(results)))
    return compile_fx_inner(
        gm,
        examples,
        is_inference=True,
        static_input_idxs=(),
        cudagraphs=False,  # type: ignore[arg-type]  # torch itself passes a bool
        cpp_wrapper=bool(inductor_config.cpp_wrapper),
    )


def _example_inputs(
    symbols: SymbolicInputs | None, infos: list[TensorInfo]
) -> tuple[list[tuple[Dimension, Any]], list[torch.Tensor]]:
    """Return (dimension, size) of each size that a call tells, and a fake tensor for each input."""
    if symbols is None:
        return [], [*map(_example, infos)]
    return symbols.free(), symbols.examples(infos)


def _example(info: TensorInfo) -> torch.Tensor:
    shape: Any = info.shape  # sizes without symbols
    stride: Any = info.stride
    return torch.empty_strided(shape, stride, dtype=info.dtype, device=info.device)
