"""The record of one case: what was created, called and returned, in order.

Three readers use the record: the comparison at the end, the graph check that replays it, and the report that
prints it as a script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .blame import line_of_test

if TYPE_CHECKING:
    from types import CodeType

    import torch

    from .config import Options
    from .pair import CandidateTensor, Module, Pair, RandomState


class DualObject(Protocol):
    """The attributes of a dual object (class Dual in dual.py) that a record reads."""

    _pair: Pair
    _ref: Any
    _cand: Any
    _path: str
    _owner: Any
    _step: Any


class Step:
    """One action of the program. `out` is the dual object that it made (None for a pure effect).

    action: "input" (value: the torch tensor as sampled), "call" (the target was called), "op" (a Python
        operator), "get" (attribute args[0] of the target), "set" (attribute args[0] of the target becomes
        args[1]), "enter" and "exit" (a context), "expression" (args[0] is Python source with {} for the
        target; only in a step that failed).
    """

    __slots__ = (
        "action",
        "target",
        "args",
        "kwargs",
        "out",
        "value",
        "candidate_value",
        "candidate_called",
        "number",
        "random",
        "requires_grad",
        "is_global",
        "strides",
        "code",
        "line",
    )

    def __init__(
        self,
        action: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        out: DualObject | None = None,
        value: torch.Tensor | None = None,
        random: RandomState = None,
    ) -> None:
        self.action, self.target, self.args, self.kwargs = action, target, args, kwargs or {}
        self.out: Any = out
        self.number = -1
        # the reference's tensor at that time, of an input or of a call whose result was handed over
        self.value: Any = value
        self.candidate_value = None  # value of an input, if the test gave the two sides different values
        # The candidate made a tensor of its own, and only the values of `value` were handed over.
        self.candidate_called = False
        self.strides: tuple[tuple[int, ...], int] | None = None  # strides of an input that is not contiguous
        self.code: CodeType | None = None  # code of the test that made the step, and the line in its file
        self.line = 0
        self.random = random  # state of the random stream before the step, if the step draws from it
        self.requires_grad = (
            value is not None and out is not None and bool(getattr(out._ref, "requires_grad", False))
        )
        self.is_global = (
            bool(getattr(getattr(out, "_cand", None), "is_global", False)) if action == "input" else False
        )


class Case:
    """The running case; `with case:` makes it the current one."""

    def __init__(
        self, pair: Pair, options: Options, seed: int = 0, on_step: Callable[[Case, Step], None] | None = None
    ) -> None:
        self.pair, self.options, self.seed, self.on_step = pair, options, seed, on_step
        self.steps: list[Step] = []
        # dtype of sampled float tensors and of modules; None is float32
        self.dtype: torch.dtype | None = None
        self.content: tuple[int, int] | None = None  # seed and spread of the last sampled tensor
        self.has_second_order = False  # second derivatives are compared
        self.batch: int | None = None  # the size of each dimension 0 that the test leaves open
        self.modules: list[DualObject] = []  # dual modules made in this case
        self.module_ids: set[int] = set()  # id() of their candidate sides
        # id of a candidate module: its state dict when it was made
        self.created_state: dict[int, dict[str, CandidateTensor]] = {}
        self.global_modules: set[int] = set()
        # id of a candidate module: (step, state, training flags) at its first forward
        self.module_start: dict[int, tuple[Any, ...]] = {}
        self.outputs: list[DualObject] = []
        self.output_gradients: list[torch.Tensor] = []
        # number of an input: the candidate's gradient, if bind() has a function for it
        self.candidate_gradients: dict[int, CandidateTensor] = {}
        # duals whose `.grad` is compared; set when the comparison of gradients starts
        self.duals_with_gradient: list[DualObject] = []
        self.ran_backward = False  # the harness reached its own backward
        self.graph_outcome = ""  # outcome of the graph check; see graph_check.py
        self.oracle: object = None  # the float64 runs, made when two values first differ

    def add(self, step: Step) -> Step:
        self.place(step)
        self.steps.append(step)
        if step.out is not None:
            object.__setattr__(step.out, "_step", step)
        if self.on_step is not None:
            self.on_step(self, step)
        return step

    def place(self, step: Step) -> None:
        """Give a step the next number, and the line of the test that makes it."""
        step.number = len(self.steps)
        step.code, step.line = line_of_test() or (None, 0)

    def note_module(self, dual: DualObject, is_global: bool) -> None:
        """Keep a new module and its first state."""
        self.module_ids.add(id(dual._cand))
        self.modules.append(dual)
        self.created_state[id(dual._cand)] = _state_of(dual._ref)
        if is_global:
            self.global_modules.add(id(dual._cand))

    def note_forward(self, dual: DualObject) -> bool:
        """Keep the state of a module before its first forward, for the graph's copy and the script.

        Return whether this call is the first forward.
        """
        while dual._step is None and dual._owner is not None:
            dual = dual._owner
        module = dual._cand
        if id(module) in self.module_ids and id(module) not in self.module_start:
            self.module_start[id(module)] = (
                len(self.steps),
                _state_of(module),
                {n: m.training for n, m in module.named_modules()},
            )
            return True
        return False

    def first_state_of(self, dual: DualObject) -> dict[str, CandidateTensor]:
        """Return the tensors of a module at its first forward; of a module that never ran, those it was made
        with.
        """
        key = id(dual._cand)
        if key in self.module_start and key not in self.global_modules:
            return self.module_start[key][1]
        return self.created_state.get(key, {})

    def __enter__(self) -> Case:
        _stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.pop()


def _state_of(module: Module) -> dict[str, CandidateTensor]:
    return {
        k: v.detach().clone()
        for k, v in (*module.named_parameters(), *module.named_buffers())
        if hasattr(v.detach(), "clone")
    }


_stack: list[Case] = []


def current() -> Case | None:
    """Return the running case, or None outside `autotest`."""
    return _stack[-1] if _stack else None


def breaking() -> Case | None:
    """Return the running case if it samples what breaks kernels, None outside and with like="oneflow"."""
    case = current()
    return case if case is not None and case.options.like != "oneflow" else None
