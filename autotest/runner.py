"""`autotest`: sample cases through Hypothesis, run them on both sides, check them, and report the smallest
failure.
"""

from __future__ import annotations

import contextlib
import functools
import random as python_random
import time
import unittest
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import config, source, summary
from .case import Case, Step
from .check import check, check_results, flatten_outputs
from .config import Options
from .contract import CHECKS
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .graph_check import check_graph
from .printing import SourceWriter
from .report import annotate
from .verdict import DEFAULT_ATOL, DEFAULT_RTOL, SAME_KERNELS

if TYPE_CHECKING:
    import hypothesis
    import torch
    from hypothesis.database import ExampleDatabase

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
        self.valid = self.attempts = 0
        # (case, exception) of the last failing case; Hypothesis runs the smallest one last
        self.failed: tuple[Case, Exception] | None = None
        self.first_failure: Exception | None = None
        self.refusal: Exception | None = None
        self.graph_outcomes: list[str] = []
        self.votes: dict[torch.dtype, int] = {}
        self.refused_dtypes: set[torch.dtype] = set()

    # ------------------------------------------------------------------ one case
    def run_case(self, choices: SourceOfCase) -> None:
        # Hypothesis first tries the simplest case, then cases that are simplest from some choice on.
        # Rejecting a second choice of 0 keeps such cases for shrinking. Nothing else uses this choice.
        seed, not_simplest = choices.integer(0, SEEDS), choices.integer(0, SEEDS)
        if not_simplest == 0:
            raise _Rejected
        self.attempts += 1
        if self.valid == 0 and self.attempts > ATTEMPTS_PER_RUN * self.n + 20:
            raise _Stop("no case is accepted")
        self.seed_everything(seed)
        dtype = self.sampled_dtype(choices.integer(0, DTYPE_CHOICES)) if self.is_breaking else None
        case = Case(self.pair, self.options, seed, on_step=self.print_step if self.options.verbose else None)
        case.dtype = dtype
        case.has_second_order = self.is_breaking and choices.integer(0, 5) == 4
        try:
            self.run_and_check(case, choices)
        except PyTorchDoesNotSupportError as e:
            self.refusal = e
            self.note_dtype(dtype, -1)
            if self.options.verbose:
                print(f"[autotest] refused: {e}", flush=True)
            raise _Rejected from None
        except (unittest.SkipTest, _Rejected):
            raise
        except Exception as e:
            if type(e).__module__.startswith("hypothesis."):  # about its own drawing, not the case
                raise
            if self.first_failure is not None and not is_same_failure(self.first_failure, e):
                return  # a smaller case of another difference would hide this one
            self.first_failure, self.failed = self.first_failure or e, (case, e)
            raise
        self.valid += 1
        self.graph_outcomes.append(case.graph_outcome)
        self.note_dtype(dtype, 1)

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
                if getattr(e, "check", "") in CHECKS:  # of this call alone, which may have written its inputs
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
        test_id = f"{getattr(self.f, '__module__', '')}.{self.f.__qualname__}"
        seed = source.seed_of(test_id)
        started = time.monotonic()
        try:
            self.search(test_id, seed)
        except _Stop:
            if self.failed is None:
                self.raise_nothing_accepted(test_id)
            self.report(None, seed, test_id)
        except unittest.SkipTest:
            raise
        except Exception as e:
            # Hypothesis gave up before the limit
            if type(e).__name__ == "Unsatisfiable" and self.failed is None and self.refusal is not None:
                self.raise_nothing_accepted(test_id)
            self.report(e, seed, test_id)

        summary.note(self.valid, self.attempts, time.monotonic() - started)
        self.refuse_without_graphs(test_id)
        if self.options.verbose:
            print(f"[autotest] {self.f.__name__}: {self.valid} cases agree", flush=True)

    def refuse_without_graphs(self, test_id: str) -> None:
        """Raise if the candidate refused a graph of every case: the test asks for graphs, and tested none."""
        refusals = [outcome for outcome in self.graph_outcomes if outcome.startswith("refused")]
        if self.is_breaking and refusals and len(refusals) == len(self.graph_outcomes):
            raise Mismatch(
                "graph refused",
                f"{self.pair.names[1]} refused the graph of all {self.valid} cases of {test_id}; the last one"
                f" {refusals[-1]}\nsay @autotest(check_graph=False) if the program cannot be a graph",
            )

    def raise_nothing_accepted(self, test_id: str) -> None:
        """Raise a skip if the candidate alone runs the program, otherwise an error."""
        name = self.pair.names[0]
        if self.pair.accepts_more and not isinstance(self.refusal, BothDoNotSupportError):
            raise unittest.SkipTest(
                f"{name} refuses every case, so there is nothing to compare with: {self.refusal}"
            ) from None
        raise ValueError(
            f"autotest: {name} refused all {self.attempts} cases of {test_id}, so nothing was tested; last"
            f" refusal: {self.refusal}"
        ) from None

    def search(self, test_id: str, seed: int) -> None:
        try:
            import hypothesis
            from hypothesis import strategies
        except ImportError:
            return self.search_without_hypothesis(seed)

        # seed() also switches the example database off; the settings applied after it switch it on again
        body = hypothesis.given(data=strategies.data())(hypothesis.seed(seed)(_named(self.run_case)))
        with _shrinking_limited(config.get_int("ONEFLOW_TEST_SHRINK_SECONDS")):
            _settings(self.n, test_id)(body)()

    def search_without_hypothesis(self, seed: int) -> None:
        """Run random cases; a failure is neither shrunk nor kept."""
        for attempt in range(ATTEMPTS_PER_RUN * self.n + 20):
            if self.valid == self.n:
                return
            try:
                self.run_case(source.SeededSource((seed, attempt)))
            except _Rejected:
                continue
        if self.valid == 0:
            raise _Stop("no case is accepted")

    def report(self, error: BaseException | None, seed: int, test_id: str) -> None:
        """Raise the smallest failing case with its script; `error` came out of Hypothesis."""
        if self.failed is None:
            assert error is not None
            raise error
        case, cause = self.failed
        flaky = any(c.__name__.startswith("Flaky") for c in type(error).__mro__)
        raise annotate(cause, case, seed, test_id, self.attempts, flaky) from cause.__cause__


# A smaller case may be this much nearer to the float64 value. Beyond LARGE ULP, the size says nothing more.
NEARER, LARGE = 4, 4096


def is_same_failure(first: Exception, error: Exception) -> bool:
    """Whether `error` is of the same check as the first failure, and about as large."""
    if not isinstance(first, Mismatch) or not isinstance(error, Mismatch):
        return type(first) is type(error)
    return first.check == error.check and error.distance >= min(first.distance, LARGE) / NEARER


class _Rejected(Exception):
    """The case does not count; another one is sampled."""


def _named(method: Callable[[SourceOfCase], None]) -> Callable[[Any], None]:
    import hypothesis

    def cases(data: Any) -> None:
        try:
            method(source.HypothesisSource(data))
        except _Rejected:
            hypothesis.reject()

    return cases


@contextlib.contextmanager
def _shrinking_limited(seconds: int) -> Iterator[None]:
    """Let Hypothesis itself end shrinking after this time; it has no setting for that."""
    from hypothesis.internal.conjecture import engine

    before = getattr(engine, "MAX_SHRINKING_SECONDS", None)
    if before is None:  # another version: shrinking ends by Hypothesis's own limits
        yield
        return
    engine.MAX_SHRINKING_SECONDS = seconds
    try:
        yield
    finally:
        engine.MAX_SHRINKING_SECONDS = before


def _settings(n: int, test_id: str) -> hypothesis.settings:
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity

    return hypothesis.settings(
        max_examples=n,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate] if config.several_ranks() else [Phase.reuse, Phase.generate, Phase.shrink],
        database=database(test_id),
    )


@functools.cache
def _store(folder: str) -> ExampleDatabase | None:
    """Return the example database: Hypothesis's default for an empty name, None for "none"."""
    import hypothesis
    from hypothesis.database import DirectoryBasedExampleDatabase

    if folder == "none":
        return None
    default: Any = hypothesis.settings.default
    return DirectoryBasedExampleDatabase(folder) if folder else default.database


def database(test_id: str) -> ExampleDatabase | None:
    """Return the failing examples of this test only; Hypothesis tells tests apart by their source, which ours
    share.
    """
    folder = config.get("ONEFLOW_TEST_DATABASE")
    if not folder and config.is_set("CI") or config.several_ranks():
        return None
    store = _store(folder)
    return None if store is None else _keyed_class()(store, test_id)


@functools.cache
def _keyed_class() -> type:
    from hypothesis.database import ExampleDatabase

    class KeyedDatabase(ExampleDatabase):
        def __init__(self, store: ExampleDatabase, test_id: str) -> None:
            super().__init__()
            self.store, self.prefix = (
                store,
                zlib.crc32(test_id.encode()).to_bytes(4, "big") + test_id.encode()[-40:],
            )

        def fetch(self, key: bytes) -> Iterable[bytes]:
            return self.store.fetch(self.prefix + key)

        def save(self, key: bytes, value: bytes) -> None:
            self.store.save(self.prefix + key, value)

        def delete(self, key: bytes, value: bytes) -> None:
            self.store.delete(self.prefix + key, value)

        def move(self, src: bytes, dest: bytes, value: bytes) -> None:
            self.store.move(self.prefix + src, self.prefix + dest, value)

    return KeyedDatabase


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
    ) -> Callable[..., Any]:
        """Run the test on n sampled cases and compare the two libraries.

        check_graph: True also runs the program as one graph; False or "ValidatedFalse" does not.
        auto_backward: run backward from the returned tensors that require a gradient. A library without
            gradients needs False. A case that both libraries refuse is sampled again.
        check_dtype: compare float dtypes; by default at the level "same kernels". Other dtypes always are.
        like: "oneflow" samples by the defaults of OneFlow's harness, "kernels" what breaks kernels.
        gradcheck: check second derivatives, numerical gradients and forward mode in each case.
        """

        def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(f)
            def run(*args: Any, **kwargs: Any) -> None:
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
                _Run(pair, f, args, kwargs, config.get_int("ONEFLOW_TEST_N", n), options).run()

            return run

        if callable(n):  # @autotest without parentheses
            f, n = n, 20
            return decorate(f)
        return decorate

    return autotest
