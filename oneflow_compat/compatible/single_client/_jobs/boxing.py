"""On a machine with a GPU, blobs of a job move to the device of the placement scope they are used in."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .devices import current


def boxing(trace: Any) -> Any:
    """Return a context for the body of a job; it does nothing on a machine without a GPU."""
    if not torch.cuda.is_available():
        return contextlib.nullcontext()

    return Boxing(lambda: current(trace.job))


class Boxing(TorchFunctionMode):
    """Move the tensors of an operator to `target()` if they are on several devices.

    CPU tensors of 0 dimensions are not moved.
    """

    def __init__(self, target: Callable[..., Any]) -> None:
        super().__init__()
        self.target = target

    def __torch_function__(
        self,
        function: Any,
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> torch.Tensor | torch.device:
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") not in _FREE:
            devices = {
                t.device for t in _tensors((*args, *kwargs.values())) if t.dim() or t.device.type != "cpu"
            }
            if len(devices) > 1:
                device = self.target()
                args = [_move(a, device) for a in args]
                kwargs = {k: _move(v, device) for k, v in kwargs.items()}
        return function(*args, **kwargs)


# Functions that never move tensors: attribute reads, explicit moves and in-place writes.
_FREE = {
    "to",
    "cpu",
    "cuda",
    "__get__",
    "__set__",
    "copy_",
    "detach",
    "fill_",
    "requires_grad_",
    "untyped_storage",
    "data_ptr",
    "numel",
    "dim",
}


def _move(a: Any, device: torch.device) -> Any:
    if isinstance(a, torch.Tensor):
        return a if a.device == device or a.dim() == 0 and a.device.type == "cpu" else a.to(device)
    if type(a) in (list, tuple):
        return type(a)(_move(x, device) for x in a)
    return a


def _tensors(items: Sequence[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif type(item) in (list, tuple):
            yield from _tensors(item)
