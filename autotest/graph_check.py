"""The graph check: run the program of a case as one graph of the candidate (`nn.Graph`) and compare with
eager.

It compares outputs, gradients, in-place effects and buffers. The recorded steps are replayed inside
`build()`, on copies of the first inputs and modules. A difference counts only if the same replay, run
eagerly, gives the results of the test. A test that changes one side without the record, or reads other random
numbers, cannot be replayed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import config
from .case import Case
from .check import renamed
from .compare import compare_numbers, compare_values
from .errors import Mismatch, OneFlowGraphBuildOrRunError
from .oracle import narrowest_of
from .pair import CandidateTensor, Module, tensors_of
from .placement import in_global_scope
from .printing import name_of
from .replay import NotReplayable, Replay
from .verdict import OTHER_IMPLEMENTATION, SAME_KERNELS, Standard

if TYPE_CHECKING:
    from .config import Options
    from .pair import Pair

NAMES = ("eager", "graph")
CHECKED, REFUSED = "checked", "refused: "  # outcomes; another one says why the graph was not checked
# (inputs, modules by the id of the eager one) -> outputs, and gradients of inputs and parameters
Execute = Callable[
    [list[CandidateTensor], dict[int, Module]], tuple[list[CandidateTensor], list[CandidateTensor | None]]
]


def check_graph(case: Case) -> None:
    """Compare the eager results of a case with the results of its program as one graph."""
    if in_global_scope() or not hasattr(getattr(case.pair.candidate, "nn", None), "Graph"):
        return
    try:
        replay = Replay(case)
        if not replay.steps:
            return
        graphs: list[Any] = []
        run_and_compare(
            case, replay, lambda inputs, modules: run_graph(case, replay, inputs, modules, graphs)
        )
        case.graph_outcome = CHECKED
        if not replay.random:
            compare_second_call(case, replay, *graphs)
    except NotReplayable as e:
        case.graph_outcome = f"cannot be replayed: {e}"
    except Mismatch as e:
        reason = reason_not_replayable(case)
        if reason:
            case.graph_outcome = f"cannot be replayed: {reason}"
            return
        e.mode = "graph"
        raise
    except Exception as e:
        if reason_not_replayable(case):
            return
        if is_refusal(case.pair, e):
            case.graph_outcome = f"{REFUSED}{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
            return
        error = OneFlowGraphBuildOrRunError(e)
        error.mode = "graph"
        raise error from e


def is_refusal(pair: Pair, error: Exception) -> bool:
    """Whether the candidate itself says that this program cannot be a graph."""
    return isinstance(error, NotImplementedError) or any(
        c.__name__ in pair.graph_refusals for c in type(error).__mro__
    )


def reason_not_replayable(case: Case) -> str | None:
    """Return why the replay, run eagerly, differs from the test; None if it agrees."""
    try:
        replay = Replay(case)
        run_and_compare(case, replay, replay)
    except Exception as e:
        return f"the replay itself differs ({type(e).__name__})"
    return None


def run_graph(
    case: Case, replay: Replay, inputs: list[Any], modules: dict[Any, Any], graphs: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Run the replay as one graph; return outputs and gradients, and leave in `inputs` the inputs that
    build() wrote. The function that calls the graph is appended to `graphs`, with its modules.
    """

    class ReplayGraph(case.pair.candidate.nn.Graph):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            backend = config.get("ONEFLOW_TEST_GRAPH_BACKEND")
            if backend and hasattr(self.config, "set_backend"):
                self.config.set_backend(backend)
            if hasattr(self.config, "eager_calls"):
                self.config.eager_calls(False)  # an eager call would be compared with itself
            for i, module in enumerate(modules.values()):
                setattr(self, f"module{i}", module)

        def build(self, *args: Any) -> Any:
            outputs, gradients = replay(list(args), modules)
            has_gradient = [g is not None for g in gradients]
            return outputs, [g for g in gradients if g is not None], has_gradient, args

    graph = ReplayGraph()

    def call(inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        with warnings.catch_warnings():
            # build() is the harness's code, which users need not see
            warnings.simplefilter("ignore", UserWarning)
            # a graph does not write the caller's own tensors
            outputs, gradients, has_gradient, inputs[:] = graph(*inputs)
        existing = iter(gradients)
        return outputs, [next(existing) if is_present else None for is_present in has_gradient]

    graphs.extend((call, modules))
    results = call(inputs)
    if case.options.verbose:
        print(f"[autotest] graph:\n{getattr(graph, 'program', graph)}", flush=True)
    return results


def compare_second_call(
    case: Case, replay: Replay, call: Callable[..., Any], modules: dict[int, Module]
) -> None:
    """Call the graph again on fresh inputs, and compare with a second eager run of the same program."""
    eager_inputs, eager_modules, inputs = replay.fresh_inputs(), replay.fresh_modules(), replay.fresh_inputs()
    replay(replay.fresh_inputs(), eager_modules)
    modes = {key: [m.training for m in fresh.modules()] for key, fresh in replay.fresh_modules().items()}
    for key, module in (*eager_modules.items(), *modules.items()):
        for p in module.parameters():
            p.grad = None
        for part, training in zip(module.modules(), modes[key]):  # a graph keeps those of its first call
            part.training = training
    outputs, gradients = replay(eager_inputs, eager_modules)
    graph_outputs, graph_gradients = call(inputs)
    pair, options, standard = case.pair, case.options, standard_of_graph(case)
    values = options.check_allclose
    if len(outputs) != len(graph_outputs):
        raise Mismatch("graph: second call, number and type of outputs", "the second call has other outputs")
    for i, (e, g) in enumerate(zip(outputs, graph_outputs)):
        what = f"output {i} of the second call"
        in_graph("second call, ", lambda: compare_values(pair, e, g, what, options, NAMES, values, standard))
    for i, (e, g) in enumerate(zip(gradients, graph_gradients)):
        what = f"leaf {i} in the second call"
        in_graph("second call, ", lambda: compare_gradient(pair, e, g, what, options, values, standard))
    for key, eager in eager_modules.items():
        theirs = dict(modules[key].named_buffers())
        for name, b in eager.named_buffers():
            what = f"buffer {name} after the second call"
            in_graph(
                "second call, ",
                lambda: compare_values(pair, b, theirs[name], what, options, NAMES, values, standard),
            )


def run_and_compare(case: Case, replay: Replay, execute: Execute) -> None:
    """Run the replay through `execute` and compare outputs, gradients, inputs and buffers with the test's
    eager run.
    """
    pair, options = case.pair, case.options
    inputs, modules = replay.fresh_inputs(), replay.fresh_modules()
    if replay.random:
        after = pair.random_state()
        pair.rewind(replay.random[0].random)
    try:
        outputs, gradients = execute(inputs, modules)
    finally:
        if replay.random:
            pair.rewind(after)
    values = options.check_allclose
    expected = [t for d in replay.outputs() for t in tensors_of(d._cand, pair.is_candidate_tensor)]
    if len(expected) != len(outputs):
        raise Mismatch(
            "graph: number and type of outputs",
            f"{len(expected)} tensors in eager, {len(outputs)} in the graph",
        )
    standard = standard_of_graph(case)
    for i, (e, g) in enumerate(zip(expected, outputs)):
        in_graph("", lambda: compare_values(pair, e, g, f"output {i}", options, NAMES, values, standard))
    leaves = [(name_of(s.out), s.out._cand) for s in replay.inputs if s.requires_grad]
    for dual in replay.made.values():
        leaves += [(f"parameter {n} of {name_of(dual)}", p) for n, p in dual._cand.named_parameters()]
    for (name, leaf), g in zip(leaves, gradients):
        in_graph("", lambda: compare_gradient(pair, leaf.grad, g, name, options, values, standard))
    for step, x in zip(replay.inputs, inputs):
        in_graph(
            "in-place effect, ",
            lambda: compare_values(
                pair, step.out._cand, x, name_of(step.out), options, NAMES, values, standard
            ),
        )
    for key, dual in replay.made.items():
        theirs = dict(modules[key].named_buffers())
        for name, b in dual._cand.named_buffers():
            what = f"buffer {name} of {name_of(dual)}"
            in_graph(
                "buffers, ",
                lambda: compare_values(pair, b, theirs[name], what, options, NAMES, values, standard),
            )


def standard_of_graph(case: Case) -> Standard:
    """Return the standard of a graph: eager's bits from the aten backend, a tolerance from others."""
    exact = case.pair.level == SAME_KERNELS and config.get("ONEFLOW_TEST_GRAPH_BACKEND") == "aten"
    return Standard(OTHER_IMPLEMENTATION, None, functools.partial(narrowest_of, case), bits=exact)


def in_graph(what: str, compare: Callable[[], None]) -> None:
    """Run a comparison; a mismatch is raised as one of the graph check."""
    try:
        compare()
    except Mismatch as e:
        raise renamed(e, f"graph: {what}{e.check}", str(e).partition(": ")[2]) from None


def compare_gradient(
    pair: Pair,
    eager: CandidateTensor | None,
    graph: CandidateTensor | None,
    name: str,
    options: Options,
    values: bool,
    standard: Standard,
) -> None:
    """Compare one gradient of eager and graph; no gradient and a gradient of zeros are equal."""
    if eager is None or graph is None:
        there = graph if eager is None else eager
        if there is not None and pair.as_torch(there).count_nonzero().item():
            raise Mismatch(
                "gradient",
                f"{name} has no gradient in {'eager' if eager is None else 'the graph'}, and one that is"
                " not zero in the other",
            )
        return
    a, b = pair.as_torch(eager), pair.as_torch(graph)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise Mismatch(
            "gradient",
            f"the gradient of {name} is {tuple(a.shape)} {a.dtype} in eager and {tuple(b.shape)} {b.dtype}"
            " in the graph",
        )
    if values:
        compare_numbers(a, b, f"the gradient of {name}", options, NAMES, "gradient", standard)
