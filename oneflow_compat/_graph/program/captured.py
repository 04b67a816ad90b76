"""What a capture hands to the calls of its program: the only thing that crosses from capture/ to call/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import TreeSpec

from .locations import GroupOption, LiveState, OptimizerState, StateEntry
from .program import Program
from .shared_calls import SharedCalls
from .shared_containers import Container, Place
from .symbolic import Branch

if TYPE_CHECKING:
    import torch

    from ..guards.argument_facts import ArgumentFact
    from ..guards.failure import Failure
    from ..guards.guard import Guard
    from ..guards.observed import Observed


@dataclass(frozen=True, eq=False)
class StoredAttribute:
    """A value that build() left in an attribute, a buffer, a list or a dict, bound anew after each run.

    After `self.last = {"loss": loss, "epoch": 3}` in build(), container[key] is graph.__dict__["last"], and
    the leaves are a tensor of the program and 3. The spec says how they form the dict. After
    `self.losses.append(loss)`, each run appends.
    """

    container: Any
    key: Any
    leaves: tuple[Any, ...]
    spec: TreeSpec
    appends: bool = False
    containers: tuple[Container, ...] = ()  # lists, dicts and objects in the value


@dataclass(frozen=True)
class ObjectChange:
    """A part of an object among the arguments that build() assigned, or deleted.

    `position` is that of the object (see Form in object_trees.py). After `cache.keys = keys` in build(), the
    part is the attribute "keys". The key None of items stands for all of them.
    """

    position: int
    access: str
    key: Any
    is_deleted: bool = False


@dataclass(frozen=True, eq=False)
class ArgumentChanges:
    """What build() changes in objects among its arguments, and the structure of the new values.

    The spec is that of a tuple with a value for each change that deletes nothing. Its leaves follow those of
    the results, because results and arguments may share objects.
    """

    changes: tuple[ObjectChange, ...]
    spec: TreeSpec
    constants: tuple[tuple[int, Any], ...]  # (index among the leaves of the spec, value)

    @property
    def output_count(self) -> int:
        return self.spec.num_leaves - len(self.constants)


@dataclass(frozen=True, eq=False)
class Effects:
    """What a run of the program does besides computing its results, in the order of its outputs.

    A program returns the results of build(), then a value for each tensor leaf of `attributes`, then one for
    each tensor leaf of `argument_changes`, then one for each location of `state_values`, then the overflow
    flag if `reports_overflow` is set, then the gradient of each tensor of `gradients`.
    """

    attributes: tuple[StoredAttribute, ...] = ()
    argument_changes: ArgumentChanges | None = None
    # Python numbers, and state that starts from the gradient: an optimizer that counts in
    # state[p]["step"] as an int gives OptimizerState(0, "model.weight", ("step",))
    state_values: tuple[OptimizerState | GroupOption, ...] = ()
    # whether the program says that its gradients overflowed; then it changed nothing
    reports_overflow: bool = False
    # optimizer state that the capture created. It is removed if the first run fails, and if the only run of a
    # program changed nothing, so that the next call creates it again
    created_state: tuple[OptimizerState | GroupOption, ...] = ()
    # (location, value) of optimizer state that the capture gave another structure: the value from before
    replaced_state: list[tuple[OptimizerState, Any]] = field(default_factory=list)
    # puts the attributes back that build() changed, and says whether it changed any.
    # It is empty after the first run
    undo: list[Callable[[], bool]] = field(default_factory=list)
    # takes back what build() wrote outside of modules. It is empty after the first run, too
    undo_writes: list[Callable[[], None]] = field(default_factory=list)
    counters: tuple[Guard, ...] = ()  # numbers that build() only counts, and their steps
    schedulers: tuple[Any, ...] = ()  # schedulers of torch, or with the same step()
    # schedules that build() steps: they do after the run, because they compute Python numbers
    schedulers_of_build: tuple[Any, ...] = ()
    gradients: tuple[torch.Tensor, ...] = ()  # tensors that get a new gradient in each run
    cleared_gradients: tuple[torch.Tensor, ...] = ()  # tensors that have none after a run
    # tensors whose gradient before a run is not used, so that its memory is free during the run
    dropped_gradients: tuple[torch.Tensor, ...] = ()
    # result -> (placement, sbp, shape) of the results that are global tensors
    global_results: Mapping[int, tuple[Any, Any, tuple[int, ...]]] = field(default_factory=dict)
    # (output, first output that is the same object): a program may give them as one object with others
    own_objects: tuple[tuple[int, int], ...] = ()
    # the places of each list, dict or object that lies in several values of `attributes`, or in the results,
    # which are the last tree
    shared_containers: tuple[tuple[Place, ...], ...] = ()
    # whether a result that is an argument or a parameter keeps its history, as in a compiled step
    keeps_histories: bool = False

    def remove_created_state(self, live: LiveState) -> None:
        """Remove the optimizer state that the capture created or replaced, before a run has changed it."""
        for location in self.created_state:
            location.remove(live)
        for location, value in self.replaced_state:
            location.write(live, value)

    def keep_changes(self) -> None:
        """Forget what was there before build() changed it, because the program has run."""
        self.undo.clear()
        self.undo_writes.clear()

    def undo_capture(self, live: LiveState) -> bool:
        """Take back what the capture changed, before a run. Return whether it had changed attributes."""
        while self.undo_writes:
            self.undo_writes.pop()()
        self.remove_created_state(live)
        has_changed = False
        while self.undo:
            has_changed |= self.undo.pop()()
        return has_changed


@dataclass(frozen=True, eq=False)
class Guards:
    """What the capture assumed: the program serves a call only if all of this still holds.

    `Program.guard` has the conditions on values that the program itself can compute.
    """

    python: tuple[Guard, ...] = ()  # guards of what build() read from Python
    pinned: frozenset[int] = frozenset()  # ids of objects that no equal one may replace
    ending: Failure | None = None  # why no later call can use the program
    # facts that build() asked of its arguments besides their layouts
    argument_facts: tuple[ArgumentFact, ...] = ()
    # id(tensor that build() read) -> its index among the free tensors, or None if it is named state
    free_index: Mapping[int, int | None] = field(default_factory=dict)
    # optimizer -> names of options that are inputs of the program; the other options are fixed in it
    live_options: Mapping[int, frozenset[str]] = field(default_factory=dict)
    # indices of the optimizers whose groups build() read: their options are fixed in the program, except
    # those that are its inputs, given by their locations
    options_read: frozenset[int] = frozenset()
    options_as_inputs: frozenset[GroupOption] = frozenset()
    # pairs of slots that overlap in memory, one of them written; the program runs operator by operator then
    overlaps: frozenset[tuple[int, int]] = frozenset()
    # (slot, StateEntry) of named tensors that are the same memory as the tensor of the slot
    merged: tuple[tuple[int, StateEntry], ...] = ()
    merged_free: tuple[tuple[int, torch.Tensor], ...] = ()  # the same for tensors without a name
    # branch on a size that depends on values -> outcome, in the order of the program
    branches: Mapping[Branch, bool] = field(default_factory=dict)
    # whether the program assumes sizes that depend on values
    fixes_sizes: bool = False
    # whether `Program.guard` tests values that build() read, and not only counters of optimizers
    reads_values: bool = False
    # whether it tests options of optimizers that build() branched on
    branches_on_options: bool = False
    # whether it tests Python numbers that build() branched on
    branches_on_numbers: bool = False
    # the next call starts from something else: optimizer state that step() created, or a value that build()
    # filled in where it found none
    serves_one_call: bool = False
    # whether arguments or named state are global tensors
    reads_global_tensors: bool = False


@dataclass(frozen=True, eq=False)
class Captured:
    """A captured program, what a run does, what must hold, and the objects that its locations name."""

    program: Program
    effects: Effects
    guards: Guards
    live: LiveState
    # calls that the ranks compare, if global tensors or collectives are involved
    shared: SharedCalls | None = None

    def with_program(self, program: Program) -> Captured:
        """Return this capture with a rewritten program."""
        return replace(self, program=program)

    def with_observed(self, observed: Observed) -> Captured:
        """Return this capture with the guards of what build() and the optimizers' steps read."""
        python, pinned, ending = observed.guards, observed.pinned, observed.ending
        return replace(
            self,
            guards=replace(self.guards, python=python, pinned=pinned, ending=ending),
            effects=replace(self.effects, undo_writes=[observed.undo_writes]),
        )

    def for_one_call(self) -> Captured:
        """Return this capture for the present call only: the next one starts from what this call leaves."""
        return replace(self, guards=replace(self.guards, serves_one_call=True))
