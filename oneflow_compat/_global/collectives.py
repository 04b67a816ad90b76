"""Agreement of the ranks on collective calls: a call fails on every rank or on none.

`checking(call)` surrounds code that can raise on one rank alone: checks of arguments, files and shapes. The
ranks then exchange one small tensor on a separate process group. If the body raised on a rank, or if the
ranks made different requests, every rank raises before any data is sent.

`transfer(call)` of failures.py surrounds communication.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import _env, _processes
from .._active import capturing, outside_capture
from .failures import break_off, check_sound, failed_alone, is_lost, is_out_of_step, lost, names, transfer
from .process_group import MESHES, CollectiveError, State, current, note_of, several, state, timeout

_INTEGERS = 4 + MESHES  # position of the integers of send_integers() in a header
_HEADER = 96
_PATIENCE = datetime.timedelta(seconds=5)  # how long a rank that failed alone waits for the others


def immediately() -> contextlib.AbstractContextManager[Any]:
    """Return a context whose body runs immediately, even while a graph is captured."""
    return outside_capture() if capturing() else contextlib.nullcontext()


def _control(state: State) -> Any:
    """Return the group for headers only, so that a header never meets another tensor."""
    if state.control is None:
        cause = note_of("cause")
        if cause:
            raise RuntimeError(f"Connection closed by peer: {cause}")
        state.control = dist.new_group(backend="gloo", timeout=timeout())
        state.header = torch.zeros(_HEADER, dtype=torch.int64, device="cpu")
        everyones = torch.zeros(dist.get_world_size(), _HEADER, dtype=torch.int64, device="cpu")
        state.headers, state.rows = list(everyones.unbind()), everyones.numpy()
        state.groups += [state.control, dist.group.WORLD]
    return state.control


def add_mesh(ranks: Sequence[int], groups: Iterable[Any]) -> int:
    """Register a mesh that every rank has just made, and return its index.

    Its groups are closed, too, when the ranks are out of step, so that no rank keeps waiting.
    """
    state = current()
    state.groups.extend(g for g in groups if g is not dist.group.WORLD)
    state.meshes.append(ranks)
    return len(state.meshes) - 1


# --------------------------------------------------------------------------- agreement
class Request:
    """The request of this rank in a collective call, and the answers of all ranks."""

    def __init__(self, call: str) -> None:
        self.call, self.facts = call, ""
        self.own_integers: tuple[int, ...] = ()
        self.own_message: object = None
        self.integers: list[Any] = []  # the integers of each rank
        self.messages: list[Any] = []  # the messages of each rank

    def must_match(self, **facts: object) -> None:
        """Set the facts that must be the same on every rank."""
        self.facts = ", ".join(f"{name}={value}" for name, value in facts.items())

    def send_integers(self, *integers: int) -> None:
        """Send integers to every rank. After the exchange, `integers` has the list of each rank."""
        self.own_integers = integers

    def send_message(self, message: object) -> None:
        """Send an object to every rank. After the exchange, `messages` has the object of each rank."""
        self.own_message = message

    def __str__(self) -> str:
        return f"{self.call}({self.facts})"


@contextlib.contextmanager
def checking(call: str, sends: bool = False) -> Iterator[Request]:
    """Raise on every rank if the body raises on one rank, or if the ranks make different requests.

    The failing rank raises its own error. The others raise one that names the call, the rank and the cause.
    `sends`: the body sends integers or a message. They are exchanged inside another collective call as well.
    """
    request, failure, before = Request(call), None, state.exchanges
    if not several() or not sends and (state.nested or not _env.is_set("ONEFLOW_CHECK_COLLECTIVES")):
        yield request
        return
    try:
        yield request
    except Exception as error:
        if _was_raised_by_all(error, before):
            raise
        failure = error
    _exchange(request, failure)


def _was_raised_by_all(error: BaseException, before: int) -> bool:
    """Whether an exchange since the `before`th one raised this error, or its cause, on every rank.

    A second exchange about it would meet another call, because a rank that raised first has left this one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "_of_exchange", 0) > before:
            return True
        cause = cause.__cause__
    return False


def raised_by_all(error: Exception) -> Exception:
    """Mark an error that every rank raises."""
    with contextlib.suppress(AttributeError, TypeError):
        error._of_exchange = state.exchanges  # type: ignore[attr-defined]
    return error


@contextlib.contextmanager
def nested() -> Iterator[None]:
    """Skip the checks of calls in the block, which a checked collective call makes."""
    state.nested += 1
    try:
        yield
    finally:
        state.nested -= 1


class RanksDiffer(Exception):
    """The ranks sent different integers to a comparison. `integers` has those of each rank."""

    def __init__(self, integers: list[list[int]]) -> None:
        super().__init__("the ranks differ")
        self.integers = integers


def compare(call: str, *integers: int) -> None:
    """Compare integers between the ranks. Raise RanksDiffer on every rank if they differ.

    Every rank raises if a rank makes another call. Nothing is compared inside another collective call, or if
    ONEFLOW_CHECK_COLLECTIVES=0.
    """
    begin_comparison(call, *integers)
    end_comparison()


def begin_comparison(call: str, *integers: int) -> None:
    """Begin compare(). The next call of end_comparison(), which a program makes, ends it."""
    if state.nested or not _env.is_set("ONEFLOW_CHECK_COLLECTIVES"):
        return
    request, own = Request(call), current()
    request.own_integers = integers
    check_sound(call)
    try:
        own.pending = request, _sent_header(own, request, None)
    except Exception as error:
        raise lost(call, error) if is_lost(error) else error from error


def end_comparison() -> None:
    """End the comparison that has begun, if there is one."""
    if state.pending is None:
        return
    request, work = state.pending
    state.pending = None
    _settle(request, None, lambda: _received(state, request, None, work))
    if any(row != request.integers[0] for row in request.integers):
        raise RanksDiffer(request.integers)


def report_failure(call: str, failure: Exception) -> None:
    """Tell the other ranks that this one raised in the middle of a call that communicates.

    The others learn of it in their next exchange. If there is none in time, they wait for data of this rank:
    the connections are closed, and every rank is out of step.
    """
    if not several() or state.nested or is_out_of_step() or is_lost(failure):
        return
    if not _env.is_set("ONEFLOW_CHECK_COLLECTIVES") or _was_raised_by_all(failure, state.exchanges - 1):
        return
    with contextlib.suppress(Exception):
        _exchange(Request(call), failure, _PATIENCE)


def _exchange(request: Request, failure: Exception | None, limit: datetime.timedelta | None = None) -> None:
    """Exchange the requests of the ranks, and raise on every rank if they differ or a rank has failed.

    `limit`: how long this rank, which has failed, waits for the others.
    """
    state = _current_or(failure)
    check_sound(request.call)
    _settle(request, failure, lambda: _headers(state, request, failure, limit), limit)


def _settle(
    request: Request,
    failure: Exception | None,
    exchange: Callable[[], tuple[list[list[int]], list[Any]]],
    limit: datetime.timedelta | None = None,
) -> None:
    """Wait for an exchange, and raise what the ranks said."""
    try:
        headers, objects = exchange()
    except BaseException as error:
        if isinstance(error, Exception) and not is_lost(error):
            raise
        if failure is not None and limit is not None:
            failed_alone(request.call, failure)
        problem = lost(request.call, error)
        if failure is not None:
            raise failure from None
        if not isinstance(error, Exception):
            raise
        raise problem from error
    state.exchanges += 1
    if failure is not None:
        raise raised_by_all(failure)
    if objects:
        _raise_failure(request, objects)
        _raise_difference(request, objects)
    _check_history(request, headers)
    request.integers = [header[_INTEGERS : _INTEGERS + header[3]] for header in headers]
    request.messages = [message for _, _, message in objects]


def _current_or(failure: Exception | None) -> State:
    """Return the state, or raise the caller's own error rather than one about missing ranks."""
    try:
        return current()
    except Exception:
        if failure is not None:
            raise failure from None
        raise


def _headers(
    state: State, request: Request, failure: Exception | None, limit: datetime.timedelta | None
) -> tuple[list[list[int]], list[Any]]:
    """Exchange and return the headers of all ranks, and their objects if a rank has any."""
    if state.pending is not None:  # the call that began it was interrupted
        with contextlib.suppress(RanksDiffer):
            end_comparison()
    return _received(state, request, failure, _sent_header(state, request, failure), limit)


def _sent_header(state: State, request: Request, failure: Exception | None) -> Any:
    """Send the header of this rank; return the work to wait for."""
    with immediately(), torch.no_grad():
        group = _control(state)
        row = [
            digest_of(request.call if failure else str(request)),
            failure is not None,
            failure is not None or request.own_message is not None,
            len(request.own_integers),
            *state.history,
            *request.own_integers,
        ]
        if len(row) > _HEADER:
            raise ValueError(
                f"{request.call}: a tensor of {len(request.own_integers)} dimensions is too large to exchange"
            )
        state.header.numpy()[: len(row)] = row
        # dist.all_gather takes 80 microseconds more
        return group.allgather([state.headers], [state.header])


def _received(
    state: State,
    request: Request,
    failure: Exception | None,
    work: Any,
    limit: datetime.timedelta | None = None,
) -> tuple[list[list[int]], list[Any]]:
    """Wait for the headers of all ranks. Return them, and the objects of all ranks if a rank has any.

    An object is (the description of the call, the error, the message).
    """
    with immediately(), torch.no_grad():
        work.wait() if limit is None else work.wait(limit)
        headers = state.rows.tolist()
        objects: list[Any] = []
        if len({h[0] for h in headers}) > 1 or any(h[2] for h in headers):
            objects = [None] * len(headers)
            own = str(request), failure and text_of_error(failure), request.own_message
            dist.all_gather_object(objects, own, group=state.control)
    return headers, objects


@functools.lru_cache(maxsize=4096)
def digest_of(string: str) -> int:
    """Return a number of 56 bits that is the same in every process for the same text."""
    return int.from_bytes(hashlib.blake2b(string.encode(), digest_size=7).digest(), "big")


def text_of_error(error: BaseException) -> tuple[str, str]:
    """Return the class and the message of an error, as other ranks get to know it."""
    return f"{type(error).__module__}:{type(error).__qualname__}", str(error)


def _raise_failure(request: Request, objects: list[Any]) -> None:
    failing = next((rank for rank, (_, error, _) in enumerate(objects) if error), None)
    if failing is None:
        return
    called = objects[failing][0].partition("(")[0]
    raise raised_by_all(error_of_rank(called, failing, *objects[failing][1]))


def error_of_rank(call: str, rank: int, name: str, message: str) -> Exception:
    """Return the error that the other ranks raise if one fails, of the same class if possible."""
    class_name, error_class = name.partition(":")[2], _class_of(name)
    what = f"{call} failed on rank {rank}: "
    try:
        error = error_class(what + message) if error_class else None
    except Exception:
        error = None
    if isinstance(error, Exception):
        return error
    return CollectiveError(f"{what}{class_name}: {message}")


def _class_of(name: str) -> type[Exception] | None:
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


def _raise_difference(request: Request, objects: list[Any]) -> None:
    descriptions: dict[Any, Any] = {}
    for rank, (description, _, _) in enumerate(objects):
        descriptions.setdefault(description, []).append(rank)
    if len(descriptions) > 1:
        each = "; ".join(
            f"{names(ranks)} called {description}" for description, ranks in descriptions.items()
        )
        raise raised_by_all(
            CollectiveError(
                f"{request.call}: the ranks disagree: {each}. Every rank has to make the same call with the"
                " same arguments"
            )
        )


# --------------------------------------------------------------------------- operators
def note(mesh_number: int, operator: str) -> None:
    """Record an operator that communicated. The next exchange compares the records of a mesh's ranks."""
    if mesh_number < len(state.history):
        state.history[mesh_number] = (
            hash((state.history[mesh_number], digest_of(operator.rstrip("_")))) & 0xFFFFFFFFFFFFFF
        )


def _check_history(request: Request, headers: list[list[int]]) -> None:
    for index, ranks in enumerate(state.meshes[: len(state.history)]):
        seen: dict[Any, Any] = {}
        for rank in ranks:
            seen.setdefault(headers[rank][4 + index], []).append(rank)
        if len(seen) > 1:
            groups = " and ".join(names(group) for group in seen.values())
            break_off(
                f"{request.call}: {groups} ran different operators on global tensors before this call,"
                " so their values may be mixed up. Every rank has to run the same operators; restart the"
                " program",
                request.call,
            )
            raise CollectiveError(state.broken)


# --------------------------------------------------------------------------- objects
def from_rank(source: int, make: Callable[[], Any], call: str) -> Any:
    """Return the object that `make()` returns on rank `source`, or raise its error, on every rank."""
    data = b""
    with checking(call, sends=True) as request:
        request.must_match(source=source)
        if _processes.get_rank() == source:
            data = _pickled(make())
            request.send_integers(len(data))
    size = request.integers[source][0]
    box = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(size, dtype=torch.uint8, device="cpu")
    )
    with checking(call) as request:  # a class may be missing on one rank
        with transfer(call):
            dist.broadcast(box, source, group=state.control)
        obj = _unpickled(box)
    return obj


def _pickled(obj: object) -> bytes:
    return pickle.dumps(obj)


def _unpickled(box: torch.Tensor) -> Any:
    return pickle.loads(box.numpy().tobytes())
