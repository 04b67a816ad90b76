"""The last step of a backend: a Program becomes the function that a call runs, in regions for a profiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import record_function

from ..._errors import IndexOutOfBounds
from ..._global.collectives import end_comparison
from ..program.codegen import compile_program
from ..program.operators import has_collectives
from ..program.program import Program
from .operator_runs import in_runs
from .undo import with_undo

if TYPE_CHECKING:
    from torch.fx import Node

    from ..program.program import CompiledFunction
    from ..program.tensor_info import TensorInfo


OUT_OF_BOUNDS = "index out of bounds"  # the first words of inductor's message
_OF_LINALG = "Exception raised from _linalg_check_errors"  # end of a message, after the text of eager mode


def _is_never_profiled() -> bool:
    """Answer for a torch that does not tell whether a profiler runs: regions have no names then."""
    return False


def runner(host: Callable[[], Program], calls_runs: bool = False) -> CompiledFunction:
    """Return a function over the slot values that runs the Program `host()` with autograd off.

    With `calls_runs`, C++ calls the operators (see operator_runs.py) while no profiler runs.

    A profiler sees the name of the graph, and inside it the record_function() names of build(), phases and
    modules.
    """
    program = with_undo(host())
    named: list[CompiledFunction] = []
    gate = end_comparison if has_collectives(program.graph) else None
    guard: Any = torch._C._AutoDispatchBelowAutograd
    profiling = getattr(torch._C._autograd, "_profiler_enabled", _is_never_profiled)
    sparse = any(_is_sparse(n.meta.get("tensor")) for n in program.graph.nodes)
    if calls_runs and not sparse and gate is None:
        program = in_runs(program)
    function = compile_program(program, gate=gate)
    if sparse:
        guard = object  # below autograd torch's kernels of sparse tensors write into copies

    def run(*values: Any) -> Sequence[Any]:
        keep = guard()  # operators skip autograd while this object lives
        try:
            if profiling():
                return _in_regions(host, gate, named, values)
            return function(*values)
        except RuntimeError as error:
            eager_error = _error_of_eager_mode(program.name, str(error))
            if eager_error is None:
                raise
            raise eager_error from None
        finally:
            del keep  # the traceback of an error would keep it alive

    if sparse and any(n.target is torch.ops.aten.mkldnn_rnn_layer.default for n in program.graph.nodes):
        run = _on_detached(run)  # oneDNN's LSTM needs gradients enabled for what its backward reads
    elif sparse:
        run = torch.no_grad()(run)
    run.inner = function  # type: ignore[attr-defined]
    run.waits_for_ranks = gate is not None  # type: ignore[attr-defined]
    return run


def _error_of_eager_mode(graph: str, message: str) -> RuntimeError | None:
    """Return the error that eager mode raises where compiled C++ code raised RuntimeError, or None."""
    if message.startswith(OUT_OF_BOUNDS):
        return IndexOutOfBounds(
            f"graph {graph}: {message}. Compiled code does not know the operator and the index;"
            ' graph.config.set_backend("aten") runs operators one by one and names both'
        )
    cause, is_of_linalg, _ = message.partition(_OF_LINALG)
    return torch.linalg.LinAlgError(cause.rstrip()) if is_of_linalg else None


def _on_detached(run: CompiledFunction) -> CompiledFunction:
    """Run on aliases that autograd does not follow."""

    def run_detached(*values: Any) -> Sequence[Any]:
        return run(*(v.detach() if isinstance(v, torch.Tensor) and v.requires_grad else v for v in values))

    return run_detached


def _is_sparse(info: TensorInfo | None) -> bool:
    return getattr(info, "stride", ()) is None


def _in_regions(
    host: Callable[[], Program],
    gate: Callable[[], None] | None,
    named: list[CompiledFunction],
    values: tuple[Any, ...],
) -> Sequence[Any]:
    if not named:
        named.append(compile_program(with_undo(host()), labels=_labels, gate=gate))
    regions = _Regions()
    try:
        return named[0](regions.enter, *values)
    finally:
        regions.enter(())


def _labels(program: Program, node: Node) -> tuple[str, ...]:
    """Return the profiler regions of a node, from the outside in."""
    phase, module = node.meta.get("phase"), node.meta.get("module")
    last = (f"{phase}: {module}" if module else phase,) if phase else ()
    return (program.name, *node.meta.get("regions", ()), *last)


class _Regions:
    """The regions that are currently open."""

    def __init__(self) -> None:
        self.open: list[tuple[str, record_function]] = []  # (label, record_function)

    def enter(self, labels: tuple[str, ...]) -> None:
        """Leave the regions that are not in `labels`, and enter the others."""
        shared = 0
        while shared < min(len(labels), len(self.open)) and labels[shared] == self.open[shared][0]:
            shared += 1
        while len(self.open) > shared:
            self.open.pop()[1].__exit__(None, None, None)
        for label in labels[shared:]:
            self.open.append((label, record_function(label)))
            self.open[-1][1].__enter__()
