"""Facts of a tensor argument besides its layout, such as whether it has a gradient or a history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class ArgumentFact:
    """An assumption of a program about an argument, because build() asked for it."""

    index: int  # position among the flat arguments
    name: str
    value: object
    label: str
    code_location: tuple[str, int, str] | None


_GRAD: Any = torch.Tensor.grad  # a capture may put a property in its place


def _has_gradient(tensor: torch.Tensor) -> bool:
    return (tensor.is_leaf or tensor.retains_grad) and _GRAD.__get__(tensor) is not None


_FACTS: dict[str, Callable[[torch.Tensor], object]] = {
    "class": type,
    "grad": _has_gradient,
    "grad_fn": lambda tensor: tensor.grad_fn is not None,
    "is_leaf": lambda tensor: tensor.is_leaf,
    "retains_grad": lambda tensor: tensor.retains_grad,
    "output_nr": lambda tensor: tensor.output_nr,
    "_base": lambda tensor: tensor._base is not None,
    "_is_view": lambda tensor: tensor._is_view(),
    "_backward_hooks": lambda tensor: bool(tensor._backward_hooks),
    "_post_accumulate_grad_hooks": lambda tensor: bool(tensor._post_accumulate_grad_hooks),
    "storage_offset": lambda tensor: tensor.storage_offset(),
    "untyped_storage": lambda tensor: tensor.untyped_storage().nbytes(),
}
# Answers of a symbolic tensor at the start of build().
_IN_BUILD = {
    "is_leaf": True,
    "output_nr": 0,
    "grad": False,
    "grad_fn": False,
    "retains_grad": False,
    "_base": False,
    "_is_view": False,
    "_backward_hooks": False,
    "_post_accumulate_grad_hooks": False,
}
# A symbolic tensor counts writes and keeps attributes of its own.
UNLIKE_ARGUMENT = frozenset(["_version", "__dict__"])


def is_fact(name: str) -> bool:
    return name in _FACTS


def fact_of(tensor: torch.Tensor, name: str) -> object:
    """Return a fact of a tensor, or whether the user put an attribute of this name on it."""
    read = _FACTS.get(name)
    if read is None:
        return name in tensor.__dict__
    if type(tensor) is torch.Tensor:
        return read(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        return read(tensor)


def is_visible(argument: torch.Tensor, symbolic: torch.Tensor, name: str) -> bool:
    """Whether the symbolic tensor of an argument answers in build() as the argument does."""
    if name == "class":
        return True
    if name in _IN_BUILD or not is_fact(name):
        return fact_of(argument, name) == _IN_BUILD.get(name, False)
    answer = fact_of(symbolic, name)
    return type(answer) is int and answer == fact_of(argument, name)  # a size may be a symbol


class ArgumentFacts:
    """The test of the facts that one program assumes."""

    def __init__(self, facts: Sequence[ArgumentFact], fails: Callable[[ArgumentFact, object], bool]) -> None:
        """`fails(fact, value)` is called for a fact of another value, and returns False."""
        self.facts, self.fails = facts, fails

    def hold(self, arguments: Sequence[Any]) -> bool:
        for fact in self.facts:
            value = fact_of(arguments[fact.index], fact.name)
            if value != fact.value:
                return self.fails(fact, value)
        return True
