"""One entry of the engine's cache: a compiled program tied to the live tensors of its graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from ..._global.program_results import without_subclasses
from ..._signals import held
from ..guards.call_tests import alike_test, unknown
from ..program.captured import Captured
from ..program.locations import GroupOption
from ..program.program import CompiledFunction, Program
from ..program.symbolic import Branch, checks_branches
from .branches import with_branches
from .checks import with_checks
from .epilogue import Epilogue
from .prologue import Stage, gather
from .validity import Validity


class Entry:
    """A compiled program that can be called.

    `values` tests whether it serves a call, and reads its slots. The entry is then called with these values.
    """

    def __init__(self, key: Hashable, captured: Captured, run: CompiledFunction) -> None:
        self.key = key
        self.program, self.effects, self.guards = captured.program, captured.effects, captured.guards
        self.live, self.shared = captured.live, captured.shared
        self.number_slots = number_slots(self.program)
        # whether the program ends a comparison of the ranks before its first lasting effect
        self.waits_for_ranks = getattr(run, "waits_for_ranks", False)
        self.compiled = run
        self.run = _prepared(captured, run)
        self.validity = Validity(captured)
        self.prologue, self.python_guards = self.validity.prologue, self.validity.python_guards
        serves_one_call = captured.guards.serves_one_call
        self.epilogue = Epilogue(captured.program, captured.effects, captured.live, serves_one_call)
        # another program, which the outcome of a branch may ask for, may use them
        self._drops_gradients = () if captured.guards.branches else captured.effects.dropped_gradients
        self._has_run = self.has_served_again = self._is_undone = False
        # whether a call has ended when the program has run, so that no signal may come in between
        self._ends_with_run = False
        # whether arguments have the signature of the program. False if that is not known at once
        self.is_alike: Callable[[tuple[Any, ...]], bool] = unknown

    @property
    def branches(self) -> Mapping[Branch, bool]:
        return self.guards.branches

    @property
    def proofs(self) -> list[str]:
        """What was compared with the captured operators, a line each."""
        return list(getattr(self.compiled, "proofs", ()))

    @property
    def serves_later_calls(self) -> bool:
        return not (self.guards.serves_one_call or self.validity.dead)

    def note_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Recognize the arguments of later calls by these, which the program was captured for."""
        if not kwargs and self.program.dimensions is None and not torch._C._is_any_autocast_enabled():
            self.is_alike = alike_test(args)

    def values(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the values of the slots for a call with these flat arguments.

        Return None if something that the program assumed has changed.
        """
        return self.prologue.run(leaves)

    def untested_values(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of the slots for the call that the program was captured for."""
        return gather(self.program, self.live, leaves)

    def values_besides_arguments(self) -> tuple[Any, ...]:
        """Return the values of the slots, with None for arguments. Raise if a tensor no longer fits."""
        # the tests of Python values find the tensors that the last run bound to attributes
        stages = (Stage.STATE, Stage.TENSORS) if self.effects.attributes else (Stage.TENSORS,)
        if not self.prologue.holds_without_arguments(stages):
            failure = self.validity.failure
            changed = failure.label if failure is not None else "of a parameter"
            raise RuntimeError(
                f"graph {self.program.name}: the tensor {changed} was replaced or changed since the last"
                " call; call the graph once more before its program is written"
            )
        return gather(self.program, self.live, [None] * self.program.in_spec.num_leaves)

    def __call__(self, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the program with the values of its slots, and apply its effects to the arguments and the state.

        Raise BranchTaken if it takes another branch on sizes. A program that fails has written nothing.
        """
        if self._ends_with_run:
            return self.epilogue(values, self.run(*values), args, kwargs)
        with held():
            for tensor in self._drops_gradients:
                tensor.grad = None
            if not self._has_run:
                return self._first_run(values, args, kwargs)
            if not self.has_served_again:
                self.has_served_again, self._ends_with_run = True, not self.epilogue.has_effects
            return self.epilogue(values, self.run(*values), args, kwargs)

    def _first_run(self, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            outputs = self.run(*values)
        except BaseException:
            self.undo_capture()
            raise
        self._has_run = True
        self.keep_changes()
        if self.guards.serves_one_call:
            self.validity.dead = True
        return self.epilogue(values, outputs, args, kwargs)

    def undo_capture(self) -> None:
        """Take back what the capture changed, because nothing has run.

        A program whose build() changed attributes serves no later call: only a capture changes them all.
        A second time there is nothing to take back: the state is that of another program.
        """
        if self._is_undone:
            return
        self._is_undone = True
        self.validity.dead |= self.effects.undo_capture(self.live)

    def keep_changes(self) -> None:
        """Keep what the capture changed."""
        self.effects.keep_changes()


def number_slots(program: Program) -> tuple[int, ...]:
    """Return the indices of the slots whose values are numbers: options, and counters of optimizers."""
    return tuple(
        i
        for i, slot in enumerate(program.slots)
        if slot.shape is None or slot.shape == () and isinstance(slot.location, GroupOption)
    )


def _prepared(captured: Captured, run: CompiledFunction) -> CompiledFunction:
    """Return the compiled program with the modes that it must run in."""
    program = captured.program
    if _needs_grad_mode(program):
        run = torch.enable_grad()(run)
    # the key of a program contains autocast, so that it is on around every call of this program
    if torch._C._is_any_autocast_enabled():
        run = _without_autocast(run)
    if captured.guards.reads_global_tensors or captured.effects.global_results:
        run = without_subclasses(run)
    run = with_checks(program, run)
    return with_branches(run) if checks_branches(program.graph) else run


def _needs_grad_mode(program: Program) -> bool:
    """Whether the program must run with gradients enabled, whatever the caller's mode is.

    oneDNN's LSTM keeps the values that its backward needs only while gradients are recorded.
    """
    return program.training and any(
        n.target is torch.ops.aten.mkldnn_rnn_layer.default for n in program.graph.nodes
    )


def _without_autocast(run: CompiledFunction) -> CompiledFunction:
    """Run without autocast.

    The casts are in the program, and operators that build() ran without a cast stay so.
    """

    @functools.wraps(run)
    def plain(*values: Any) -> Sequence[Any]:
        with torch._C._DisableAutocast():
            return run(*values)

    return plain
