"""The validity tests of a captured program, in the order of the prologue."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..guards.adoption import TensorPlaces
from ..guards.argument_facts import ArgumentFact, ArgumentFacts
from ..guards.conditions import compile_guard
from ..guards.failure import Failure
from ..guards.guard import Policy
from ..guards.guard_set import GuardSet, named_reads, settle_values, with_layouts
from ..guards.layouts import has_plain_layout
from ..guards.memory import MemoryIdentity
from ..guards.optimizers import OptimizerIdentity
from ..guards.tensors import TensorIdentity, TensorSlot
from ..program.captured import Captured
from ..program.locations import (
    Gradient,
    GroupOption,
    LiveState,
    ModuleTensor,
    OptimizerParameter,
    OptimizerState,
    PythonNumber,
    StateEntry,
)
from ..program.nested_state import copied
from ..program.program import Program
from ..program.python_values import MISSING, tensor_meta
from .prologue import Prologue, Scope, Stage, Test

if TYPE_CHECKING:
    from torch.optim import Optimizer


VALUES = "a tensor that build() branches on or reads with .item()"


@dataclass(frozen=True)
class FixedOptions:
    """The options of a parameter group that are constants in the program, with their values."""

    optimizer: int
    group: int
    names: tuple[str, ...]
    values: tuple[Any, ...]
    has_tensors: bool = False

    def getter(self) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
        """Return the function from a parameter group to its values of these options.

        A program reads a tensor where it lies, so only its metadata is fixed.
        """
        names = self.names
        if self.has_tensors:
            return lambda group: tuple(_fixed_part(group.get(name, MISSING)) for name in names)
        return operator.itemgetter(*names) if len(names) > 1 else lambda group: tuple(group[n] for n in names)


class Validity:
    """The tests that decide whether a captured program serves a call; `tests` lists them."""

    def __init__(self, captured: Captured) -> None:
        self.program, self.guards, self.live = captured.program, captured.guards, captured.live
        # no later call can be served: optimizer state was replaced, or the program served its only call
        self.dead = False
        # why the program does not serve a call, or will serve no other one, until the engine takes note
        self.failure = self.guards.ending
        self.python_guards = _python_guards(captured)
        self.options = tuple(_fixed_options(captured))
        self._tensors: TensorIdentity | None = None
        self._guard = compile_guard(self.program) if self.program.guard is not None else None
        self.prologue = Prologue(self.program, self.live, self.tests)

    @property
    def tensors(self) -> TensorIdentity:
        """The test of named tensors, which exists once the prologue has asked for the tests."""
        assert self._tensors is not None
        return self._tensors

    def tests(self, scope: Scope, tensors: tuple[TensorSlot, ...]) -> Sequence[Test]:
        """Return all validity tests in their order."""
        self._names = scope.names
        self.optimizers = OptimizerIdentity(self.live.optimizers, _differentiated(self.program, self.live))
        if self._tensors is None:
            self._tensors = TensorIdentity(
                tensors, self.live.aliases, self.guards.merged, self.program.training
            )
        else:
            self._tensors.bind(tensors)
        self.memory = MemoryIdentity(
            self.program, self.guards.overlaps, self.guards.merged, self.guards.merged_free
        )
        self._optimizer_checker = scope.bind(self.optimizers.checker)
        named_tensors = scope.bind(self._tensors.guards)
        return (
            Test("sizes of arguments", self._same_sizes(scope), Stage.ARGUMENTS),
            Test("facts of arguments", self._same_facts(scope), Stage.ARGUMENTS),
            Test("program serves further calls", f"not {scope.bind(self)}.dead"),
            Test(
                "optimizers",
                f"{self._optimizer_checker}.first_change() is None",
                on_failure=self._look_at_optimizers,
            ),
            Test("values read from Python", self._same_python_values(scope)),
            Test("options of parameter groups", self._same_options(scope)),
            Test(
                "named tensors",
                f"{named_tensors}.first_change() is None",
                Stage.TENSORS,
                self._look_at_tensors,
            ),
            Test("numbers", self._same_types(), Stage.VALUES, self._note_types),
            Test("gradients", self._same_gradients(scope), Stage.VALUES, self._note_gradients),
            Test("values that build() read", self._same_values(scope), Stage.VALUES, self._note_values),
            Test("shared memory", self._same_memory(scope), Stage.VALUES, self._note_memory),
        )

    def _same_sizes(self, scope: Scope) -> str:
        """The key of the entry has all sizes but those that are symbols."""
        dimensions = self.program.dimensions
        return f"{scope.bind(dimensions.compile())}(args)" if dimensions is not None else ""

    def _same_facts(self, scope: Scope) -> str:
        facts = ArgumentFacts(self.guards.argument_facts, self._fact_fails)
        return f"{scope.bind(facts.hold)}(args)" if facts.facts else ""

    def _fact_fails(self, fact: ArgumentFact, value: object) -> bool:
        return self._holds(Failure(fact.label, repr(fact.value), repr(value), fact.code_location))

    def _holds(self, failure: Failure | None) -> bool:
        """Keep a failure. Return True if there is none."""
        if failure is not None:
            self.failure = failure
        return failure is None

    # -- Python values and optimizers ---------------------------------------------------
    def _same_python_values(self, scope: Scope) -> str:
        look_closer = lambda: self._holds(self.python_guards.check(self._rebind_free))
        return f"{scope.bind(self.python_guards)}.first_change() is None or {scope.bind(look_closer)}()"

    def _look_at_optimizers(self) -> bool:
        """Read groups and state that replaced the old ones, for example by load_state_dict."""
        optimizers = self.optimizers
        change = optimizers.check()
        if change is None:
            self.memory.state_replaced()
            self._names[self._optimizer_checker] = optimizers.checker
            return True
        if change.policy is not Policy.REBIND:
            self.dead = change.has_other_state
            return self._holds(change.failure)
        if not self._holds(self.tensors.check()):  # bind() would take any tensor that lies there now
            return False
        self.prologue.bind()
        return True

    def _same_options(self, scope: Scope) -> str:
        tests: list[str] = []
        for options in self.options:
            group = self.live.optimizers[options.optimizer].param_groups[options.group]
            tests.append(
                f"{scope.bind(options.getter())}({scope.bind(group)}) == {scope.bind(options.values)}"
            )
        for o, g, names in _number_options(self.live.optimizers, self.options):
            bound = scope.bind(self.live.optimizers[o].param_groups[g])
            tests += [f"type({bound}.get({name!r})) is not {scope.bind(torch.Tensor)}" for name in names]
        for option in self.guards.options_as_inputs:
            group = self.live.optimizers[option.optimizer].param_groups[option.group]
            tests.append(f"type({scope.bind(group)}.get({option.keys[0]!r})) is float")
        return " and ".join(tests)

    def changed_options(self) -> dict[int, set[str]]:
        """Return {optimizer: names of numeric options that differ from the capture}."""
        changed: dict[int, set[str]] = {}
        for options in self.options:
            groups = self.live.optimizers[options.optimizer].param_groups
            if options.group < len(groups):
                current = options.getter()(groups[options.group])
                for name, now, before in zip(options.names, current, options.values):
                    if now != before and _is_numeric(now) and _is_numeric(before):
                        changed.setdefault(options.optimizer, set()).add(name)
        return changed

    # -- tensors -----------------------------------------------------------------------
    def _rebind_free(self, index: int, tensor: torch.Tensor) -> None:
        self.memory.state_replaced()
        self.live.free[index] = tensor

    def _look_at_tensors(self) -> bool:
        """Read replaced tensors from now on, if the program accepts them."""
        self.memory.state_replaced()
        if not self._holds(self.tensors.check()):
            return False
        for tensor in self.prologue.tensors:
            self._names[tensor.name] = tensor.live
        return True

    # -- gradients before the call ----------------------------------------------------------
    def _same_gradients(self, scope: Scope) -> str:
        slots = enumerate(self.program.slots)
        expected = [
            (index, tensor_meta(slot.location.read(self.live)))
            for index, slot in slots
            if isinstance(slot.location, Gradient)
        ]
        if not expected:
            return ""
        fit = lambda values: all(
            values[index] is not None and tensor_meta(values[index]) == layout for index, layout in expected
        )
        return f"{scope.bind(fit)}(values)"

    def _note_gradients(self) -> bool:
        return self._holds(Failure("the gradient that a parameter has before the call"))

    # -- values ------------------------------------------------------------------------
    def _same_types(self) -> str:
        return " and ".join(
            f"type(values[{index}]) is {type(slot.location.read(self.live)).__name__}"
            for index, slot in enumerate(self.program.slots)
            if isinstance(slot.location, PythonNumber)
        )

    def _note_types(self) -> bool:
        return self._holds(Failure("the type of a number that build() reads"))

    def _same_values(self, scope: Scope) -> str:
        return f"{scope.bind(self._guard)}(*values)" if self._guard is not None else ""

    def _same_memory(self, scope: Scope) -> str:
        memory = scope.bind(self.memory)
        return f"{memory}.is_separate(values) or {memory}.holds(values)" if self.memory.is_needed else ""

    def _note_memory(self) -> bool:
        return self._holds(Failure("memory that inputs share"))

    def _note_values(self) -> bool:
        if self.guards.reads_values:
            return self._holds(Failure(VALUES))
        if self.guards.branches_on_options:
            return self._holds(Failure("an option of an optimizer that build() branches on"))
        if self.guards.branches_on_numbers:
            return self._holds(Failure("a number that build() branches on"))
        return False


def _python_guards(captured: Captured) -> GuardSet:
    """Return the guards of what build() read from Python, and of the layouts of free tensors."""
    live, guards = captured.live, captured.guards
    settle_values(guards.python)
    entries = (*live.entries.values(), *_option_tensors(captured))
    named = named_reads((entry.tensor, entry.container, entry.key) for entry in entries)
    every = with_layouts(guards.python, live.free, _compared_layouts(captured))
    return GuardSet(every, TensorPlaces(named, dict(guards.free_index)), guards.pinned)


def _number_options(
    optimizers: Sequence[Optimizer], fixed: Iterable[FixedOptions]
) -> Iterator[tuple[int, int, set[str]]]:
    """Yield (optimizer, group, names) of the options that the program takes as numbers."""
    for options in fixed:
        group = optimizers[options.optimizer].param_groups[options.group]
        yield options.optimizer, options.group, group.keys() - {*options.names, "params", "initial_lr"}


def _fixed_options(captured: Captured) -> Iterator[FixedOptions]:
    """Yield the fixed options of each group.

    If build() read the options, those that only the update takes as inputs are fixed, too.
    """
    for o, optimizer in enumerate(captured.live.optimizers):
        is_read, live = o in captured.guards.options_read, captured.guards.live_options.get(o, ())
        for g, group in enumerate(optimizer.param_groups):
            names = tuple(
                name
                for name, value in group.items()
                if name != "params"
                and (
                    isinstance(value, torch.Tensor)
                    or is_read
                    and GroupOption(o, g, (name,)) not in captured.guards.options_as_inputs
                    or name not in ("lr", "initial_lr")
                    and name not in live
                )
            )
            values = tuple(_fixed_part(group[name]) for name in names)
            has_tensors = any(isinstance(group[name], torch.Tensor) for name in names)
            yield FixedOptions(o, g, names, values, has_tensors)


def _differentiated(program: Program, live: LiveState) -> list[torch.Tensor]:
    """Return the parameters whose gradients the program may compute."""
    if all(node.meta.get("phase") != "backward" for node in program.graph.nodes):
        return []
    locations = (slot.location for slot in program.slots if slot.role == "param")
    return [location.read(live) for location in locations if isinstance(location, ModuleTensor)]


def _option_tensors(captured: Captured) -> Iterator[StateEntry]:
    """Yield the tensors in options of parameter groups, which the program reads where they lie."""
    for slot in captured.program.slots:
        if isinstance(slot.location, GroupOption):
            container, keys = slot.location.resolve(captured.live)
            if isinstance(container[keys[0]], torch.Tensor):
                tensor = container[keys[0]]
                yield StateEntry(slot.role, slot.name, slot.location, container, keys[0], tensor)


def _compared_layouts(captured: Captured) -> set[int]:
    """Return the ids of the tensors whose layouts other tests compare."""
    live, locations = captured.live, [slot.location for slot in captured.program.slots]
    named = (l.read(live) for l in locations if isinstance(l, (ModuleTensor, OptimizerParameter)))
    of_optimizers = (l.read(live) for l in locations if isinstance(l, (OptimizerState, GroupOption)))
    return {id(tensor) for tensor in (*filter(has_plain_layout, named), *of_optimizers)}


def _fixed_part(value: Any) -> Any:
    return tensor_meta(value) if isinstance(value, torch.Tensor) else copied(value)


def _is_numeric(value: object) -> bool:
    values = value if type(value) is tuple else (value,)
    return all(type(v) in (int, float) for v in values)
