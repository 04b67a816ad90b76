"""Agreement of the ranks on collective calls: a call fails on every rank or on none.

`checking(call)` surrounds code that can raise on one rank alone: checks of arguments, files and shapes. The
ranks then exchange one small tensor on a separate process group. If the body raised on a rank, or if the
ranks made different requests, every rank raises before any data is sent.

`transfer(call)` surrounds communication. After a timeout or a lost connection the ranks are out of step. Each
rank then reports the call, its rank and the ranks that are missing. Every later call raises immediately
instead of reading values of another call.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import hashlib
import pickle
import sys
import time
import traceback

import torch
import torch.distributed as dist

from .. import _env, _processes
from .._active import capturing, outside_capture

_TOLD = 24  # position of the integers of tell() in a header
_HEADER = 96
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
_NOTES = "oneflow/ranks"


class CollectiveError(RuntimeError):
    """A collective call that failed on another rank, or on which the ranks disagree."""


class _State:
    """The state of this process about its ranks. A new process group begins with a new state."""

    def __init__(self, world=None):
        self.world, self.control, self.broken, self.nested = world, None, None, 0
        self.header = self.headers = None
        self.groups: list = []
        self.meshes: list = []  # the ranks of each mesh, in the order of creation on all ranks
        self.history = [0] * (_TOLD - 4)


_state = _State()


# --------------------------------------------------------------------------- process groups
def start():
    """Make the default process group from the launcher's variables, once."""
    if not dist.is_initialized():
        _check_launcher()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=timeout()
        )
        atexit.register(_leave)


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


def _check_launcher():
    rank, world = _env.get_int("RANK"), _env.get_int("WORLD_SIZE")
    if not 0 <= rank < world:
        raise RuntimeError(
            f"the launcher's variables name rank {rank} of {world} ranks; start the program with"
            " oneflow.distributed.launch"
        )


def _leave():
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
            _store().set(f"{_NOTES}/left/{dist.get_rank()}", f"ended with {last}" if last else "ended")
        if not torch.cuda.is_available():
            dist.destroy_process_group()


def _store():
    return dist.distributed_c10d._get_default_store()


def several() -> bool:
    """Whether there are several ranks."""
    return _processes.get_world_size() > 1


def _current() -> _State:
    """Return the state of the current process group."""
    global _state
    start()
    if _state.world is not dist.group.WORLD:
        _state = _State(dist.group.WORLD)
    return _state


def _control(state):
    """Return the group for headers only, so that a header never meets another tensor."""
    if state.control is None:
        cause = _note("cause")
        if cause:
            raise RuntimeError(f"Connection closed by peer: {cause}")
        state.control = dist.new_group(backend="gloo", timeout=timeout())
        state.header = torch.zeros(_HEADER, dtype=torch.int64, device="cpu")
        state.headers = [
            torch.zeros(_HEADER, dtype=torch.int64, device="cpu") for _ in range(dist.get_world_size())
        ]
        state.groups += [state.control, dist.group.WORLD]
    return state.control


def add_mesh(ranks, groups) -> int:
    """Register a mesh that every rank has just made, and return its index.

    Its groups are closed, too, when the ranks are out of step, so that no rank keeps waiting.
    """
    state = _current()
    state.groups.extend(g for g in groups if g is not dist.group.WORLD)
    state.meshes.append(ranks)
    return len(state.meshes) - 1


def _happening_now():
    """Return a context whose body runs immediately, even while a graph is captured."""
    return outside_capture() if capturing() else contextlib.nullcontext()


# --------------------------------------------------------------------------- agreement
class Asked:
    """The request of this rank in a collective call, and the answers of all ranks."""

    def __init__(self, call):
        self.call, self.facts, self.numbers, self.message = call, "", (), None
        self.told: list = []  # the integers of each rank
        self.messages: list = []  # the messages of each rank

    def same(self, **facts):
        """Set the facts that must be the same on every rank."""
        self.facts = ", ".join(f"{name}={value}" for name, value in facts.items())

    def tell(self, *integers):
        """Send integers to every rank; `told` then has the list of each rank."""
        self.numbers = integers

    def send(self, message):
        """Send an object to every rank; `messages` then has the object of each rank."""
        self.message = message

    def __str__(self):
        return f"{self.call}({self.facts})"


@contextlib.contextmanager
def checking(call, tells=False):
    """Raise on every rank if the body raises on one rank, or if the ranks make different requests.

    The failing rank raises its own error. The others raise one that names the call, the rank and the cause.
    `tells`: the body sends integers or a message. They are exchanged inside another collective call as well.
    """
    asked, failure = Asked(call), None
    if not several() or not tells and (_state.nested or not _env.is_set("ONEFLOW_CHECK_COLLECTIVES")):
        yield asked
        return
    try:
        yield asked
    except Exception as error:
        failure = error
    _exchange(asked, failure)


@contextlib.contextmanager
def nested():
    """Skip the checks of calls in the block, which a checked collective call makes."""
    _state.nested += 1
    try:
        yield
    finally:
        _state.nested -= 1


def _exchange(asked, failure):
    state = _current_or(failure)
    check_sound(asked.call)
    try:
        headers, objects = _headers(state, asked, failure)
    except BaseException as error:
        if isinstance(error, Exception) and not is_lost(error):
            raise
        problem = lost(asked.call, error)
        if failure is not None:
            raise failure from None
        if not isinstance(error, Exception):
            raise
        raise problem from error
    if failure is not None:
        raise failure
    if objects:
        _raise_failure(asked, objects)
        _raise_difference(asked, objects)
    _check_history(asked, headers)
    asked.told = [header[_TOLD : _TOLD + header[3]] for header in headers]
    asked.messages = [message for _, _, message in objects]


def _current_or(failure):
    """Return the state, or raise the caller's own error rather than one about missing ranks."""
    try:
        return _current()
    except Exception:
        if failure is not None:
            raise failure from None
        raise


def _headers(state, asked, failure):
    """Exchange and return the headers of all ranks, and their objects if a rank has any.

    An object is (the description of the call, the error, the message).
    """
    description = str(asked)
    with _happening_now(), torch.no_grad():
        group = _control(state)
        has_more = failure is not None or asked.message is not None
        row = [
            _digest(asked.call if failure else description),
            failure is not None,
            has_more,
            len(asked.numbers),
            *state.history,
            *asked.numbers,
        ]
        if len(row) > _HEADER:
            raise ValueError(
                f"{asked.call}: a tensor of {len(asked.numbers)} dimensions is too large to exchange"
            )
        state.header.numpy()[: len(row)] = row
        dist.all_gather(state.headers, state.header, group=group)
        headers = [h.tolist() for h in state.headers]
        objects: list = []
        if len({h[0] for h in headers}) > 1 or any(h[2] for h in headers):
            objects = [None] * len(headers)
            dist.all_gather_object(
                objects, (description, failure and _as_text(failure), asked.message), group=group
            )
    return headers, objects


@functools.lru_cache(maxsize=4096)
def _digest(string) -> int:
    return int.from_bytes(hashlib.blake2b(string.encode(), digest_size=7).digest(), "big")


def _as_text(error):
    return f"{type(error).__module__}:{type(error).__qualname__}", str(error)


def _raise_failure(asked, objects):
    failing = next((rank for rank, (_, error, _) in enumerate(objects) if error), None)
    if failing is None:
        return
    name, message = objects[failing][1]
    called = objects[failing][0].partition("(")[0]
    class_name, error_class = name.partition(":")[2], _class_of(name)
    what = f"{called} failed on rank {failing}: "
    try:
        error = error_class(what + message)
    except Exception:
        error = None
    raise error if isinstance(error, Exception) else CollectiveError(f"{what}{class_name}: {message}")


def _class_of(name):
    """Return the class of another rank's error if this rank has it, else None.

    With it, `except FileNotFoundError` works on every rank.
    """
    module, _, path = name.partition(":")
    error_class = getattr(sys.modules.get(module), path, None)
    return (
        error_class
        if isinstance(error_class, type)
        and issubclass(error_class, Exception)
        and error_class.__str__ in (Exception.__str__, OSError.__str__, KeyError.__str__)
        else None
    )


def _raise_difference(asked, objects):
    descriptions: dict = {}
    for rank, (description, _, _) in enumerate(objects):
        descriptions.setdefault(description, []).append(rank)
    if len(descriptions) > 1:
        each = "; ".join(
            f"{_names(ranks)} called {description}" for description, ranks in descriptions.items()
        )
        raise CollectiveError(
            f"{asked.call}: the ranks disagree: {each}. Every rank has to make the same call with the same"
            " arguments"
        )


def _names(ranks) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {list(ranks)}"


# --------------------------------------------------------------------------- operators
def note(mesh_number, operator):
    """Record an operator that communicated. The next exchange compares the records of a mesh's ranks."""
    if mesh_number < len(_state.history):
        _state.history[mesh_number] = (
            hash((_state.history[mesh_number], _digest(operator.rstrip("_")))) & 0xFFFFFFFFFFFFFF
        )


def _check_history(asked, headers):
    for index, ranks in enumerate(_state.meshes[: len(_state.history)]):
        seen: dict = {}
        for rank in ranks:
            seen.setdefault(headers[rank][4 + index], []).append(rank)
        if len(seen) > 1:
            groups = " and ".join(_names(group) for group in seen.values())
            _break(
                f"{asked.call}: {groups} ran different operators on global tensors before this call, so their"
                " values may be mixed up. Every rank has to run the same operators; restart the program",
                asked.call,
            )
            raise CollectiveError(_state.broken)


# --------------------------------------------------------------------------- failures
def is_out_of_step() -> bool:
    """Whether a collective call failed in such a way that no later one can be trusted."""
    return _state.broken is not None


def check_sound(call):
    """Raise CollectiveError if the ranks are out of step."""
    if _state.broken is not None:
        raise CollectiveError(
            f"{call}: an earlier collective call failed and the ranks are out of step; restart the program."
            f" The first cause: {_state.broken}"
        )


@contextlib.contextmanager
def transfer(call):
    """Surround communication between ranks.

    A timeout or a lost connection becomes an error that names the call and the missing ranks.
    """
    check_sound(call)
    try:
        yield
    except Exception as error:
        if is_lost(error):
            raise lost(call, error) from error
        raise
    except BaseException as interruption:
        lost(call, interruption)
        raise


def is_lost(error) -> bool:
    """Whether an error says that other ranks did not arrive or have ended."""
    if isinstance(error, CollectiveError):
        return False
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(string in str(error) for string in _LOST)


def lost(call, error) -> CollectiveError:
    """Mark the ranks as out of step after `error` in `call`.

    Return the error to raise, which names the first cause.
    """
    if _state.broken is None:
        own = (
            f"rank {_processes.get_rank()} lost the connection to the others in {call} ({_first_line(error)})"
        )
        _break(own, call)
        try:
            _state.broken = _explanation(call, error)
            _wait_for_readers()
        except Exception:
            _state.broken = (
                f"{own}; the process that keeps the ranks' notes, rank 0 or the launcher, has ended"
            )
    return CollectiveError(_state.broken)


def _first_line(error) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def _break(cause, call):
    _state.broken = cause
    with contextlib.suppress(Exception):
        _store().set(f"{_NOTES}/waiting/{dist.get_rank()}", call)
    for group in _state.groups or [dist.group.WORLD]:
        _close(group)


def _close(group):
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
                dist.irecv(nothing, group_src=peer, group=group, tag=1 << 20).wait(
                    datetime.timedelta(milliseconds=1)
                )


def _explanation(call, error) -> str:
    """Return the first cause that a rank recorded.

    If there is none, record and return this rank's account of who waits, who ended and who is missing.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    earlier = _note("cause")
    if not earlier:
        notes = _notes([r for r in range(world) if r != rank])
        gone = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        limit = timeout()
        why = (
            f"waited {limit.total_seconds():g} s for the others"
            if gone and limit
            else "waited for the others in vain"
            if gone
            else "lost the connection to another rank"
        )
        account = [f"rank {r} {note_of_rank}" for r, note_of_rank in notes.items() if note_of_rank]
        missing = [r for r, note_of_rank in notes.items() if not note_of_rank]
        if missing:
            account.append(
                f"{_names(missing)} {'is' if len(missing) == 1 else 'are'} missing: killed, stopped, or busy"
                " with something else than a collective call"
            )
        own = f"rank {rank} {why} in {call}; {'; '.join(account)}"
        earlier = _store().compare_set(f"{_NOTES}/cause", "", own).decode()
    return earlier if earlier.startswith(f"rank {rank} ") else f"{call} on rank {rank} failed, for {earlier}"


def _wait_for_readers():
    """On rank 0, which may keep the notes, let the waiting ranks read them before this process ends."""
    rank, store, deadline = dist.get_rank(), _store(), time.monotonic() + _GRACE
    store.set(f"{_NOTES}/read/{rank}", "")
    others = [
        f"{_NOTES}/read/{r}"
        for r in range(dist.get_world_size())
        if rank == 0 and r and _note(f"waiting/{r}")
    ]
    while others and not store.check(others) and time.monotonic() < deadline:
        time.sleep(0.02)


def _notes(ranks) -> dict:
    """Return the notes of the ranks about how they failed or ended, None for ranks without a note."""
    deadline, notes = time.monotonic() + _GRACE, {}
    while len(notes) < len(ranks):
        for r in ranks:
            waiting = _note(f"waiting/{r}")
            note_of_rank = f"was in {waiting}" if waiting else _note(f"left/{r}")
            if note_of_rank:
                notes[r] = note_of_rank
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return {r: notes.get(r) for r in ranks}


def _note(name) -> str:
    store, key = _store(), f"{_NOTES}/{name}"
    return store.get(key).decode() if store.check([key]) else ""


# --------------------------------------------------------------------------- objects
def from_rank(source, make, call):
    """Return the object that `make()` returns on rank `source`, or raise its error, on every rank."""
    data = b""
    with checking(call, tells=True) as asked:
        asked.same(source=source)
        if _processes.get_rank() == source:
            data = _pickled(make())
            asked.tell(len(data))
    size = asked.told[source][0]
    box = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(size, dtype=torch.uint8, device="cpu")
    )
    with checking(call) as asked:  # a class may be missing on one rank
        with transfer(call):
            dist.broadcast(box, source, group=_state.control)
        obj = _unpickled(box)
    return obj


def _pickled(obj) -> bytes:
    return pickle.dumps(obj)


def _unpickled(box):
    return pickle.loads(box.numpy().tobytes())
