"""The calls of a graph that run in eager mode, because no program can hold them.

A program has no place for a branch on the value of a loss, for a NumPy array among the arguments, or for a
list that grows with each call. Such a call runs as Python runs it, in `EagerStep`.

What made one call impossible may be gone at the next one: a cache is full then, a lazy layer has its shape.
So a capture is tried again, each time after four times as many calls in eager mode.

Where what build() reads cannot be observed, each call runs so, because a program would miss changes.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from .._global.marks import several
from .capture.state_map import resolve
from .capture.update import sparse_rows
from .eager_step import EagerStep
from .errors import CaptureError, warn_user
from .explanations import of_eager_calls, of_repeated_change
from .observe.support import INSTALL, why_unobserved

if TYPE_CHECKING:
    from .assumptions import Assumptions
    from .call.entry import Entry
    from .config import Config
    from .definition import GraphDefinition

_MOST_UNUSED = 8  # captures in a row that may serve one call each, before calls run in eager mode
_MOST_SKIPPED = 1 << 10  # calls in eager mode between two captures that give no program for later calls


@functools.lru_cache(None)
def warn_of_eager_calls(reason: str) -> None:
    """Warn once in a process that no program is captured."""
    warn_user(
        f"nn.Graph runs build() in eager mode on every call: {reason}. For compiled programs, {INSTALL}."
    )


class EagerCalls:
    """The calls of one graph in eager mode."""

    def __init__(self, definition: GraphDefinition, config: Config, assumptions: Assumptions) -> None:
        self.definition, self.config, self.assumptions = definition, config, assumptions
        self.unobserved = why_unobserved()  # why all calls run so, or None
        self.has_begun = False  # whether there was one
        self._step = EagerStep(definition, config, assumptions)
        self._latest: weakref.ref[Entry] | None = None  # result of the latest capture
        self._unused = 0  # captures in a row whose programs served one call only
        self._failures = 0  # captures in a row that gave no program for later calls
        self._skipped = 0  # calls to run in eager mode before the next capture

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.has_begun = True
        return self._step(args, kwargs)

    def of_failed_build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call whose capture raised an error. If it raises again, the state is as before the call."""
        with self._step.restored_on_error(args, kwargs):
            return self(args, kwargs)

    # -- every call ----------------------------------------------------------------------
    @property
    def reason(self) -> str:
        """Why this graph has no programs."""
        return f"graph {self.definition.name} runs build() in eager mode on every call: {self.unobserved}"

    def begin(self) -> None:
        """Warn once in a process that graphs run in eager mode; raise CaptureError if this one cannot."""
        if self.config.strict:
            raise self.no_program("graph.config.strict(True)")
        if self._updates_rows():
            raise self.no_program("add_optimizer(is_sparse=True)")
        self.has_begun = True
        warn_of_eager_calls(self.unobserved or "")

    def no_program(self, purpose: str) -> CaptureError:
        """Return the error of a request that needs a program."""
        return CaptureError(f"{purpose} needs a program, but {self.reason}", f"For programs, {INSTALL}.")

    def _updates_rows(self) -> bool:
        """Whether an optimizer changes gathered rows only, which eager mode does not know."""
        return any(optimizer in sparse_rows.lazy for optimizer, _ in resolve(self.definition.optimizers))

    # -- single calls --------------------------------------------------------------------
    def are_possible(self) -> bool:
        """Whether single calls may run in eager mode; several ranks would have to agree on it."""
        config = self.config
        return config.eager_calls and not (config.strict or several() or self._updates_rows())

    def take_this_call(self) -> bool:
        """Whether a call without a program runs in eager mode before a capture is tried again."""
        if self.definition.steps_in_build and several() and not self.config.strict:
            self._tell("a compiled step has a program on one rank only")
            return True
        if not self._skipped or not self.are_possible():
            return False
        self._skipped -= 1
        return True

    def note_program(self, entry: Entry) -> None:
        """Note a capture, whose program may serve one call only, though it could serve others."""
        latest = self._latest() if self._latest is not None else None
        self._latest = weakref.ref(entry)
        self._unused = 0 if latest is None or latest.has_served_again else self._unused + 1
        if self._unused >= _MOST_UNUSED and self.are_possible():
            self._skipped = min(4 ** (self._unused - _MOST_UNUSED + 1) - 1, _MOST_SKIPPED)
            failure = (latest if latest is not None else entry).validity.failure
            what = failure.label if failure is not None else "another number or structure of an argument"
            self._tell(
                f"each of the last {_MOST_UNUSED} programs served one call, because each call has {what}; a"
                " number that changes in each call may be a tensor"
            )
            return
        if entry.serves_later_calls:
            self._failures = 0
            return
        self._fail()
        if self._failures > 1:
            self._tell(str(of_repeated_change(entry.validity.failure)))

    def note_refusal(self, reason: str) -> None:
        """Note a capture that raised, and warn of each reason once."""
        self._fail()
        self._tell(reason)

    def _fail(self) -> None:
        self._skipped = min(4**self._failures - 1, _MOST_SKIPPED)
        self._failures += 1

    def _tell(self, reason: str) -> None:
        """Warn of each reason once, and keep it for explain()."""
        if self.assumptions.is_first_report(reason):
            self.assumptions.explain(of_eager_calls(reason))
            warn_user(
                f"graph {self.definition.name}: no program can hold this call, so it runs in eager mode, with"
                f" the same result: {reason}\n  graph.config.strict(True) makes this an error."
            )
