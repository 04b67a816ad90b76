"""The engine: finds or captures the program for the arguments, feeds it live tensors, returns its outputs."""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _is_any_autocast_enabled
from torch.utils._pytree import TreeSpec

from .._errors import OneFlowError
from .._global.collectives import RanksDiffer, report_failure
from .._global.marks import several
from .._signals import error_of_handler, held, run_waiting_handlers, second_interrupt_acts_at_once
from .._upstream.missing import error_of
from .agreement import agree, captured_by_all, compare_captures, raise_difference
from .argument_sizes import BACKENDS_WITH_NOTES, remember_sizes
from .assumptions import Assumptions
from .branch_search import MAX_BRANCHED
from .call.branches import BranchTaken
from .call.entry import Entry
from .call.validity import VALUES
from .capture.build import autocast_of, check_leaves
from .capture.patches.patching import answered_in_build
from .capture_attempts import CaptureAttempts
from .compile import compiler_for, compiling, default_backend
from .config import Config
from .cut_step import LeadingLines
from .eager_calls import EagerCalls
from .errors import CaptureError, RaisedInBuild, TooManyBranches, UsageError, warn_user
from .explanations import of_changed_options, of_static_sizes
from .garbage_collection import is_on_for_caller, paused_collection
from .guards.modes import ModeNotice
from .observe import report_local_code, report_mode, report_repeated
from .program import passes
from .program.object_trees import local_code_of
from .program.pytree import tree_flatten
from .recapture_log import RecaptureLog
from .signature import signature, with_autocast

if TYPE_CHECKING:
    from .cut_step import CutStep
    from .definition import GraphDefinition
    from .explanations import Explanation
    from .guards.guard import Guard
    from .program.captured import Captured
    from .program.program import CompiledFunction, Program
    from .signature import Signature


_NUMBERS = frozenset([int, float])
_MAX_VARIANTS = 4
_MAX_DYNAMIC = 64  # programs that serve many sizes, each of them another set
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
        self._mode_notice: ModeNotice | None = None  # until a changed mode was announced
        # signature -> [Entry], one per outcome of guards and options
        self._entries: OrderedDict[Hashable, list[Entry]] = OrderedDict()
        self._last: Entry | None = None
        self._has_dynamic = False  # whether some program serves many sizes
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
                cut = self.definition.cut
                eager.note_refusal(str(error) if cut is None else cut.reason_of(error))
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
        self._forget_programs()
        self.eager_calls = EagerCalls(self.definition, self.config, self.assumptions)

    def _forget_programs(self) -> None:
        self._entries.clear()
        self._last = None

    def _run(
        self, found: tuple[Entry, tuple[Any, ...]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        entry, values = found
        assumptions = self.assumptions
        before = assumptions.branches
        if self._mode_notice is not None and self._mode_notice.changed():
            self._mode_notice.tell(self.definition)
            self._mode_notice = None
        try:
            for tried in range(_MAX_TRIES):
                if assumptions.branches_on_floats and tried == _MAX_OF_FLOATS:
                    self._forget_programs()
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

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, tuple[Any, ...]]:
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
        found: tuple[Entry, tuple[Any, ...]] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_run: bool,
        may_run_eagerly: bool = False,
    ) -> tuple[Entry, tuple[Any, ...]]:
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
        found: tuple[Entry, tuple[Any, ...]] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Entry, tuple[Any, ...]]:
        """Return a program that every rank has captured, if some rank had none, or raise on every rank."""
        raise_difference(self.name, found, differ)
        return self._capture_by_all(found, args, kwargs)

    def _cached(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, tuple[Any, ...]] | None:
        """Return the entry in the cache that serves this call, and the values of its slots, or None."""
        last = self._last
        if last is not None and not kwargs and last.is_alike(args):
            if not self.assumptions.branches and not _is_any_autocast_enabled():
                values = last.prologue.run(args)
                if values is not None:
                    return last, values
        fitting = self._fitting(*_key_and_leaves(args, kwargs))
        if fitting is not None and fitting[0] is not self._last:
            return self._move_to_front(fitting)
        return fitting

    def _capture(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        anew: bool = False,
        may_run_eagerly: bool = False,
    ) -> tuple[Entry, tuple[Any, ...]]:
        """Capture a program for this call.

        `anew`: even if one in the cache serves it. `may_run_eagerly`: what no program follows is an error.
        """
        with compiling:
            key, leaves = _key_and_leaves(args, kwargs)
            fitting = None if anew else self._fitting(key, leaves)
            if fitting is not None:  # another thread has added one meanwhile
                return self._move_to_front(fitting)
            variants = self._variants(key)
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

    def _capture_by_all(
        self, found: tuple[Entry, tuple[Any, ...]] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]]:
        """Capture a program on every rank, because some rank has none; it replaces the one found here.

        If the ranks differ, every rank raises and keeps what it had.
        """
        before = self._last
        captured = captured_by_all(
            self.name, lambda: self._capture(args, kwargs, anew=True), lambda: self._discard(before)
        )
        if found is not None:
            self._remove(found[0])
        return captured

    def _capture_unshared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]]:
        """Capture a program of local tensors. If it calls collectives itself, the ranks compare it."""
        before = self._last
        found = self._capture(args, kwargs)
        if found[0].shared is not None:
            try:
                compare_captures(self.name, found)
            except BaseException:
                self._discard(before)
                raise
        return found

    def _discard(self, before: Entry | None) -> None:
        """Remove the entry that was captured after `before`, and the state that its capture created."""
        entry = self._last
        if entry is not None and entry is not before:
            entry.undo_capture()
            self._remove(entry)
            self._last = before

    def _remove(self, entry: Entry) -> None:
        variants = self._entries.get(entry.key, [])
        if entry in variants:
            variants.remove(entry)
            if not variants:
                del self._entries[entry.key]

    def _is_shared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call without a program involves other ranks: its arguments or its state are global."""
        if self._last is not None and self._last.shared is not None:
            return True
        return self.definition.involves_ranks(args, kwargs)

    def _fitting(self, key: Signature, leaves: Sequence[Any]) -> tuple[Entry, tuple[Any, ...]] | None:
        """Return the entry that serves the call, and the values of its slots, or None."""
        for entry in self._variants(key):
            if self._takes_same_branches(entry):
                values = entry.values(leaves)
                if values is not None:
                    return entry, values
        return None

    def _variants(self, key: Signature) -> list[Entry]:
        """Return the entries of a signature: those of its sizes, then those of all sizes."""
        of_all_sizes = (
            self._entries.get(self.assumptions.argument_sizes.key_of(key), []) if self._has_dynamic else []
        )
        return [*self._entries.get(key, ()), *of_all_sizes]

    def _takes_same_branches(self, entry: Entry) -> bool:
        """Whether the program takes the branches on sizes that the last call took."""
        assumed = self.assumptions.branches
        return not assumed or all(
            entry.branches.get(branch, outcome) == outcome for branch, outcome in assumed.items()
        )

    def _move_to_front(self, fitting: tuple[Entry, tuple[Any, ...]]) -> tuple[Entry, tuple[Any, ...]]:
        entry = fitting[0]
        with compiling:
            variants = self._entries.get(entry.key, [])
            if entry in variants:
                self._entries.move_to_end(entry.key)
                variants.remove(entry)
                variants.insert(0, entry)
            self._last = entry
        return fitting

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
        return self._last.program if self._last is not None else None

    @property
    def programs(self) -> list[Program]:
        return [e.program for variants in self._entries.values() for e in variants]

    @property
    def proofs(self) -> list[list[str]]:
        """What was compared with the captured operators, for each of `programs`."""
        return [e.proofs for variants in self._entries.values() for e in variants]

    @property
    def backend(self) -> str:
        return self.config.backend or default_backend()

    def _make_entry(
        self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], may_run_eagerly: bool
    ) -> Entry:
        """Capture build() for this call, compile the program, and keep it."""
        config = self.config.resolved(self.backend)
        config = replace(config, ends_capture=may_run_eagerly or self.definition.steps_in_build)
        compiler_for(self.backend)  # a missing package is an error before anything is captured
        start = time.perf_counter()
        attempts = CaptureAttempts(self.definition, self.assumptions, key, args, kwargs, config)
        try:
            captured = attempts.captured()
        except (ImportError, AttributeError) as error:
            explained = error_of(f"graph {self.name}", error)  # torch may lack a name that this program needs
            if explained is error:
                raise
            raise explained from error
        try:
            program = self._finish_stage("capture", start, captured.program)
            entry = self._compiled_entry(key, captured.with_program(program), config)
        except BaseException as error:
            captured.effects.undo_capture(captured.live)
            of_handler = error_of_handler(error)
            if of_handler is not None and of_handler is not error:  # a compiler may wrap what it meets
                raise of_handler from None
            raise
        if entry is None:
            captured.effects.undo_capture(captured.live)
            return self._make_entry(key, args, kwargs, may_run_eagerly)
        entry.note_arguments(args, kwargs)
        self._keep(entry, config.cache_size)
        return entry

    def _assume_less(self, key: Signature, captured: Captured, error: Exception) -> bool:
        """Make numbers or sizes of the next capture constants. Return False if this one had no symbols."""
        if captured.live.numbers:
            self.assumptions.numbers.fix_all()
        elif captured.program.dimensions is not None:
            self.assumptions.argument_sizes.keep_static(key)
            self.assumptions.explain(of_static_sizes(error, "compiled"))
        else:
            return False
        return True

    def _compiled_entry(self, key: Signature, captured: Captured, config: Config) -> Entry | None:
        """Compile a captured program. Return None if only the symbols in it keep it from being compiled."""
        program = captured.program
        key_of_entry = self._key_of_entry(key, program, config)
        if config.check:
            program.check()
        overlaps = captured.guards.overlaps
        try:
            if not overlaps:  # passes may move a write across a read of the same memory
                with torch._C._DisableAutocast():  # the casts are in the program
                    program = passes.run(program, config, config.on_stage)
            if captured.guards.serves_one_call or overlaps:  # not worth compiling
                config = replace(config, backend="aten")
            run_waiting_handlers()
            with torch._C._DisableAutocast(), second_interrupt_acts_at_once():
                program, run = self._compile(program, config)
        except Exception as error:
            if error_of_handler(error) is not None or not self._assume_less(key, captured, error):
                raise
            return None
        run_waiting_handlers()
        entry = Entry(key_of_entry, captured.with_program(program), run)
        entry.python_guards.notice = self._tell_mode
        return entry

    def _key_of_entry(self, key: Signature, program: Program, config: Config) -> Signature:
        """Return the key of a program in the cache: without the sizes, if it serves many."""
        if program.dimensions is None:
            return key
        self._has_dynamic = True
        family = self.assumptions.argument_sizes.key_of(key)
        if config.backend in BACKENDS_WITH_NOTES:
            remember_sizes(self.definition, family, self.assumptions.argument_sizes.varied(key))
        return family

    def _keep(self, entry: Entry, cache_size: int) -> None:
        """Put an entry into the cache, in front of the others of its key. Evict those that are too many."""
        variants = self._entries.setdefault(entry.key, [])
        variants[:] = [v for v in variants if v.serves_later_calls]
        variants.insert(0, entry)
        del variants[_most_variants(entry) :]
        if self._last is None:
            self._mode_notice = ModeNotice((self.assumptions.modes or {}).values())
        self._entries.move_to_end(entry.key)
        while len(self._entries) > max(1, cache_size):
            self._entries.popitem(last=False)
        self._last = entry

    def _tell_mode(self, guard: Guard) -> None:
        """Say once that the graph keeps the train() or eval() of its first call, if the notice does not."""
        is_noticed = self._mode_notice is not None and self._mode_notice.changed()
        if self.assumptions.is_first_report("mode") and not is_noticed:
            report_mode(self.name, guard)

    def _compile(self, program: Program, config: Config) -> tuple[Program, CompiledFunction]:
        """Compile a program. Return the program with this stage in its history, and the function.

        If the compiler fails, and the user named no backend, the aten backend runs the program.
        """
        backend, start = config.backend or default_backend(), time.perf_counter()
        try:
            run = compiler_for(backend)(program, config)
        except Exception as error:
            if error_of_handler(error) is not None:
                raise
            cause = error_of(f"the {backend} backend", error)
            message = f"{type(cause).__name__}: {cause}".split("\n", 1)[0]
            if backend == "inductor" and self.config.backend is not None:
                raise OneFlowError(
                    f"graph {self.name}: the inductor backend could not compile it ({message});"
                    " set_backend('auto') or 'aten' runs it"
                ) from error
            if self.config.backend is not None or backend == "aten":
                raise
            warn_user(
                f"graph {self.name}: the {backend} backend could not compile it ({message});"
                " it runs on the aten backend"
            )
            run, backend = compiler_for("aten")(program, config), "aten"
        return self._finish_stage(f"compile {backend}", start, program), run

    def _finish_stage(self, stage: str, start: float, program: Program) -> Program:
        """Report a stage that began at `start`. Return the program with the stage in its history."""
        seconds = time.perf_counter() - start
        if self.config.on_stage is not None:
            self.config.on_stage(stage, seconds, program)
        return program.with_(history=(*program.history, (stage, seconds, program.count())))


def _most_variants(entry: Entry) -> int:
    """Return how many programs of one key are kept."""
    if entry.program.dimensions is not None:
        return _MAX_DYNAMIC
    return MAX_BRANCHED if entry.branches else _MAX_VARIANTS


def _key_and_leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, Sequence[Any]]:
    """Return the signature of a call, with the autocast around it, and the flat arguments."""
    try:
        key, leaves = signature(args, kwargs)
    except RuntimeError:  # a nested tensor has no shape
        check_leaves(tree_flatten((args, kwargs))[0], lambda i: f"argument {i}")
        raise
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        key = with_autocast(key)
    return key, leaves
