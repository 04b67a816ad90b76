"""Asynchronous saves: a snapshot of the values, and the thread that writes it."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from .shard_files import Part
from .tensors import blocks, is_plain_memory

_ALIGNMENT = 64  # bytes
_THREADS = 8  # threads that copy; more do not copy faster


class PendingSave:
    """An asynchronous save that runs in a thread. The exit of the process waits for it."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._error: BaseException | None = None
        self._is_reported = False
        self._thread = threading.Thread(target=self._run, name="oneflow.save")

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self._error = error

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def done(self) -> bool:
        """Whether the save has ended, with the new checkpoint or with an error."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the checkpoint is complete. Raise the error of the save; every rank raises."""
        self._thread.join()
        if self._error is not None:
            self._is_reported = True
            raise self._error

    def report(self) -> None:
        """Wait, and raise the error unless wait() has raised it before."""
        self._thread.join()
        if not self._is_reported:
            self.wait()


_last: list[PendingSave] = []
_buffers: dict[bool, torch.Tensor] = {}  # pinned or not -> the memory of snapshots, kept for the next save


def finish_last() -> None:
    """Wait for the last asynchronous save, and raise its error if nobody has seen it."""
    while _last:
        _last.pop().report()


def start(write: Callable[[], None]) -> PendingSave:
    """Run `write()` in a thread."""
    pending = PendingSave(write)
    _last.append(pending)
    pending.start()
    return pending


@atexit.register
def _report_at_exit() -> None:
    try:
        finish_last()
    except BaseException as error:
        print(f"oneflow.save: the last asynchronous save failed: {error}", file=sys.stderr)


def snapshot(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with copies of their values, in a buffer that all asynchronous saves share.

    The copy takes the time of one pass over the memory, except in the first save, which allocates the buffer.
    """
    starts, end = [], 0
    for part in parts:
        starts.append(end)
        end += -(-part.values.nbytes // _ALIGNMENT) * _ALIGNMENT
    is_pinned = any(part.values.is_cuda for part in parts)
    buffer = _buffers.get(is_pinned)
    if buffer is None or buffer.numel() < end:
        _buffers.pop(is_pinned, None)  # freed before the larger one is allocated
        buffer = _buffers[is_pinned] = torch.empty(end, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
    copies = []
    for part, begin in zip(parts, starts):
        values = part.values
        copy = buffer[begin : begin + values.nbytes].view(values.dtype).view(values.shape)
        copies.append(Part(part.key, copy))
    _copy([(copy.values, part.values) for copy, part in zip(copies, parts)])
    return copies


def _copy(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy the second tensor of each pair to the first one.

    Threads of Python copy blocks of contiguous tensors. OpenMP's threads, which copy_() uses, wait for each
    other after each tensor: on a busy machine that takes three times as long.
    """
    written: list[tuple[np.ndarray, np.ndarray]] = []
    for target, source in pairs:
        if is_plain_memory(source):
            blocks_of_both = zip(blocks(target), blocks(source))
            written += [(np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8)) for a, b in blocks_of_both]
        else:
            target.copy_(source, non_blocking=source.is_cuda)
    with ThreadPoolExecutor(min(torch.get_num_threads(), _THREADS), "oneflow.snapshot") as pool:
        list(pool.map(lambda pair: np.copyto(*pair), written))
    if any(source.is_cuda for _, source in pairs):
        torch.cuda.synchronize()
