"""`autotest`: sample cases through Hypothesis, run them on both sides, check them, and report the smallest
failure.
"""

from __future__ import annotations

import functools
import importlib.util
import random as python_random
import time
import unittest
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import config, search, source, summary
from .blame import shown_path, with_users_traceback
from .case import Case, Step
from .check import check, check_results, flatten_outputs
from .config import Options
from .contract import CHECKS
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .graph_check import CHECKED, REFUSED, check_graph
from .known import KnownFailure
from .printing import SourceWriter
from .report import annotate
from .search import Rejected
from .verdict import DEFAULT_ATOL, DEFAULT_RTOL, SAME_KERNELS

if TYPE_CHECKING:
    import torch

    from .pair import Pair
    from .source import SourceOfCase

ATTEMPTS_PER_RUN = 20  # refused cases allowed for each valid one asked for
SEEDS = 1 << 16
DTYPE_CHOICES = 18  # the last nine are not float32


class _Stop(unittest.SkipTest):
    """Leave Hypothesis at once (it lets skips pass through); never seen outside this file."""


class _Run:
    """All cases of one test."""

    def __init__(
        self,
        pair: Pair,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        n: int,
        options: Options,
    ) -> None:
        self.pair, self.f, self.args, self.kwargs, self.n, self.options = pair, f, args, kwargs, n, options
        self.test_id = f"{getattr(f, '__module__', '')}.{f.__qualname__}"
        self.outcome = summary.Outcome(source.seed_of(self.test_id))
        seconds = config.get_float("ONEFLOW_TEST_SECONDS")
        self.ends = time.monotonic() + seconds if seconds else float("inf")
        # (case, exception) of the last failing case; Hypothesis runs the smallest one last
        self.failed: tuple[Case, Exception] | None = None
        self.first_failure: Exception | None = None
        self.refusal: Exception | None = None
        self.votes: dict[torch.dtype, int] = {}
        self.refused_dtypes: set[torch.dtype] = set()

    # ------------------------------------------------------------------ one case
    def run_case(self, choices: SourceOfCase) -> None:
        # Hypothesis first tries the simplest case, then cases that are simplest from some choice on.
        # Rejecting a second choice of 0 keeps such cases for shrinking. Nothing else uses this choice.
        seed, not_simplest = choices.integer(0, SEEDS), choices.integer(0, SEEDS)
        if not_simplest == 0:
            raise Rejected
        self.outcome.attempts += 1
        self.stop_at_limits()
        self.seed_everything(seed)
        dtype = self.sampled_dtype(choices.integer(0, DTYPE_CHOICES)) if self.is_breaking else None
        case = Case(self.pair, self.options, seed, on_step=self.print_step if self.options.verbose else None)
        case.dtype = dtype
        case.has_second_order = self.is_breaking and choices.integer(0, 5) == 4
        try:
            self.run_and_check(case, choices)
        except PyTorchDoesNotSupportError as e:
            self.refusal = e
            self.outcome.refused += 1
            self.note_dtype(dtype, -1)
            if self.options.verbose:
                print(f"[autotest] refused: {e}", flush=True)
            raise Rejected from None
        except (unittest.SkipTest, Rejected):
            raise
        except Exception as e:
            if type(e).__module__.startswith("hypothesis."):  # about its own drawing, not the case
                raise
            if self.first_failure is not None and not is_same_failure(self.first_failure, e):
                return  # a smaller case of another difference would hide this one
            self.first_failure, self.failed = self.first_failure or e, (case, e)
            raise
        self.count(case)
        self.note_dtype(dtype, 1)

    def stop_at_limits(self) -> None:
        if self.outcome.cases == 0 and self.outcome.attempts > ATTEMPTS_PER_RUN * self.n + 20:
            raise _Stop("no case is accepted")
        if time.monotonic() > self.ends and self.first_failure is None and self.outcome.cases:
            raise _Stop("the time is over")

    def count(self, case: Case) -> None:
        """Count a case that agrees."""
        self.outcome.cases += 1
        self.outcome.graphs += case.graph_outcome == CHECKED
        if case.graph_outcome not in ("", CHECKED):
            self.outcome.without_graph[case.graph_outcome] += 1

    @property
    def is_breaking(self) -> bool:
        return self.options.like != "oneflow"

    def sampled_dtype(self, choice: int) -> torch.dtype | None:
        """Return the dtype of a case: float32 (None) in one of two, or one that both sides have."""
        dtypes = self.pair.float_dtypes if self.pair.level == SAME_KERNELS else []
        dtype = dtypes[choice % len(dtypes)] if choice >= DTYPE_CHOICES // 2 and dtypes else None
        return None if dtype in self.refused_dtypes else dtype

    def note_dtype(self, dtype: torch.dtype | None, vote: int) -> None:
        """Stop sampling a dtype that a test refused three times and never accepted."""
        if dtype is None or self.first_failure is not None:
            return
        self.votes[dtype] = 100 if vote > 0 else self.votes.get(dtype, 0) + vote
        if self.votes[dtype] <= -3:
            self.refused_dtypes.add(dtype)

    def print_step(self, case: Case, step: Step) -> None:
        print(f"[autotest] {SourceWriter(self.pair).step(case, step)}", flush=True)

    def run_and_check(self, case: Case, choices: SourceOfCase) -> None:
        with source.drawing_from(choices), case:
            try:
                case.outputs = flatten_outputs(self.f(*self.args, **self.kwargs))
            except (PyTorchDoesNotSupportError, unittest.SkipTest):
                raise
            except Exception as e:
                # a mismatch of this call alone, which may have written its inputs
                if getattr(e, "check", "") in CHECKS:
                    raise
                try:
                    check_results(case)
                except Mismatch as earlier:  # an earlier difference is the cause
                    raise earlier from e
                raise
            check(case)
            if self.options.check_graph:
                check_graph(case)

    def seed_everything(self, seed: int) -> None:
        python_random.seed(seed)
        np.random.seed(seed)
        generator = getattr(self.pair.reference, "default_generator", None)
        if generator is not None:
            generator.manual_seed(seed)

    # ------------------------------------------------------------------ all cases
    def run(self) -> None:
        """Run the cases; raise the smallest failure."""
        __tracebackhide__ = True
        started = time.monotonic()
        try:
            self.run_all()
        finally:
            self.outcome.seconds = time.monotonic() - started
            summary.outcomes.append(self.outcome)
        if self.options.verbose:
            print(f"[autotest] {self.f.__name__}: {self.outcome.cases} cases agree", flush=True)

    def run_all(self) -> None:
        __tracebackhide__ = True
        try:
            self.search()
        except _Stop:
            if self.failed is None and not self.outcome.cases:
                self.raise_nothing_accepted()
            if self.failed is not None:
                self.report(None)
        except unittest.SkipTest:
            raise
        except Exception as e:
            # Hypothesis gave up before the limit
            if type(e).__name__ == "Unsatisfiable" and self.failed is None and self.refusal is not None:
                self.raise_nothing_accepted()
            self.report(e)
        self.refuse_without_graphs()

    def refuse_without_graphs(self) -> None:
        """Raise if the candidate refused a graph of every case: the test asks for graphs, and tested none."""
        refused = {
            reason: n for reason, n in self.outcome.without_graph.items() if reason.startswith(REFUSED)
        }
        if self.is_breaking and refused and sum(refused.values()) == self.outcome.cases:
            self.outcome.check = "graph refused"
            raise Mismatch(
                self.outcome.check,
                f"{self.pair.names[1]} refused the graph of all {self.outcome.cases} cases of {self.test_id};"
                f" the last one {list(refused)[-1]}\n"
                "say @autotest(check_graph=False) if the program cannot be a graph",
            )

    def raise_nothing_accepted(self) -> None:
        """Raise a skip if the candidate alone runs the program, otherwise an error."""
        name = self.pair.names[0]
        if self.pair.accepts_more and not isinstance(self.refusal, BothDoNotSupportError):
            raise unittest.SkipTest(
                f"{name} refuses every case, so there is nothing to compare with: {self.refusal}"
            ) from None
        raise ValueError(
            f"autotest: {name} refused all {self.outcome.attempts} cases of {self.test_id},"
            f" so nothing was tested; last refusal: {self.refusal}"
        ) from None

    def search(self) -> None:
        assert self.outcome.seed is not None
        if importlib.util.find_spec("hypothesis") is not None:
            return search.search(self.run_case, self.n, self.test_id, self.outcome.seed)
        # random cases; a failure is neither shrunk nor kept
        for attempt in range(ATTEMPTS_PER_RUN * self.n + 20):
            if self.outcome.cases == self.n:
                return
            try:
                self.run_case(source.SeededSource((self.outcome.seed, attempt)))
            except Rejected:
                continue
        if self.outcome.cases == 0:
            raise _Stop("no case is accepted")

    def report(self, error: BaseException | None) -> None:
        """Raise the smallest failing case with its script; `error` came out of Hypothesis."""
        __tracebackhide__ = True
        if self.failed is None:
            assert error is not None
            raise error
        case, cause = self.failed
        self.outcome.check = getattr(cause, "check", "") or type(cause).__name__
        step = blamed_step(cause, case)
        code, line = (step.code, step.line) if step is not None else (None, 0)
        if step is not None:
            self.outcome.step = SourceWriter(self.pair).step(case, step)
        if code is not None:
            self.outcome.file, self.outcome.line = shown_path(code.co_filename), line
        flaky = any(c.__name__.startswith("Flaky") for c in type(error).__mro__)
        annotate(cause, case, self.outcome, self.test_id, flaky)
        raise with_users_traceback(cause, code, line) from cause.__cause__


def blamed_step(error: BaseException, case: Case) -> Step | None:
    """Return the step that an error is about: the one that raised it, or the one whose result differs."""
    step = getattr(error, "failed_step", None) or getattr(error, "differing_step", None)
    return step or (case.steps[-1] if case.steps else None)


# A smaller case may be this much nearer to the float64 value. Beyond LARGE ULP, the size says nothing more.
NEARER, LARGE = 4, 4096


def is_same_failure(first: Exception, error: Exception) -> bool:
    """Whether `error` is of the same check as the first failure, and about as large."""
    if not isinstance(first, Mismatch) or not isinstance(error, Mismatch):
        return type(first) is type(error)
    return first.check == error.check and error.distance >= min(first.distance, LARGE) / NEARER


def make_autotest(pair: Pair) -> Callable[..., Any]:
    """Return the decorator `autotest` for one pair of libraries."""

    def autotest(
        n: int | None = 20,
        auto_backward: object = True,
        rtol: float | None = DEFAULT_RTOL,
        atol: float | None = DEFAULT_ATOL,
        check_graph: bool | str = True,
        check_allclose: bool = True,
        check_dtype: bool | None = None,
        check_grad_use_random_data: bool = True,
        include_complex: bool = False,
        like: str | None = None,
        gradcheck: bool = False,
        known: KnownFailure | None = None,
    ) -> Callable[..., Any]:
        """Run the test on n sampled cases and compare the two libraries.

        check_graph: True also runs the program as one graph; False or "ValidatedFalse" does not.
        auto_backward: run backward from the returned tensors that require a gradient. A library without
            gradients needs False. A case that both libraries refuse is sampled again.
        check_dtype: compare float dtypes; by default at the level "same kernels". Other dtypes always are.
        like: "oneflow" samples by the defaults of OneFlow's harness, "kernels" what breaks kernels.
        gradcheck: check second derivatives, numerical gradients and forward mode in each case.
        known: `known_failure(reason, until=..., check=...)`: the test must fail in this way until then.
        """

        def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(f)
            def run(*args: Any, **kwargs: Any) -> None:
                __tracebackhide__ = True
                mode = config.get("ONEFLOW_TEST_GRAPH")
                graph = check_graph is True if mode == "on" else mode == "all"
                sampling = config.get("ONEFLOW_TEST_LIKE") or like or pair.like
                is_strict = pair.level == SAME_KERNELS and sampling != "oneflow"
                options = Options(
                    auto_backward,
                    None if rtol == DEFAULT_RTOL else rtol,
                    None if atol == DEFAULT_ATOL else atol,
                    graph,
                    check_allclose,
                    is_strict if check_dtype is None else check_dtype,
                    check_grad_use_random_data,
                    include_complex,
                    config.get("ONEFLOW_TEST_ERRORS"),
                    config.is_set("ONEFLOW_TEST_VERBOSE"),
                    sampling,
                    gradcheck,
                )
                cases = _Run(pair, f, args, kwargs, config.get_int("ONEFLOW_TEST_N", n), options)
                if known is None:
                    cases.run()
                else:
                    known.expect(cases.run)

            return run

        if callable(n):  # @autotest without parentheses
            f, n = n, 20
            return decorate(f)
        return decorate

    return autotest
