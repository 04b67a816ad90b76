"""What the ranks compare of a captured program: its calls on global tensors, and its collectives."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.fx import Node

from ..._global.call_log import CallLog
from ..._global.marks import OfSeveralRanks
from ..errors import user_location
from ..program.shared_calls import SharedCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .interfaces import CaptureInterface

_DEPTH = 16  # operators that the text of a local tensor follows


class Recording(Protocol):
    """What the log reads of a recorder."""

    markers: dict[float, object]
    constants: dict[str, torch.Tensor]


def call_log(recorder: Recording) -> CallLog:
    """Return the empty log of a recorder."""
    return CallLog(
        lambda: user_location(5),
        lambda number: number in recorder.markers,
        lambda tensor: _text_of(getattr(tensor, "_of_node", None), recorder.constants, _DEPTH),
    )


def _text_of(node: Any, constants: dict[str, torch.Tensor], depth: int) -> str:
    """Return the expression that computes a local tensor, so that a number in it is compared.

    For example, flow.full((2,), 3.0, placement=P) is computed as full.default([2], 3.0) on every rank.
    """
    if isinstance(node, (list, tuple)):
        return f"[{', '.join(_text_of(item, constants, depth) for item in node)}]"
    if not isinstance(node, Node):
        return str(node) if isinstance(node, (bool, int, float, complex, str)) else type(node).__name__
    if node.op == "get_attr":
        return f"constant {_digest_of_values(constants.get(str(node.target)))}"
    if node.op == "placeholder" or depth == 0:
        return "a local tensor"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{name}({', '.join(_text_of(a, constants, depth - 1) for a in node.args)})"


def _digest_of_values(tensor: torch.Tensor | None) -> str:
    if tensor is None or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return ""
    values = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype}{list(tensor.shape)} {hashlib.blake2b(values, digest_size=6).hexdigest()}"


def note_state(capture: CaptureInterface, inputs: Iterable[Any], names: Iterable[str]) -> None:
    """Add the options of the program, its global arguments and its global state to the log of a capture."""
    log = capture.recorder.calls
    for option in _OPTIONS:
        value = getattr(capture.config, option)
        value = "aten" if value == "auto" else value  # collectives run on aten then
        log.add_fact(f"the option {option} = {value!r}")
    if capture.plan is not None:
        log.add_fact(f"the pipeline {capture.plan}")
    for name, value in zip(names, inputs):
        if isinstance(value, OfSeveralRanks):
            log.add_argument(value, name)
    for tensor in {id(tensor): tensor for tensor in capture.tensors}.values():
        if isinstance(tensor, OfSeveralRanks):
            training = "trained" if tensor.requires_grad else "not trained"
            log.add_fact(f"{log.describe(tensor)}: {log.form(tensor)}, {training}")


_OPTIONS = (
    "backend",
    "amp",
    "amp_dtype",
    "accumulation",
    "fuse_update",
    "multi_tensor",
    "fuse_add_to_output",
    "fuse_cast_scale",
    "fuse_compositions",
    "fuse_dropout",
    "zero",
    "zero_stores_shards",
)


def note_collective(log: CallLog, func: Any, args: tuple[Any, ...]) -> None:
    """Add a collective on local tensors, which build() calls itself, to the log of a capture."""
    if log.is_outside and func._opname != "wait_tensor":
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        forms = ", ".join(f"{t.dtype}[{', '.join(map(log.describe, t.shape))}]" for t in tensors)
        log.is_shared = True
        operations = [value for value in args[1:2] if isinstance(value, str)]  # "sum", not a group's name
        log.add(f"{func._opname}({', '.join([forms, *operations])})")


def shared_calls(log: CallLog, results: Iterable[Any]) -> SharedCalls | None:
    """Return what the ranks compare, or None if the program has neither global tensors nor collectives."""
    returned = [log.describe(value) for value in results if isinstance(value, OfSeveralRanks)]
    if returned:
        log.add_fact(f"the results {', '.join(returned)}")
    if not log.is_shared:
        return None
    digest = hashlib.blake2b("\n".join(log.lines).encode(), digest_size=7).digest()
    return SharedCalls(int.from_bytes(digest, "big") or 1, tuple(log.lines), tuple(log.locations))
