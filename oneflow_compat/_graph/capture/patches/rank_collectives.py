"""Collectives in build(): torch's collectives that write a tensor are recorded in their functional form.

The schemas of torch's own operators do not say that they write, so a program would drop them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d

from ...errors import CaptureError
from .patching import patched

_KEEP = "Call it outside of build(), or use global tensors."
_Function = Callable[..., Any]


@contextlib.contextmanager
def collectives_that_write(capturing: Callable[[], bool]) -> Iterator[None]:
    """Record dist.all_reduce() and dist.broadcast(), which DistributedDataParallel calls."""
    forms: dict[str, _Function] = {"all_reduce": _all_reduce, "broadcast": _broadcast}
    with contextlib.ExitStack() as stack:
        for module in (dist, distributed_c10d):
            for name, form in forms.items():
                stack.enter_context(patched(module, name, functools.partial(_recorded, capturing, form)))
        yield


def _recorded(capturing: Callable[[], bool], form: _Function, original: _Function) -> _Function:
    @functools.wraps(original)
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not capturing():
            return original(tensor, *args, **kwargs)
        with torch.no_grad():
            tensor.copy_(form(tensor, *args, **kwargs))
        return None

    return call


def _all_reduce(
    tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> torch.Tensor:
    _check_synchronous("all_reduce", async_op)
    name = str(op).rpartition(".")[2].lower()
    reduced: torch.Tensor = functional.all_reduce(tensor, name, _group(group))
    return reduced


def _broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> torch.Tensor:
    _check_synchronous("broadcast", async_op)
    group = _group(group)
    source = group_src if group_src is not None else dist.get_group_rank(group, 0 if src is None else src)
    sent: torch.Tensor = functional.broadcast(tensor, source, group)
    return sent


def _group(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def _check_synchronous(name: str, async_op: bool) -> None:
    if async_op:
        raise CaptureError(f"build() calls torch.distributed.{name} with async_op=True", _KEEP)
