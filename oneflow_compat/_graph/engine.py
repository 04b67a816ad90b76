"""The engine: finds or captures the program for the arguments, feeds it live tensors, returns its outputs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._C import _is_any_autocast_enabled
from torch.utils._pytree import TreeSpec

from .._errors import OneFlowError
from .._global.collectives import RanksDiffer, report_failure
from .._global.marks import several
from .._signals import held
from .agreement import agree, captured_by_all, compare_captures, raise_difference
from .assumptions import Assumptions
from .call.branches import BranchTaken
from .call.validity import VALUES
from .capture.build import autocast_of
from .capture.patches.patching import answered_in_build
from .compilation import Compilation
from .compile import compiling, default_backend
from .config import Config
from .cut_step import LeadingLines
from .eager_calls import EagerCalls
from .entry_cache import EntryCache, key_and_leaves
from .errors import CaptureError, RaisedInBuild, TooManyBranches, UsageError
from .explanations import of_changed_options
from .garbage_collection import is_on_for_caller, paused_collection
from .guards.modes import ModeNotice
from .observe import report_local_code, report_mode, report_repeated
from .program.object_trees import local_code_of
from .recapture_log import RecaptureLog

if TYPE_CHECKING:
    from .agreement import Found
    from .call.entry import Entry
    from .cut_step import CutStep
    from .definition import GraphDefinition
    from .explanations import Explanation
    from .guards.guard import Guard
    from .program.program import Program
    from .signature import Signature


_NUMBERS = frozenset([int, float])
_MAX_TRIES = 64  # programs tried for one call, if build() has many branches on sizes
_MAX_OF_FLOATS = 12  # the same for branches on floats, as in a loop that ends when an error is small


class _CapturedDifferently(Exception):
    """A capture of a step failed, and the step is cut in another way now, or branches on floats."""


class Engine:
    """The programs of one build function, called like a function; see the package docstring.

    Threads may call an inference graph together, and share a process with other graphs that train.
    """

    def __init__(self, definition: GraphDefinition, config: Config | None = None) -> None:
        self.definition = definition
        self.name = definition.name
        self.config = config or Config()
        self.assumptions = Assumptions()
        if definition.steps_in_build:  # train() and eval() are the caller's, as all state is
            self.assumptions.modes = {}
        self._mode_notice: ModeNotice | None = None  # None once a changed mode was announced
        self.cache = EntryCache(self.assumptions)
        self._compilation = Compilation(definition, self.config, self.assumptions)
        self._log = RecaptureLog(self.name)
        self.eager_calls = EagerCalls(definition, self.config, self.assumptions)
        # call(args, kwargs) is what a call of the engine does
        self.call: Callable[[tuple[Any, ...], dict[str, Any]], Any]
        self.call = self._called if definition.cut is None else self._of_step

    # -- public -----------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(args, kwargs)

    def _of_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a compiled step: its first and last lines may run in Python."""
        cut = self.definition.cut
        assert cut is not None, "a compiled step has one"
        if (cut.is_cut or cut.leads) and cut.is_changed():
            self._begin_anew()
        if cut.leads:
            return self._of_led_step(cut, args, kwargs)
        try:
            result = self._of_head(args, kwargs)
        except _CapturedDifferently:
            return self._of_step(args, kwargs)
        if type(result) is not tuple:
            return result
        with autocast_of(self.config, args):
            return cut.finish(result, {}, args, kwargs)

    def _of_led_step(self, cut: CutStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a step whose first lines run in Python; a failed capture may add lines to them."""
        lines = LeadingLines(cut, args, kwargs)
        while True:
            with autocast_of(self.config, args):
                lines.run()
                if lines.returned is not None:
                    return lines.returned[0]
                given = lines.arguments()
                if given is None:
                    self._take_leads_back(cut)
                    return lines.run_rest()
            try:
                result = self._of_head(*given)
            except _CapturedDifferently:
                continue
            with autocast_of(self.config, args):
                return cut.finish(result, lines.variables, args, kwargs)

    def _take_leads_back(self, cut: CutStep) -> None:
        self.eager_calls.note_refusal(cut.cause)
        cut.drop_leads()
        self.assumptions.explain_cuts(cut.explanations.values())
        self._begin_anew()

    def _of_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program of a step; numbers among the arguments may be inputs of it."""
        numbers = self.definition.argument_numbers
        assert numbers is not None, "a compiled step has them"
        values = args if not kwargs else (*args, *kwargs.values())
        if _NUMBERS.isdisjoint(map(type, values)) or several():
            return self._called(args, kwargs)
        with numbers.lock:
            return self._called(*numbers.moved(args, kwargs, self.assumptions.numbers))

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        eager, is_tried_again = self.eager_calls, False
        raised: RaisedInBuild | None = None
        if eager.unobserved is not None:
            eager.begin()
            return eager(args, kwargs)
        try:
            found = self._cached(args, kwargs)
            if found is not None:
                if found[0].shared is not None:
                    found = self._agreed(found, args, kwargs, is_run=True)
                return self._run(found, args, kwargs)
            if not eager.take_this_call():
                with held():  # a capture and its first run are one step
                    found = self._agreed(None, args, kwargs, True, eager.are_possible())
                    eager.note_program(found[0])
                    return self._run(found, args, kwargs)
        except UsageError:
            raise
        except CaptureError as error:
            is_tried_again = self._cuts(error)
            eager = self.eager_calls
            if not (is_tried_again or eager.are_possible()):
                raise
            if isinstance(error, RaisedInBuild):
                raised = error
            elif not is_tried_again:
                eager.note_refusal(self._reason_of(error))
        if is_tried_again:
            raise _CapturedDifferently
        if raised is None:
            return eager(args, kwargs)
        try:
            results = eager.of_failed_build(args, kwargs)  # or the error of eager mode
            if not self._cuts_for_raise(raised):
                eager.note_refusal(str(raised))
        finally:
            del raised  # a traceback that holds this frame is a cycle
        return results

    def _reason_of(self, error: CaptureError) -> str:
        """Return why no program can hold the step, for the note that calls run in eager mode."""
        cut = self.definition.cut
        return str(error) if cut is None else cut.reason_of(error)

    def _cuts_for_raise(self, error: RaisedInBuild) -> bool:
        """Whether the step is cut from the next call on, for an error that eager mode did not raise."""
        cut = self.definition.cut
        if cut is None or several() or not cut.adapt_to_raise(error):
            return False
        self.assumptions.explain_cuts(cut.explanations.values())
        self._begin_anew()
        return True

    def _cuts(self, error: CaptureError) -> bool:
        """Whether the step is cut at another line from now on, or branches on floats, for this error."""
        cut, assumptions = self.definition.cut, self.assumptions
        adapted = None if cut is None or several() else cut.adapt(error, assumptions.branches_on_floats)
        if adapted is None:
            return False
        if cut is not None:
            assumptions.explain_cuts(cut.explanations.values())
        assumptions.branches_on_floats = adapted.branches_on_floats
        self._begin_anew()
        return adapted.is_tried_again

    def _begin_anew(self) -> None:
        """Drop all programs, because the step is cut at another line, or is another function."""
        self.cache.clear()
        self.eager_calls = EagerCalls(self.definition, self.config, self.assumptions)

    def _run(self, found: Found, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry, values = found
        assumptions = self.assumptions
        before = assumptions.branches
        if self._mode_notice is not None and self._mode_notice.changed():
            self._mode_notice.tell(self.definition)
            self._mode_notice = None
        try:
            for tried in range(_MAX_TRIES):
                if assumptions.branches_on_floats and tried == _MAX_OF_FLOATS:
                    self.cache.clear()
                    assumptions.branches_on_floats = False
                    raise TooManyBranches(tried)
                try:
                    return entry(values, args, kwargs)
                except BranchTaken as taken:
                    branches = list(entry.branches.items())
                    branch, outcome = branches[taken.index]
                    # the branches after this one may differ now, so they are dropped
                    assumptions.branches = {**dict(branches[: taken.index]), branch: not outcome}
                except RanksDiffer as differ:
                    entry, values = self._settled(differ, (entry, values), args, kwargs)
                    continue
                cached = self._cached(args, kwargs)
                if cached is None or cached[0].shared is not None:
                    may_run_eagerly = self.eager_calls.are_possible()
                    cached = self._agreed(cached, args, kwargs, True, may_run_eagerly)
                entry, values = cached
        except BaseException as error:
            assumptions.branches = before
            if entry.shared is not None and isinstance(error, Exception):
                report_failure(f"graph {self.name}", error)
            raise
        raise OneFlowError(
            f"graph {self.name}: {_MAX_TRIES} programs were tried for one call; build() has"
            " too many branches on sizes"
        )

    def compile(self, *args: Any, **kwargs: Any) -> Program:
        """Capture and compile for these arguments without running. Returns the Program."""
        return self.find(args, kwargs)[0].program

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        """Return the entry that serves this call, captured if there is none, and the values of its slots."""
        if self.eager_calls.unobserved is not None:
            raise self.eager_calls.no_program("compiling or exporting")
        if self.definition.cut is not None and self.definition.cut.leads:
            raise UsageError(
                f"the first lines of {self.name} run in Python, and its program takes what they compute",
                "Call the step: its first call compiles the program.",
            )
        found = self._cached(args, kwargs)
        try:
            if found is not None and found[0].live.numbers:
                with held(), self.assumptions.numbers.suspended():
                    found = self._capture(args, kwargs, anew=True)
                    found[0].keep_changes()
            elif found is None or found[0].shared is not None:
                with held(), self.assumptions.numbers.suspended():
                    found = self._agreed(found, args, kwargs, is_run=False)
                    found[0].keep_changes()
        except CaptureError as error:
            if self._cuts(error):
                return self.find(args, kwargs)
            raise
        return found

    def _agreed(
        self,
        found: Found | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_run: bool,
        may_run_eagerly: bool = False,
    ) -> Found:
        """Return what was found in the cache, or capture it.

        If the call involves other ranks, every rank finds the same program, or every rank raises. `is_run`:
        the entry is called next, and may compute while the ranks exchange what they found.
        `may_run_eagerly`: an error of the capture may lead to a call in eager mode.
        """
        if found is None:
            if not several():
                return self._capture(args, kwargs, may_run_eagerly=may_run_eagerly)
            if not self._is_shared(args, kwargs):
                return self._capture_unshared(args, kwargs)
        try:
            agree(self.name, found, is_run)
        except RanksDiffer as differ:
            return self._settled(differ, found, args, kwargs)
        return found if found is not None else self._capture_by_all(None, args, kwargs)

    def _settled(
        self,
        differ: RanksDiffer,
        found: Found | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Found:
        """Return a program that every rank has captured, if some rank had none, or raise on every rank."""
        raise_difference(self.name, found, differ)
        return self._capture_by_all(found, args, kwargs)

    def _cached(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | None:
        """Return the entry in the cache that serves this call, and the values of its slots, or None."""
        last = self.cache.last
        if last is not None and not kwargs and last.is_alike(args):
            if not self.assumptions.branches and not _is_any_autocast_enabled():
                values = last.prologue.run(args)
                if values is not None:
                    return last, values
        fitting = self.cache.fitting(*key_and_leaves(args, kwargs))
        if fitting is not None and fitting[0] is not self.cache.last:
            return self.cache.move_to_front(fitting)
        return fitting

    def _capture(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        anew: bool = False,
        may_run_eagerly: bool = False,
    ) -> Found:
        """Capture a program for this call.

        `anew`: even if one in the cache serves it. `may_run_eagerly`: what no program follows is an error.
        """
        with compiling:
            key, leaves = key_and_leaves(args, kwargs)
            fitting = None if anew else self.cache.fitting(key, leaves)
            if fitting is not None:  # another thread has added one meanwhile
                return self.cache.move_to_front(fitting)
            variants = self.cache.variants(key)
            explanation = self._note_change(variants[0]) if variants else None
            self._log.note(key, explanation)
            if variants:
                for o, names in variants[0].validity.changed_options().items():
                    self.assumptions.add_live_options(o, names)
                    self.assumptions.explain(of_changed_options(o, names))
            else:
                self._note_local_code(key)
            with answered_in_build(gc, "isenabled", is_on_for_caller()), paused_collection():
                entry = self._make_entry(key, args, kwargs, may_run_eagerly)
            return entry, entry.untested_values(leaves)

    def _capture_by_all(self, found: Found | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        """Capture a program on every rank, because some rank has none; it replaces the one found here.

        If the ranks differ, every rank raises and keeps what it had.
        """
        before = self.cache.last
        discard = lambda: self.cache.discard_after(before)
        captured = captured_by_all(self.name, lambda: self._capture(args, kwargs, anew=True), discard)
        if found is not None:
            self.cache.remove(found[0])
        return captured

    def _capture_unshared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
        """Capture a program of local tensors. If it calls collectives itself, the ranks compare it."""
        before = self.cache.last
        found = self._capture(args, kwargs)
        if found[0].shared is not None:
            try:
                compare_captures(self.name, found)
            except BaseException:
                self.cache.discard_after(before)
                raise
        return found

    def _is_shared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call without a program involves other ranks: its arguments or its state are global."""
        if self.cache.last is not None and self.cache.last.shared is not None:
            return True
        return self.definition.involves_ranks(args, kwargs)

    def _note_change(self, entry: Entry) -> Explanation | None:
        """Record that a value the program assumed fixed has changed; report repeated changes."""
        failure, entry.validity.failure = entry.validity.failure, None
        if failure is None:
            return None
        label = failure.label
        if label == VALUES and entry.guards.fixes_sizes and self.assumptions.let_dependent_sizes_vary():
            return None
        if failure.number is not None:
            self.assumptions.numbers.add([failure.number])
        explanation, count = self.assumptions.explain_failure(failure)
        if self.config.on_change is not None:
            self.config.on_change(explanation)
        report_repeated(self.name, label, count)
        return explanation

    def _note_local_code(self, key: Signature) -> None:
        """Report functions and classes among the arguments that are other ones at call after call."""
        for spec in key:
            for name, code in local_code_of(spec).items() if isinstance(spec, TreeSpec) else ():
                report_local_code(self.name, name, self.assumptions.count_code(name, code))

    @property
    def program(self) -> Program | None:
        last = self.cache.last
        return last.program if last is not None else None

    @property
    def last_entry(self) -> Entry | None:
        """The entry of `program`."""
        return self.cache.last

    @property
    def programs(self) -> list[Program]:
        return [entry.program for entry in self.cache.entries]

    @property
    def proofs(self) -> list[list[str]]:
        """What was compared with the captured operators, for each of `programs`."""
        return [entry.proofs for entry in self.cache.entries]

    @property
    def backend(self) -> str:
        return self.config.backend or default_backend()

    def _make_entry(
        self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], may_run_eagerly: bool
    ) -> Entry:
        """Capture build() for this call, compile the program, and keep it."""
        entry = self._compilation.entry(key, args, kwargs, may_run_eagerly)
        if entry is None:
            return self._make_entry(key, args, kwargs, may_run_eagerly)
        entry.python_guards.notice = self._tell_mode
        if self.cache.last is None:
            self._mode_notice = ModeNotice((self.assumptions.modes or {}).values())
        self.cache.keep(entry, self.config.cache_size)
        return entry

    def _tell_mode(self, guard: Guard) -> None:
        """Say once that the graph keeps the train() or eval() of its first call, if the notice does not."""
        is_noticed = self._mode_notice is not None and self._mode_notice.changed()
        if self.assumptions.is_first_report("mode") and not is_noticed:
            report_mode(self.name, guard)
