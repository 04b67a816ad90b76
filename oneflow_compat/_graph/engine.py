"""The engine: finds or captures the program for the arguments, feeds it live tensors, returns its outputs."""

from __future__ import annotations

import gc
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .._errors import OneFlowError
from .argument_sizes import BACKENDS_WITH_NOTES, ArgumentSizes, remember_sizes, remembered_sizes
from .branch_search import MAX_BRANCHED, BranchSearch
from .call.branches import BranchTaken
from .call.entry import Entry
from .call.module_modes import ModeNotice
from .call.validity import VALUES
from .capture.build import check_leaves
from .capture.capture import Capture
from .capture.patches.interrupts import interrupts_at_operators
from .capture.patches.patching import answered_in_build
from .capture.side_effects.survivors import settle_survivors
from .capture.update.optimizer_state import MoreNumbers
from .compile import compiler_for, compiling, default_backend
from .config import Config
from .errors import CaptureError, SizesNeeded
from .explanations import Explanation, of_change, of_constant_options, of_specialization, of_static_sizes
from .garbage_collection import is_on_for_caller, paused_collection
from .observe import report_mode, report_repeated
from .program import passes
from .program.captured import Captured
from .program.live_numbers import NumberNeeded
from .program.pytree import argument_names, positional_names, tree_flatten
from .signature import signature, with_autocast

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from .argument_sizes import SymbolicDims
    from .capture.recorder import Recorder
    from .observe import Guard
    from .observe.guards.python_guards import Change
    from .program.locations import GroupOption
    from .program.program import CompiledFunction, Program
    from .program.symbolic import Branch
    from .signature import Signature


_MAX_VARIANTS = 4
_WITH_SYMBOLS = {"aten", "inductor", "auto"}  # backends that compile programs with symbols
_MAX_DYNAMIC = 64  # programs that serve many sizes, each of them another set
_MAX_TRIES = 64  # programs tried for one call, if build() has many branches on sizes


class Engine:
    """The programs of one build function, called like a function; see the package docstring.

    Threads may call an inference graph together, and share a process with other graphs that train.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        *,
        modules: Mapping[str, Module] | None = None,
        tensors: Sequence[torch.Tensor] | None = None,
        optimizers: Sequence[Optimizer] = (),
        grad_scaler: Any = None,
        recompute: Any = (),
        config: Config | None = None,
        name: str = "graph",
        owner: object = None,
        writes_through: Callable[[], bool] = lambda: True,
    ) -> None:
        self.build = build
        self.owner = owner
        self.modules = {} if modules is None else modules
        self.tensors = {} if tensors is None else tensors
        self.optimizers = optimizers
        self.grad_scaler = grad_scaler
        self.recompute = recompute
        self.config = config or Config()
        self.name = name
        # whether the caller sees the writes of build() to arguments and captured tensors
        self.writes_through = writes_through
        self.told_of_writes = self.told_of_backward = False
        self.told_of_mode = False
        self.told_of_unfollowed: set[Hashable] = set()
        self.arg_names = positional_names(build)
        self.told_of_containers = False
        # id of a module -> the module, and its train() or eval() at the first capture
        self.modes: dict[int, tuple[Module, bool]] | None = None
        self._mode_notice: ModeNotice | None = None  # until a changed mode was announced
        # optimizer index -> options that changed between calls; they are inputs of later programs
        self.live_options: dict[int, set[str]] = {}
        # locations of options that build() needs as constants; others that it reads are inputs
        self.constant_options: set[GroupOption] = set()
        # signature -> [Entry], one per outcome of guards and options
        self._entries: OrderedDict[Hashable, list[Entry]] = OrderedDict()
        self._last: Entry | None = None
        # True after values that decide sizes have changed (see symbolic_sizes.py). None: unknown sizes did
        # not work, so each set of sizes gets its own program
        self.sizes_vary: bool | None = False
        # branch on sizes -> outcome, of the last call that took another outcome than its program
        self.branches: dict[Branch, bool] = {}
        self.argument_sizes = ArgumentSizes()
        self._has_dynamic = False  # whether some program serves many sizes
        self.explanations: list[Explanation] = []  # of what kept programs from serving more calls
        # label of a watched value -> how often a change of the value needed another program
        self._changes: Counter[str] = Counter()

    # -- public -----------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry, values = self.find(args, kwargs)
        before = self.branches
        if self._mode_notice is not None and self._mode_notice.changed():
            self._mode_notice.tell(self.name)
            self._mode_notice = None
        try:
            for _ in range(_MAX_TRIES):
                try:
                    return entry(values)
                except BranchTaken as taken:
                    branches = list(entry.branches.items())
                    branch, outcome = branches[taken.index]
                    # the branches after this one may differ now, so they are dropped
                    self.branches = {**dict(branches[: taken.index]), branch: not outcome}
                entry, values = self.find(args, kwargs)
        except Exception:
            self.branches = before
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
        try:
            key = signature(args, kwargs)
        except RuntimeError:  # a nested tensor has no shape
            check_leaves(tree_flatten((args, kwargs))[0], lambda i: f"argument {i}")
            raise
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            key = with_autocast(key)
        fitting = self._fitting(key, args, kwargs)
        if fitting is not None:
            return fitting if fitting[0] is self._last else self._move_to_front(fitting)
        with compiling:
            fitting = self._fitting(key, args, kwargs)  # another thread may have added one meanwhile
            if fitting is not None:
                return self._move_to_front(fitting)
            variants = self._variants(key)
            if variants:
                self._note_change(variants[0])
                for o, names in variants[0].validity.changed_options().items():
                    self.live_options.setdefault(o, set()).update(names)
            with answered_in_build(gc, "isenabled", is_on_for_caller()), paused_collection():
                entry = self._make_entry(key, args, kwargs)
            return entry, entry.untested_values(args, kwargs)

    def _fitting(
        self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]] | None:
        """Return the entry that serves the call, and the values of its slots, or None."""
        for entry in self._variants(key):
            if self._takes_same_branches(entry):
                values = entry.values(args, kwargs)
                if values is not None:
                    return entry, values
        return None

    def _variants(self, key: Signature) -> list[Entry]:
        """Return the entries of a signature: those of its sizes, then those of all sizes."""
        of_all_sizes = self._entries.get(self.argument_sizes.key_of(key), []) if self._has_dynamic else []
        return [*self._entries.get(key, ()), *of_all_sizes]

    def _takes_same_branches(self, entry: Entry) -> bool:
        """Whether the program takes the branches on sizes that the last call took."""
        return not self.branches or all(
            entry.branches.get(branch, outcome) == outcome for branch, outcome in self.branches.items()
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

    def _note_change(self, entry: Entry) -> None:
        """Record that a value the program assumed fixed has changed; report repeated changes."""
        label = entry.python_guards.changed
        if label is not None:
            entry.python_guards.changed = None
            if label == VALUES and entry.guards.fixes_sizes and self.sizes_vary is False:
                self.sizes_vary = True
                return
            self._changes[label] += 1
            self._explain_change(label, entry.python_guards.change)
            report_repeated(self.name, label, self._changes[label])

    @property
    def program(self) -> Program | None:
        return self._last.program if self._last is not None else None

    @property
    def programs(self) -> list[Program]:
        return [e.program for variants in self._entries.values() for e in variants]

    @property
    def backend(self) -> str:
        return self.config.backend or default_backend()

    def _make_entry(self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        config = self.config.resolved(self.backend)
        compiler_for(self.backend)  # a missing package is an error before anything is captured
        start = time.perf_counter()
        captured = self._captured_for_sizes(key, args, kwargs, config)
        program = captured.program
        self._report("capture", start, program)
        signature_key = key
        if program.dimensions is not None:
            key, self._has_dynamic = self.argument_sizes.key_of(key), True
            if config.backend in BACKENDS_WITH_NOTES:
                remember_sizes(self, key, self.argument_sizes.varied(signature_key))
        program = program.with_(history=(("capture", time.perf_counter() - start, program.count()),))
        if config.check:
            program.check()
        with torch._C._DisableAutocast():  # the casts are in the program
            if not captured.guards.overlaps:  # passes may move a write across a read of the same memory
                program = passes.run(program, config, config.on_stage)
            start = time.perf_counter()
            # a program that serves one call only is not worth compiling
            operator_by_operator = captured.guards.serves_one_call or captured.guards.overlaps
            try:
                run, backend = self._compile(
                    program, replace(config, backend="aten") if operator_by_operator else config
                )
            except Exception as error:
                captured.effects.remove_created_state(captured.live)
                if program.dimensions is None:
                    raise
                self.argument_sizes.keep_static(signature_key)
                self._explain(of_static_sizes(error.__cause__ or error))
                return self._make_entry(signature_key, args, kwargs)
        self._report(f"compile {backend}", start, program)
        program = program.with_(
            history=program.history + ((f"compile {backend}", time.perf_counter() - start, program.count()),)
        )
        entry = Entry(key, captured.with_program(program), run)
        entry.python_guards.mode_changed = self._tell_mode
        variants = self._entries.setdefault(key, [])
        variants[:] = [v for v in variants if v.serves_later_calls]
        variants.insert(0, entry)
        del variants[_most_variants(entry) :]
        if self._last is None:
            self._mode_notice = ModeNotice(self.modes.values() if self.modes is not None else ())
        self._entries.move_to_end(key)
        while len(self._entries) > max(1, config.cache_size):
            self._entries.popitem(last=False)
        self._last = entry
        return entry

    def _captured_for_sizes(
        self, key: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], config: Config
    ) -> Captured:
        """Capture build().

        Dimensions that vary between calls are symbols, unless build() needs them as numbers.
        """
        sizes, (leaves, spec) = self.argument_sizes, tree_flatten((args, kwargs))
        names = argument_names(spec, self.arg_names) if isinstance(config.dynamic, dict) else ()
        dynamic = config.dynamic if config.backend in _WITH_SYMBOLS and not config.cudagraph else False
        if dynamic is not False and config.backend in BACKENDS_WITH_NOTES:
            sizes.expect(key, lambda family: remembered_sizes(self, family))
        # the explanation of a failure; the error would hold this frame
        failure: Explanation | None = None
        excluded: set[tuple[int, int]] = set()  # (index, dimension) that this call needs as numbers
        while failure is None and (dims := sizes.symbolic_dims(key, leaves, dynamic, names, excluded)):
            try:
                return self._captured(args, kwargs, config, dims)
            except SizesNeeded as needed:
                fixed = sizes.fix(key, needed.specializations)
                excluded |= {(item.argument, item.dim) for item in needed.specializations}
                for item in needed.specializations:
                    self._explain(of_specialization(item, item in fixed))
            except Exception as error:
                failure = of_static_sizes(error)
        captured = self._captured(args, kwargs, config)
        if failure is not None:  # the symbols were at fault, and not build() itself
            sizes.keep_static(key)
            self._explain(failure)
        return captured

    def _tell_mode(self, guard: Guard) -> None:
        """Say once that the graph keeps the train() or eval() of its first call."""
        if not self.told_of_mode:
            self.told_of_mode = True
            report_mode(self.name, guard)

    def _explain_change(self, label: str, change: Change | None) -> None:
        """Note which guard failed: the latest change of a label, and how often it changed."""
        explanation = of_change(label, change, self._changes[label])
        self.explanations[:] = [e for e in self.explanations if e.subject != explanation.subject]
        self.explanations.append(explanation)
        if self.config.on_change is not None:
            self.config.on_change(self.explanations[-1])

    def _explain(self, explanation: Explanation) -> None:
        if explanation not in self.explanations:
            self.explanations.append(explanation)

    def _captured(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], config: Config, dims: SymbolicDims | None = None
    ) -> Captured:
        """Capture build(), with these dimensions of arguments as symbols.

        Options of optimizers that build() reads are inputs of the program, unless build() fails with these.
        """
        inputs: set[GroupOption] = set()
        try:
            return self._captured_with_branches(args, kwargs, config, dims, inputs)
        except SizesNeeded:
            raise
        except Exception as error:
            if inputs <= self.constant_options:
                raise
            explanation = of_constant_options(error)
        before = set(self.constant_options)
        self.constant_options |= inputs
        try:
            captured = self._captured_with_branches(args, kwargs, config, dims, inputs)
        except Exception:
            self.constant_options = before
            raise
        self._explain(explanation)
        return captured

    def _captured_with_branches(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        config: Config,
        dims: SymbolicDims | None,
        inputs: set[GroupOption],
    ) -> Captured:
        """Capture build(). Add the options of optimizers that are inputs to `inputs`.

        The outcome of a branch on sizes may be a guess. If build() raises after such a branch, the other
        outcome is captured, and the program tests it.

        build() may also raise with unknown sizes in any case, because it needs their values, or the same
        values in every call. Then each set of sizes gets its own program.
        """
        search = BranchSearch(self.branches)
        try:
            captured, recorder = self._first_that_captures(args, kwargs, config, dims, inputs, search)
        finally:
            search.errors.clear()  # their tracebacks hold this frame: a cycle, which would keep the arguments
        fakes = recorder.fakes
        recorder.release()
        del recorder  # it holds fake tensors, too
        return settle_survivors(fakes, self.name, captured)

    def _first_that_captures(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        config: Config,
        dims: SymbolicDims | None,
        inputs: set[GroupOption],
        search: BranchSearch,
    ) -> tuple[Captured, Recorder]:
        """Capture build() with one outcome of branches after another, until it does not raise."""
        sizes_vary = self.sizes_vary
        while True:
            capture = Capture(self, args, kwargs, config, search.outcomes, dims)
            capture.option_inputs = inputs
            try:
                with interrupts_at_operators():
                    return capture.run(), capture.recorder
            except MoreNumbers as request:
                self.live_options.setdefault(request.optimizer, set()).add(request.key)
            except (SizesNeeded, NumberNeeded):
                raise
            except Exception as error:
                if not self._prepare_retry(error, search, capture.recorder.sizes.branches):
                    self.sizes_vary = sizes_vary  # build() fails with known sizes, too
                    raise search.errors[0]

    def _prepare_retry(self, error: Exception, search: BranchSearch, branches: Mapping[Branch, bool]) -> bool:
        """Whether another capture may succeed after this error of build(), which took these branches.

        It does not raise itself: its frame in the traceback of the error would be a cycle.
        """
        if isinstance(error, CaptureError) and self.sizes_vary:
            self.sizes_vary = None
            return True
        if search.turn_last_guess(error, branches):
            return True
        if self.sizes_vary:
            self.sizes_vary = None
            search.restart()
            return True
        return False

    def _compile(self, program: Program, config: Config) -> tuple[CompiledFunction, str]:
        backend = config.backend or default_backend()
        try:
            return compiler_for(backend)(program, config), backend
        except Exception as error:
            message = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            if backend == "inductor" and self.config.backend is not None:
                raise OneFlowError(
                    f"graph {self.name}: the inductor backend could not compile it ({message});"
                    " set_backend('auto') or 'aten' runs it"
                ) from error
            if self.config.backend is not None or backend == "aten":
                raise
            warnings.warn(
                f"graph {self.name}: the {backend} backend could not compile it ({message});"
                " it runs on the aten backend",
                stacklevel=5,
            )
            return compiler_for("aten")(program, config), "aten"

    def _report(self, stage: str, start: float, program: Program) -> None:
        if self.config.on_stage is not None:
            self.config.on_stage(stage, time.perf_counter() - start, program)


def _most_variants(entry: Entry) -> int:
    """How many programs of one key are kept."""
    if entry.program.dimensions is not None:
        return _MAX_DYNAMIC
    return MAX_BRANCHED if entry.branches else _MAX_VARIANTS
