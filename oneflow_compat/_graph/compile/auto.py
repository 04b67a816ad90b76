"""The default: run the captured operators at once, and compile with inductor when that pays.

A program first runs on the aten backend, so the first result comes without waiting for a compiler. Its third
call looks into the program cache. If the program is not there, it is compiled once a compiled program would
have saved as much time as the compiler takes. A child process compiles while aten runs (background.py), and
the second call after that switches. Both sides are estimates (`Experience`) that start from recorded figures
and follow what the compilations of this process took and saved:

- the compiler takes a multiple of the time of the capture, which a slow or busy machine stretches alike;
- a compiled program saves a part of each call.

A program with symbols may have several compiled variants. Each is compiled in the background when calls at
its sizes have taken long enough (background_variants.py).

A compiled program whose calls turn out to take longer goes back to aten. The numbers change by rounding at a
switch; set_backend() fixes one backend from the first call.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..._signals import error_of_handler, held
from ..garbage_collection import rare_collection
from ..program.operators import has_collectives
from ..program.random_functions import replays_random_numbers
from . import aten, background, compiling, program_cache
from .background_variants import BackgroundVariants
from .inductor import compiler
from .inductor.out_of_reach import not_compiled
from .notices import say

if TYPE_CHECKING:
    from torch.fx import Graph

    from ..config import Config
    from ..program.program import CompiledFunction, Program
    from .background import Compilation
    from .inductor.compiler import Plan
    from .inductor.regions import CompiledRegion


WARM_UP = 2  # calls before the first compilation
MANY = 1000  # smallest operator count for which the share left with time steps as one layer is computed
TRIAL = 9  # calls after a compilation, compiled and aten in turns, so that both are timed under the same load
SLOWER = 1.1  # a compiled program goes back to aten if it takes this many times as long as aten
CAPTURE_PER_OPERATOR = 1e-3  # seconds; for a loaded program, which was not captured in this process


class Experience:
    """The measured cost of the compilations of this process.

    The cost is a multiple of the capture time; the saving is the share of a call that a compilation removed.
    The initial figures (tests/golden/compile_costs.json) count as one compilation after a capture of one
    second.
    """

    def __init__(self) -> None:
        self.capture_seconds, self.compile_seconds, self.savings = 1.0, 40.0, [0.3]
        self.has_loaded = (
            False  # the first compilation loads the compiler as well, and tells nothing of the next one
        )

    cost = property(lambda self: self.compile_seconds / self.capture_seconds)
    saving = property(lambda self: max(0.0, sum(self.savings) / len(self.savings)))

    def note_compilation(self, capture_seconds: float, compile_seconds: float) -> None:
        """Learn what a compilation took."""
        if self.has_loaded:
            self.capture_seconds += capture_seconds
            self.compile_seconds += compile_seconds
        self.has_loaded = True


experience = Experience()
_failed: set[str] = set()  # names of graphs that were warned about


def compile(program: Program, config: Config, name: str = "auto") -> CompiledFunction:
    """Return a function over the slot values that switches from aten to inductor by itself.

    Only aten is used if the program has collectives, because ranks would switch at different calls, or if
    random values are sampled again.
    """
    if has_collectives(program.graph) or replays_random_numbers(program.graph):
        return aten.compile(program, config)
    return Tiered(program, config)


class Tiered:
    """A callable that runs `current`: timed aten runs, aten runs while a child process compiles, calls that
    try the compiled program, then the faster of both.
    """

    def __init__(self, program: Program, config: Config) -> None:
        self.program, self.config = program, config
        self.backend = "aten"
        self.calls, self.spent, self.least = 0, 0.0, float("inf")
        self.trial: list[float] = []  # seconds
        self.aten = aten.compile(program, config)
        self.capture_seconds = _capture_seconds(program)
        self.on_cuda = any(getattr(s.device, "type", "cpu") != "cpu" for s in program.slots)
        self.plan: Plan | None = None
        self.compilation: Compilation | None = None
        self.current: CompiledFunction = self._timed

    def __call__(self, *values: Any) -> Sequence[Any]:
        return self.current(*values)

    @property
    def proofs(self) -> list[str]:
        """What was compared with the captured operators, for graph.explain()."""
        return self.plan.proofs if self.plan is not None else not_compiled(self.program.graph)

    def _timed(self, *values: Any) -> Sequence[Any]:
        if self.calls >= WARM_UP:
            with held(), _this_thread_alone() as alone:
                if alone and self.current == self._timed and self._switches(values):
                    return self.current(*values)
        out, seconds = self._measured(self.aten, values, self.calls <= WARM_UP)
        self.calls += 1
        self.least = min(self.least, seconds)
        self.spent += seconds
        return out

    def _measured(
        self, function: CompiledFunction, values: tuple[Any, ...], waits: bool
    ) -> tuple[Sequence[Any], float]:
        """Return (results, seconds) of one call.

        On a GPU only the initial calls wait for the device. Each later call counts as the shortest of them.
        """
        waits = waits and self.on_cuda
        if waits:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        out = function(*values)
        if waits:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return out, seconds if waits or not self.on_cuda else self.least

    @rare_collection()
    def _switches(self, values: tuple[Any, ...]) -> bool:
        """Choose the next `current` in a call with these values. Return False if the timed runs go on."""
        if self.plan is None and self._look_up():
            return True
        if not self._is_worth(self.spent):
            return False
        plan = self.plan
        if plan is None or plan.request is None or not background.is_available():
            self._compile()
            return True
        return self._start(plan, plan.request, values)

    def _is_worth(self, seconds: float) -> bool:
        """Whether calls that took so long pay for a compilation."""
        return bool(seconds * experience.saving >= self.capture_seconds * experience.cost)

    def _look_up(self) -> bool:
        """Use the binaries of the program cache, if there are any."""
        functions: list[CompiledRegion] = []
        try:
            plan = self.plan = compiler.plan_for(self.program, self.config)
            if plan is not None and plan.request is not None:
                functions = program_cache.load_variants(plan.request)
        except Exception as error:
            return self._stay_on_aten(error)
        if plan is None:
            return self._stay_on_aten()
        self.capture_seconds *= _share_left(self.program, plan)
        return bool(functions) and self._try(plan, *functions)

    def _start(self, plan: Plan, request: program_cache.Request, values: tuple[Any, ...]) -> bool:
        """Start a child process, unless another one compiles for this process."""
        try:
            self.compilation = background.start(
                request, self.program.name, plan.subject, plan.region_inputs(values)
            )
        except OSError as error:
            return self._stay_on_aten(error)
        if self.compilation is None:
            return False
        say(
            f"graph {self.program.name}: compiling {plan.operators} operators with inductor in the background"
        )
        self.current = self._waiting
        return True

    def _waiting(self, *values: Any) -> Sequence[Any]:
        """Run aten until the child process has ended, then switch.

        This call prepares the compiled program, and the next one runs it, so neither waits for both.
        """
        if self.compilation.is_running():
            return self.aten(*values)
        with held(), _this_thread_alone() as alone:
            if alone and self.current == self._waiting:
                self._finish()
        return self.aten(*values)

    @rare_collection()
    def _finish(self) -> None:
        plan, compilation = self.plan, self.compilation
        assert plan is not None and compilation is not None
        seconds = time.perf_counter() - compilation.begin
        try:
            self._try(plan, compilation.result())
        except RuntimeError as error:
            self._stay_on_aten(error)
        else:
            say(f"graph {self.program.name}: compiled after {seconds:.1f} s; the next call switches to it")
            experience.note_compilation(self.capture_seconds, seconds)
        self.compilation = None
        self._report(seconds)

    def _compile(self) -> None:
        """Compile in this process, while the call waits, what the program cache cannot keep."""
        begin = time.perf_counter()
        try:
            self.compiled = compiler.compile(self.program, self.config)
            self.backend, self.current = "inductor", self._tried
            experience.note_compilation(self.capture_seconds, time.perf_counter() - begin)
        except Exception as error:
            self._stay_on_aten(error)
        self._report(time.perf_counter() - begin)

    def _try(self, plan: Plan, *functions: CompiledRegion) -> bool:
        name = self.program.name
        others = BackgroundVariants(plan, self._is_worth, lambda error: _warn_once(name, error))
        self.compiled = plan.program_with(*functions, other_variant=others)
        if _is_refused(self.compiled):
            return self._stay_on_aten()
        self.backend, self.current = "inductor", self._tried
        return True

    def _stay_on_aten(self, error: BaseException | None = None) -> bool:
        of_handler = error_of_handler(error)
        if of_handler is not None:  # a signal interrupted the compiler, which may be asked again
            raise of_handler
        self.current = self.aten
        if error is not None:
            _warn_once(self.program.name, error)
        return True

    def _report(self, seconds: float) -> None:
        if self.config.on_stage is not None:
            self.config.on_stage(f"compile {self.backend}", seconds, self.program)

    def _tried(self, *values: Any) -> Sequence[Any]:
        """Run the calls that measure how much time the compiled program saves."""
        if self.program.dimensions is not None:  # the times of calls with different sizes do not compare
            self.current = self.compiled
            return self.compiled(*values)
        out, seconds = self._measured(self.aten if len(self.trial) % 2 else self.compiled, values, True)
        if _is_refused(self.compiled):
            self.backend = "aten"
            self._stay_on_aten()
            return out
        self.trial.append(seconds)
        if len(self.trial) == TRIAL:
            self._decide()
        return out

    def _decide(self) -> None:
        # the first compiled call loads the code
        compiled, captured = (
            min(self.trial[2::2]),
            min(self.trial[1::2]),
        )
        experience.savings.append(1 - compiled / captured)
        self.current = self.compiled
        if compiled > SLOWER * captured:
            self.backend, self.current = "aten", self.aten
            say(
                f"graph {self.program.name}: a compiled call takes {compiled * 1e3:.3g} ms, one of aten"
                f" {captured * 1e3:.3g} ms; it goes back to aten"
            )


def _is_refused(run: Any) -> bool:
    """Whether a compiled program was found to be wrong."""
    return bool(getattr(getattr(run, "region", None), "is_refused", False))


@contextlib.contextmanager
def _this_thread_alone() -> Iterator[bool]:
    """Give True if no other thread compiles or captures meanwhile, else False at once."""
    alone = compiling.acquire(blocking=False)
    try:
        yield alone
    finally:
        if alone:
            compiling.release()


def _capture_seconds(program: Program) -> float:
    captured = [seconds for stage, seconds, _ in program.history if stage == "capture"]
    return captured[0] if captured else CAPTURE_PER_OPERATOR * _count(program.graph)


def _share_left(program: Program, plan: Plan) -> float:
    """Return the share of operators that the compiler gets if a loop over time steps is one layer."""
    operators = _count(program.graph)
    return plan.operators / operators if operators > MANY else 1.0


def _warn_once(name: str, error: BaseException) -> None:
    if name not in _failed:
        _failed.add(name)
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        warnings.warn(
            f"graph {name}: inductor could not compile it ({reason}); it stays on the aten backend",
            stacklevel=9,
        )


def _count(graph: Graph) -> int:
    return sum(n.op == "call_function" for n in graph.nodes)
