"""Results and arguments whose history would go on outside of a program, which keeps gradients inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ...errors import CaptureError


def refuse_open_histories(arguments: Iterable[Any], results: Iterable[Any], consumed: Sequence[Any]) -> None:
    """Raise if build() computed the gradient of an argument, or returns a tensor with a history not used yet.

    `consumed` are the nodes of autograd that a backward() in build() began with.
    """
    if any(isinstance(v, torch.Tensor) and v.requires_grad and v.grad is not None for v in arguments):
        raise CaptureError(
            "the step computes the gradient of an argument",
            "Use torch.autograd.grad(), or make the tensor in the step.",
        )
    used = set(_nodes(list(consumed), set()))
    histories = [r.grad_fn for r in results if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    if any(hasattr(node, "variable") for node in _nodes([n for n in histories if n not in used], used)):
        raise CaptureError(
            "the step returns a tensor whose backward() the caller may call",
            "Call backward() in the step, or return tensor.detach().",
        )


def _nodes(found: list[Any], used: set[Any]) -> Iterator[Any]:
    """Yield these nodes of autograd and those before them, but not what lies before a used one.

    The nodes of leaf tensors, which have the attribute `variable`, are used again and again.
    """
    seen = set(found)
    while found:
        node = found.pop()
        yield node
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                if before not in used or hasattr(before, "variable"):
                    seen.add(before)
                    found.append(before)
