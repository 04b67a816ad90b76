"""Workers that operators run on, and the block that sends them there."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import torch


class Thread:
    """A worker for `thread(worker)`: a CUDA stream of its own, or nothing on the CPU."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream() if torch.cuda.is_available() else None


class thread(contextlib.ContextDecorator):
    """Operators inside the block go to the worker's stream; on the CPU they run in place.

    TypeError unless the argument is an oneflow.asyncs.Thread.
    """

    def __init__(self, worker_thread: Thread) -> None:
        if not isinstance(worker_thread, Thread):
            raise TypeError(
                f"asyncs.thread(worker) needs an oneflow.asyncs.Thread, found {type(worker_thread).__name__}"
            )
        self._worker = worker_thread
        self._stack: list[contextlib.AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        stream = self._worker._stream
        context = torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())
        context.__enter__()
        self._stack.append(context)

    def __exit__(self, *error: Any) -> Literal[False]:
        self._stack.pop().__exit__(*error)
        if self._worker._stream is not None:
            torch.cuda.current_stream().wait_stream(self._worker._stream)
        return False
