"""Refuse histories, gradients, hooks and attributes that build() leaves on tensors outside of the program.

Eager mode leaves them on the caller's own tensors, and a program computes new ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ...errors import CaptureError

_OF_RECORDER = frozenset(
    ["_of_node", "_of_link", "_value", "_unknown_rows", "_of_placement", "_of_sbp", "_dtensor"]
)
_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"


def refuse_open_histories(arguments: Iterable[Any], results: Iterable[Any], consumed: Sequence[Any]) -> None:
    """Raise if build() computed the gradient of an argument, or returns a tensor with a history not used yet.

    `consumed` are the nodes of autograd that a backward() in build() began with.
    """
    arguments, results = list(arguments), list(results)
    if any(isinstance(v, torch.Tensor) and v.requires_grad and v.grad is not None for v in arguments):
        raise CaptureError(
            "the step computes the gradient of an argument",
            "Use torch.autograd.grad(), or make the tensor in the step.",
        )
    for tensor in filter(_is_fake, arguments):
        _refuse_changed_argument(tensor)
    ids = set(map(id, arguments))
    for tensor in filter(_is_fake, results):
        if id(tensor) not in ids and _collects_gradient(tensor):
            raise CaptureError(
                "the step returns a tensor that it made, and that collects or has a gradient",
                "Return tensor.detach(), and its gradient beside it.",
            )
    if _has_open_history(results, consumed):
        raise CaptureError(
            "the step returns a tensor whose backward() the caller may call",
            "Call backward() in the step, or return tensor.detach().",
        )


def _collects_gradient(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a gradient, or a later backward() would give it one."""
    return tensor.retains_grad or tensor.is_leaf and (tensor.requires_grad or tensor.grad is not None)


def _has_open_history(results: Sequence[Any], consumed: Sequence[Any]) -> bool:
    """Whether backward() of a result would reach tensors by nodes that build() has not used."""
    used = set(_nodes(list(consumed), set()))
    histories = [r.grad_fn for r in results if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    return any(hasattr(node, "variable") for node in _nodes([n for n in histories if n not in used], used))


def refuse_older_histories(tensors: Iterable[torch.Tensor], older: Sequence[Any]) -> None:
    """Raise, before backward() frees anything, if it would go on into a history from before the call."""
    roots = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    if older and not set(older).isdisjoint(_nodes(roots, set())):
        raise CaptureError(
            "backward() goes on into a history that a tensor had before the call",
            "Give the step tensor.detach(), or compute the tensor in the step.",
        )


def refuse_lost_attributes(results: Iterable[Any]) -> None:
    """Raise if build() put an attribute on a tensor that it returns, because each run makes a new tensor."""
    for tensor in filter(_is_fake, results):
        names = sorted(vars(tensor).keys() - _names_of_fakes() - _OF_RECORDER)
        if names:
            raise CaptureError(
                f"build() returns a tensor with the attribute {names[0]!r}, which tensors of a program lack",
                "Return the value of the attribute beside the tensor.",
            )


def _refuse_changed_argument(tensor: torch.Tensor) -> None:
    """Raise if build() left on an argument what the caller's tensor would not have."""
    argument = tensor._of_node.meta.get("value")  # type: ignore[attr-defined]
    names = sorted(vars(tensor).keys() - _names_of_fakes() - _OF_RECORDER)
    if not names and isinstance(argument, torch.Tensor) and tensor.requires_grad != argument.requires_grad:
        names = ["requires_grad"]
    names += [name for name in _HOOKS if getattr(tensor, name)]
    if names:
        raise CaptureError(
            f"build() changes {names[0]!r} of an argument, and a program leaves the caller's tensor as it is",
            "Change the tensor before the call, or change x.detach() in build().",
        )


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


@functools.cache
def _names_of_fakes() -> frozenset[str]:
    """Return the attributes that torch itself puts on a symbolic tensor."""
    with FakeTensorMode():
        return frozenset(vars(torch.empty(0)))


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
