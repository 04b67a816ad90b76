"""Collective calls that failed: the ranks are out of step, and every later call raises.

`transfer(call)` surrounds communication. After a timeout or a lost connection each rank reports the call, its
rank and the ranks that are missing. Every later call raises immediately instead of reading values of another
call.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import _processes
from .process_group import NOTES, CollectiveError, note_of, state, store, timeout

_GRACE = 2.0  # seconds that a rank waits for the notes of the others after a failure
_LOST = (
    "gloo",
    "Timed out",
    "timed out",
    "Connection closed by peer",
    "Connection reset",
    "Application timeout",
    "wait timeout",
    "Broken pipe",
)


def is_out_of_step() -> bool:
    """Whether a collective call failed in such a way that no later one can be trusted."""
    return state.broken is not None


def check_sound(call: str) -> None:
    """Raise CollectiveError if the ranks are out of step."""
    if state.broken is not None:
        raise CollectiveError(
            f"{call}: an earlier collective call failed and the ranks are out of step; restart the program."
            f" The first cause: {state.broken}"
        )


@contextlib.contextmanager
def transfer(call: str) -> Iterator[None]:
    """Surround communication between ranks.

    A timeout or a lost connection becomes an error that names the call and the missing ranks. Inside another
    transfer, the outer call is named.
    """
    check_sound(call)
    state.transfers += 1
    try:
        yield
    except Exception as error:
        if state.transfers == 1 and is_lost(error):
            raise lost(call, error) from error
        raise
    except BaseException as interruption:
        lost(call, interruption)
        raise
    finally:
        state.transfers -= 1


def is_lost(error: BaseException) -> bool:
    """Whether an error says that other ranks did not arrive or have ended."""
    if isinstance(error, CollectiveError):
        return False
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(string in str(error) for string in _LOST)


def lost(call: str, error: BaseException) -> CollectiveError:
    """Mark the ranks as out of step after `error` in `call`.

    Return the error to raise, which names the first cause.
    """
    if state.broken is None:
        own = (
            f"rank {_processes.get_rank()} lost the connection to the others in {call} ({_first_line(error)})"
        )
        break_off(own, call)
        try:
            state.broken = _explanation(call, error)
            _wait_for_readers()
        except Exception:
            state.broken = (
                f"{own}; the process that keeps the ranks' notes, rank 0 or the launcher, has ended"
            )
    return CollectiveError(state.broken)


def failed_alone(call: str, failure: BaseException) -> None:
    """Mark the ranks as out of step, because this rank raised while the others wait for its data."""
    cause = (
        f"rank {_processes.get_rank()} raised {_first_line(failure)} in {call}, and the others waited for its"
        " data"
    )
    with contextlib.suppress(Exception):
        store().compare_set(f"{NOTES}/cause", "", cause)
    break_off(cause, call)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def break_off(cause: str, call: str) -> None:
    """Mark the ranks as out of step, and close their groups, so that no rank keeps waiting."""
    state.broken = cause
    with contextlib.suppress(Exception):
        store().set(f"{NOTES}/waiting/{dist.get_rank()}", call)
    for group in state.groups or [dist.group.WORLD]:
        _close(group)


def _close(group: Any) -> None:
    """Close this rank's connections in a group.

    gloo closes them after a timeout, and every rank that waits there gets an error.
    """
    try:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
    except Exception:  # the group is gone
        return
    if rank < 0:
        return
    for peer in range(size):  # a dead rank gives an error immediately and closes only its own connection
        if peer != rank:
            with contextlib.suppress(Exception):
                nothing = torch.zeros(1, device="cpu")
                work = dist.irecv(nothing, group_src=peer, group=group, tag=1 << 20)
                work.wait(datetime.timedelta(milliseconds=1))  # type: ignore[union-attr]


def _explanation(call: str, error: BaseException) -> str:
    """Return the first cause that a rank recorded.

    If there is none, record and return this rank's account of who waits, who ended and who is missing.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    earlier = note_of("cause")
    if not earlier:
        notes = _notes([r for r in range(world) if r != rank])
        gone = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        limit = timeout()
        why = "lost the connection to another rank"
        if gone:
            why = (
                f"waited {limit.total_seconds():g} s for the others"
                if limit
                else "waited for the others in vain"
            )
        account = [f"rank {r} {note_of_rank}" for r, note_of_rank in notes.items() if note_of_rank]
        missing = [r for r, note_of_rank in notes.items() if not note_of_rank]
        if missing:
            account.append(
                f"{names(missing)} {'is' if len(missing) == 1 else 'are'} missing: killed, stopped, or busy"
                " with something else than a collective call"
            )
        own = f"rank {rank} {why} in {call}; {'; '.join(account)}"
        earlier = store().compare_set(f"{NOTES}/cause", "", own).decode()
    return earlier if earlier.startswith(f"rank {rank} ") else f"{call} on rank {rank} failed, for {earlier}"


def _wait_for_readers() -> None:
    """On rank 0, which may keep the notes, let the waiting ranks read them before this process ends."""
    rank, notes, deadline = dist.get_rank(), store(), time.monotonic() + _GRACE
    notes.set(f"{NOTES}/read/{rank}", "")
    others = [
        f"{NOTES}/read/{r}"
        for r in range(dist.get_world_size())
        if rank == 0 and r and note_of(f"waiting/{r}")
    ]
    while others and not notes.check(others) and time.monotonic() < deadline:
        time.sleep(0.02)


def _notes(ranks: Sequence[int]) -> dict[Any, Any]:
    """Return the notes of the ranks about how they failed or ended, None for ranks without a note."""
    notes: dict[int, str] = {}
    deadline = time.monotonic() + _GRACE
    while len(notes) < len(ranks):
        for r in ranks:
            waiting = note_of(f"waiting/{r}")
            note_of_rank = f"was in {waiting}" if waiting else note_of(f"left/{r}")
            if note_of_rank:
                notes[r] = note_of_rank
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return {r: notes.get(r) for r in ranks}


def names(ranks: list[Any]) -> str:
    """Return the ranks as the subject of a sentence."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {list(ranks)}"
