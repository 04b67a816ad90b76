"""The process group of the ranks, and what this process knows of it."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import re
import sys
import traceback
from typing import Any

import torch
import torch.distributed as dist

from .. import _env, _processes

NOTES = "oneflow/ranks"  # prefix of the notes that the ranks leave in the store
MESHES = 20  # meshes whose operators are compared


class CollectiveError(RuntimeError):
    """A collective call that failed on another rank, or on which the ranks disagree."""


class State:
    """What this process knows of its ranks."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, world: Any) -> None:
        """Forget the former process group."""
        self.world = world
        self.control: Any = None  # the group that exchanges headers
        self.broken: str | None = None  # why no later collective call can be trusted
        self.nested = 0  # depth of blocks whose calls are not checked
        self.transfers = 0  # depth of blocks in transfer(); the outer one names the call
        self.header: Any = None  # row of this rank
        self.headers: Any = None  # rows of all ranks, from `rows`
        self.rows: Any = None
        self.exchanges = 0  # how many exchanges have ended
        self.pending: Any = None  # (request, work) of an exchange that was begun and not yet ended
        self.groups: list[Any] = []
        self.meshes: list[Any] = []  # the ranks of each mesh, in the order of creation on all ranks
        self.history = [0] * MESHES


state = State()


def start() -> None:
    """Make the default process group from the launcher's variables, once."""
    if not dist.is_initialized():
        _check_launcher()
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=timeout()
            )
        except (dist.DistError, RuntimeError) as error:
            raise CollectiveError(_not_together(str(error))) from error
        atexit.register(_leave)


def _not_together(reason: str) -> str:
    """Say which rank is missing at the first collective call, where the ranks connect to each other."""
    rank, world, limit = _env.get_int("RANK"), _env.get_int("WORLD_SIZE"), timeout()
    waited = "the time limit of torch" if limit is None else f"{limit.total_seconds():g} s"
    missing = re.search(r"keys: \S*/(\d+)\Z", reason)
    named = f"; rank {missing[1]} is missing" if missing else ""
    return (
        f"rank {rank} could not connect to all of the {world} ranks within {waited}{named}. Every rank has to"
        " make the same collective calls; ONEFLOW_TIMEOUT_SECONDS sets how long the others wait"
        f" ({reason.splitlines()[0][:200] if reason else 'no reason given'})"
    )


def timeout() -> datetime.timedelta | None:
    """Return the time that a rank waits for the others in a collective call.

    None means torch's default: 30 minutes on the CPU.
    """
    value = _env.get("ONEFLOW_TIMEOUT_SECONDS")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e9:
        raise ValueError(
            f"environment variable ONEFLOW_TIMEOUT_SECONDS must be a positive number, found {value!r}"
        )
    return datetime.timedelta(seconds=seconds)


def _check_launcher() -> None:
    rank, world = _env.get_int("RANK"), _env.get_int("WORLD_SIZE")
    if not 0 <= rank < world:
        raise RuntimeError(
            f"the launcher's variables name rank {rank} of {world} ranks; start the program with"
            " oneflow.distributed.launch"
        )


def _leave() -> None:
    """End the process group.

    A process that ends while gloo's threads still run may abort. With CUDA the group is left alone, because
    NCCL would wait for ranks that have failed.
    """
    if dist.is_initialized():
        error = getattr(sys, "last_value", None)
        last = (
            "".join(traceback.format_exception_only(type(error), error)).strip() if error is not None else ""
        )
        with contextlib.suppress(Exception):
            store().set(f"{NOTES}/left/{dist.get_rank()}", f"ended with {last}" if last else "ended")
        if not torch.cuda.is_available():
            dist.destroy_process_group()


def store() -> Any:
    """Return the store where the ranks leave notes."""
    return dist.distributed_c10d._get_default_store()


def several() -> bool:
    """Whether there are several ranks."""
    return _processes.get_world_size() > 1


def current() -> State:
    """Return the state, which begins anew with a new process group."""
    start()
    if state.world is not dist.group.WORLD:
        state.begin(dist.group.WORLD)
    return state


def note_of(name: str) -> str:
    """Return the note that a rank left under this name, or ""."""
    notes, key = store(), f"{NOTES}/{name}"
    return notes.get(key).decode() if notes.check([key]) else ""
