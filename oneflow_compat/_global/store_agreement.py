"""Agreement of the ranks through the store of the process group, without collective calls.

A thread can use it while the main thread runs collective calls, whose order must be the same on all ranks.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

from .. import _processes
from .collectives import error_of_rank, text_of_error
from .failures import check_sound
from .process_group import NOTES, CollectiveError, current, several, store, timeout

_READING = 30.0  # seconds that rank 0 waits until the others have read the outcome
_LONGEST = datetime.timedelta(minutes=30)  # torch's default for collective calls


class Agreement:
    """One agreement. Create it on all ranks, in the main thread; `name` is the same on all ranks."""

    def __init__(self, call: str, name: str) -> None:
        self._call, self._key = call, f"oneflow/{name}"
        self._rank, self._world = _processes.get_rank(), _processes.get_world_size()
        self._store: Any = None
        if several():
            current()
            self._store = store().clone()  # a connection of its own, so that waiting blocks nobody

    def settle(
        self, report: Any, failure: BaseException | None, conclude: Callable[[list[Any]], None]
    ) -> None:
        """Run `conclude(reports of all ranks)` on rank 0 if no rank has failed. Every rank raises, or none.

        A rank that fails raises its own error, and the others one that names the rank.
        """
        if self._store is None:
            if failure is not None:
                raise failure
            conclude([report])
            return
        own = {"report": report, "error": failure and text_of_error(failure)}
        self._store.set(f"{self._key}/{self._rank}", json.dumps(own))
        outcome = self._concluded(conclude) if self._rank == 0 else self._read("outcome", 0)
        self._forget()
        if failure is not None and (outcome["rank"] == self._rank or not isinstance(failure, Exception)):
            raise failure
        if outcome["rank"] is not None:
            raise error_of_rank(self._call, outcome["rank"], *outcome["error"]) from failure

    def _concluded(self, conclude: Callable[[list[Any]], None]) -> dict[str, Any]:
        """Return the outcome on rank 0, and tell the other ranks."""
        failing = 0
        outcome: dict[str, Any] = {"rank": None, "error": None}
        try:
            answers = [self._read(str(failing := rank), rank) for rank in range(self._world)]
            failed = [rank for rank, answer in enumerate(answers) if answer["error"]]
            if failed:
                outcome = {"rank": failed[0], "error": answers[failed[0]]["error"]}
            else:
                failing = 0
                conclude([answer["report"] for answer in answers])
        except BaseException as error:
            outcome = {"rank": failing, "error": text_of_error(error)}
        self._store.set(f"{self._key}/outcome", json.dumps(outcome))
        return outcome

    def _read(self, name: str, rank: int) -> Any:
        """Wait for what a rank says, and return it."""
        key, pause = f"{self._key}/{name}", 0.001
        limit = timeout() or _LONGEST
        deadline = time.monotonic() + limit.total_seconds()
        while not self._store.check([key]):
            check_sound(self._call)
            if self._store.check([f"{NOTES}/left/{rank}"]) and not self._store.check([key]):
                raise CollectiveError(f"{self._call}: rank {rank} ended before the save was complete")
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{self._call}: rank {rank} did not finish within {limit.total_seconds():g} s;"
                    " ONEFLOW_TIMEOUT_SECONDS sets how long the others wait"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return json.loads(self._store.get(key))

    def _forget(self) -> None:
        """Remove the keys when all ranks have read the outcome. Rank 0 may keep the store."""
        readers = f"{self._key}/readers"
        count = self._store.add(readers, 1)
        if self._rank:
            return
        deadline = time.monotonic() + _READING
        while count < self._world and time.monotonic() < deadline:
            time.sleep(0.005)
            count = self._store.add(readers, 0)
        for name in (*map(str, range(self._world)), "outcome", "readers"):
            self._store.delete_key(f"{self._key}/{name}")
