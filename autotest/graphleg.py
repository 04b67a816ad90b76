"""The graph check: run the program of a case as one graph of the candidate (`nn.Graph`) and compare with
eager.

It compares outputs, gradients, in-place effects and buffers. The recorded steps are replayed inside
`build()`, on copies of the first inputs and modules. A difference counts only if the same replay, run
eagerly, gives the results of the test. A test that changes one side without the record, or reads other random
numbers, cannot be replayed.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import config, summary
from .case import Case, DualObject, Step
from .check import backward_candidate, tensors_of
from .compare import compare_numbers, compare_values
from .errors import Mismatch, OneFlowGraphBuildOrRunError
from .pair import CandidateTensor, Module
from .placement import in_global_scope
from .printing import name_of

if TYPE_CHECKING:
    from .options import Options
    from .pair import Pair

NAMES = ("eager", "graph")
# (inputs, modules by the id of the eager one) -> outputs, and gradients of inputs and parameters
Execute = Callable[
    [list[CandidateTensor], dict[int, Module]], tuple[list[CandidateTensor], list[CandidateTensor | None]]
]


class NotReplayable(Exception):
    """The record does not hold the whole program."""


class Replay:
    """The steps of a case as a function of fresh inputs and module copies."""

    def __init__(self, case: Case) -> None:
        self.case, self.pair = case, case.pair
        self.inputs = [s for s in case.steps if s.action == "input"]
        self.made = {id(m._cand): m for m in case.modules}
        self.steps = [s for s in case.steps if self.needs_run(s)]
        self.random = [s for s in self.steps if s.random is not None]
        if len(self.random) > 1:
            raise NotReplayable("several steps draw random numbers")

    def needs_run(self, step: Step) -> bool:
        """Whether the step has to run again.

        Sizes, types and other plain results keep their recorded values.
        """
        if step.action == "input" or step.action == "op" and step.target._path in ("iter", "next"):
            return False
        if step.action in ("enter", "exit"):
            return True
        if step.action == "set":
            return self.assignment_needs_run(step)
        out = step.out._cand
        if isinstance(out, self.pair.candidate_module):
            return step.target._path in ("train", "eval") and self.forwarded_before(step)
        tensors = tensors_of(out, self.pair.is_candidate_tensor)
        if tensors:
            # a random result without a gradient keeps its recorded values
            return step.random is None or any(t.requires_grad for t in tensors)
        return self.effect_needs_run(step)

    def assignment_needs_run(self, step: Step) -> bool:
        """Whether an assignment of an attribute has to run again; raise NotReplayable if it cannot."""
        if not self.is_module(step.target):
            return True
        if step.number < self.case.module_start.get(id(step.target._cand), (float("inf"),))[0]:
            return False  # part of the module's state at its first forward
        raise NotReplayable("a module's attribute is set after its first forward")

    def effect_needs_run(self, step: Step) -> bool:
        """Whether a step without a tensor result has an effect that has to run again."""
        if step.action == "op" and step.target._path in ("setitem", "delitem"):
            return True
        if step.action == "call" and step.out._cand is None:
            if step.target._path == "backward":
                return True
            if step.target._path.rpartition(".")[2] not in ("train", "eval", "zero_grad", "manual_seed"):
                raise NotReplayable(f"{step.target._path}() has an effect that is not recorded")
        if hasattr(step.out._cand, "param_groups"):
            raise NotReplayable("an optimizer is stepped in the test")
        return False

    def is_module(self, dual: DualObject) -> bool:
        return isinstance(dual._cand, self.pair.candidate_module)

    def forwarded_before(self, step: Step) -> bool:
        owner = step.target._owner
        return (
            owner is not None
            and step.number > self.case.module_start.get(id(owner._cand), (float("inf"),))[0]
        )

    # ------------------------------------------------------------------ fresh state
    def fresh_inputs(self) -> list[CandidateTensor]:
        return [self.pair.to_candidate(s.value, requires_grad=bool(s.requires_grad)) for s in self.inputs]

    def fresh_modules(self) -> dict[int, Module]:
        copies = copy.deepcopy(
            {key: dual._cand for key, dual in self.made.items()}
        )  # in one copy, because modules may share submodules
        for key, module in copies.items():
            _, state, training = self.case.module_start.get(key, (0, None, None))
            if state is not None:
                tensors = dict(module.named_parameters()) | dict(module.named_buffers())
                for name, value in state.items():
                    if name in tensors:
                        tensors[name].detach().copy_(value)
                for name, submodule in module.named_modules():
                    submodule.training = training.get(name, submodule.training)
            for p in module.parameters():
                p.grad = None
        return copies

    # ------------------------------------------------------------------ running
    def __call__(
        self, inputs: list[CandidateTensor], modules: dict[int, Module]
    ) -> tuple[list[CandidateTensor], list[CandidateTensor | None]]:
        """Run the program; return its outputs and the gradients of inputs and parameters."""
        env = {s.number: x for s, x in zip(self.inputs, inputs)}
        for key, dual in self.made.items():
            env[dual._step.number] = modules[key]
        value = functools.partial(self.value, env, modules)
        for step in self.steps:
            result = self.run(step, value)
            if step.out is not None:
                env[step.number] = result
        outputs = [value(d) for d in self.outputs()]
        self.backward(outputs, value)
        leaves = [x for x in inputs if x.requires_grad] + [
            p for m in modules.values() for p in m.parameters()
        ]
        return [t for o in outputs for t in tensors_of(o, self.pair.is_candidate_tensor)], [
            p.grad for p in leaves
        ]

    def outputs(self) -> list[DualObject]:
        """Return the test's results; if it returned none, its last tensor."""
        if self.case.outputs:
            return self.case.outputs
        return [s.out for s in self.steps if s.out is not None][-1:]

    def backward(self, outputs: list[Any], value: Callable[[DualObject], Any]) -> None:
        gradients = getattr(self.case, "output_gradients", None)
        if not gradients:
            return
        differentiable: list[CandidateTensor] = []
        for o in outputs:
            for t in tensors_of(o, self.pair.is_candidate_tensor):
                if t.requires_grad and not any(t is seen for seen in differentiable):
                    differentiable.append(t)
        if len(differentiable) != len(gradients):
            raise NotReplayable("other outputs require a gradient")
        backward_candidate(self.pair, differentiable, gradients)

    def run(self, step: Step, value: Callable[[DualObject], Any]) -> Any:
        if step.action == "set":
            setattr(value(step.target), step.args[0], self.resolve(step.args[1], value))
        elif step.action in ("enter", "exit"):
            context = value(step.target)
            return context.__enter__() if step.action == "enter" else context.__exit__(None, None, None)
        elif step.action == "get":
            return getattr(value(step.target), step.args[0])
        else:
            return value(step.target)(*self.resolve(step.args, value), **self.resolve(step.kwargs, value))

    def value(self, env: dict[int, Any], modules: dict[int, Module], dual: DualObject) -> Any:
        """Return the value of a dual object in this run."""
        step = dual._step
        if step is not None:
            if step.number in env:
                return env[step.number]
            return modules.get(id(dual._cand), dual._cand)
        if dual._owner is not None:
            owner = attribute = self.value(env, modules, dual._owner)
            for name in dual._path.split("."):
                attribute = getattr(attribute, name)
            return attribute if owner is not dual._owner._cand else dual._cand
        return dual._cand

    def resolve(self, x: Any, value: Callable[[DualObject], Any]) -> Any:
        if hasattr(type(x), "__dual__"):
            return value(x)
        if type(x) in (tuple, list):
            return type(x)(self.resolve(e, value) for e in x)
        if type(x) is dict:
            return {k: self.resolve(v, value) for k, v in x.items()}
        if type(x) is slice:
            return slice(*(self.resolve(e, value) for e in (x.start, x.stop, x.step)))
        return x


def check_graph(case: Case) -> None:
    """Compare the eager results of a case with the results of its program as one graph."""
    if in_global_scope() or not hasattr(getattr(case.pair.candidate, "nn", None), "Graph"):
        return
    try:
        replay = Replay(case)
        if not replay.steps:
            return
        summary.totals["graphs"] += 1
        run_and_compare(case, replay, lambda inputs, modules: run_graph(case, replay, inputs, modules))
    except NotReplayable as e:
        summary.note_graph_refused(f"cannot be replayed: {e}")
    except Mismatch as e:
        reason = reason_not_replayable(case)
        if reason:
            summary.note_graph_refused(f"cannot be replayed: {reason}")
            return
        e.leg = "graph"
        raise
    except Exception as e:
        if reason_not_replayable(case):
            return
        if is_refusal(case.pair, e):
            summary.note_graph_refused(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
            return
        error = OneFlowGraphBuildOrRunError(e)
        error.leg = "graph"
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
    case: Case, replay: Replay, inputs: list[Any], modules: dict[Any, Any]
) -> tuple[list[Any], list[Any]]:
    """Run the replay as one graph; return outputs and gradients, and leave in `inputs` the inputs that
    build() wrote.
    """

    class ReplayGraph(case.pair.candidate.nn.Graph):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            backend = config.get("ONEFLOW_TEST_GRAPH_BACKEND")
            if backend and hasattr(self.config, "set_backend"):
                self.config.set_backend(backend)
            for i, module in enumerate(modules.values()):
                setattr(self, f"module{i}", module)

        def build(self, *args: Any) -> Any:
            outputs, gradients = replay(list(args), modules)
            present.extend(g is not None for g in gradients)
            return outputs, [g for g in gradients if g is not None], args

    present: list[bool] = []
    graph = ReplayGraph()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # build() is the harness's code, which users need not see
        outputs, gradients, inputs[:] = graph(*inputs)  # a graph does not write the caller's own tensors
    if case.options.verbose:
        print(f"[autotest] graph:\n{getattr(graph, 'program', graph)}", flush=True)
    existing = iter(gradients)
    return outputs, [next(existing) if is_present else None for is_present in present]


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
    for i, (e, g) in enumerate(zip(expected, outputs)):
        in_graph("", lambda: compare_values(pair, e, g, f"output {i}", options, NAMES, values))
    leaves = [(name_of(s.out), s.out._cand) for s in replay.inputs if s.requires_grad]
    for dual in replay.made.values():
        leaves += [(f"parameter {n} of {name_of(dual)}", p) for n, p in dual._cand.named_parameters()]
    for (name, leaf), g in zip(leaves, gradients):
        in_graph("", lambda: compare_gradient(pair, leaf.grad, g, name, options, values))
    for step, x in zip(replay.inputs, inputs):
        in_graph(
            "in-place effect, ",
            lambda: compare_values(pair, step.out._cand, x, name_of(step.out), options, NAMES, values),
        )
    for key, dual in replay.made.items():
        theirs = dict(modules[key].named_buffers())
        for name, b in dual._cand.named_buffers():
            in_graph(
                "buffers, ",
                lambda: compare_values(
                    pair, b, theirs[name], f"buffer {name} of {name_of(dual)}", options, NAMES, values
                ),
            )


def in_graph(what: str, compare: Callable[[], None]) -> None:
    """Run a comparison; a mismatch is raised as one of the graph check."""
    try:
        compare()
    except Mismatch as e:
        raise Mismatch(f"graph: {what}{e.check}", str(e).partition(": ")[2]) from None


def compare_gradient(
    pair: Pair,
    eager: CandidateTensor | None,
    graph: CandidateTensor | None,
    name: str,
    options: Options,
    values: bool,
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
        compare_numbers(a, b, f"the gradient of {name}", options, NAMES, "gradient")
