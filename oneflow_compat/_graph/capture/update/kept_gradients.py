"""Gradients of zeros that zero_grad() of an optimizer leaves in eager mode.

OneFlow's zero_grad() fills gradients with zeros. So a parameter that had a gradient once is updated in every
later step: its weight decay and its momentum go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...guards import sources
from ...guards.guard import Guard
from . import sparse_rows
from .step import external_updates

if TYPE_CHECKING:
    from ..state_map import StateMap


class KeptGradients:
    """The parameters of a capture whose optimizer keeps zeros, by whether they have had a gradient."""

    def __init__(self, state: StateMap, in_eager: Mapping[int, torch.Tensor | None]) -> None:
        """`in_eager`: {id of a parameter: its gradient outside of the capture}."""
        self.guards: list[Guard] = []
        self._state, self._in_eager = state, in_eager
        self._differentiated: list[tuple[dict[int, torch.Tensor], torch.Tensor]] = []

    def fill_in(self) -> None:
        """Give zeros to the parameters without a gradient that had one before, and guard the others."""
        for optimizer, _ in self._state.optimizers:
            if not getattr(optimizer, "_keeps_zero_gradients", False) or optimizer in sparse_rows.lazy:
                continue
            earlier = vars(optimizer).setdefault("_gradients_in_graphs", {})
            without = [*self._without_gradient(optimizer, earlier)]
            self.guards += [_guard(earlier, p, self._state.name_of(p)) for p in without]
            if without:
                self.guards.append(_guard_of_eager_gradients(without))

    def _without_gradient(
        self, optimizer: torch.optim.Optimizer, earlier: dict[int, torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Yield the parameters that have no gradient and never had one."""
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p.grad is not None:
                if p.grad.layout is torch.strided:
                    self._differentiated.append((earlier, p))
            elif p in external_updates:
                continue
            elif id(p) in earlier or self._in_eager.get(id(p)) is not None:
                p.grad = torch.zeros_like(p)
            else:
                yield p

    def note(self) -> None:
        """Remember which parameters had a gradient, after the capture."""
        for earlier, p in self._differentiated:
            earlier[id(p)] = p


def _guard(earlier: dict[int, torch.Tensor], parameter: torch.Tensor, name: str | None) -> Guard:
    label = f"whether the parameter {name!r} had a gradient before"
    return Guard(sources.Contains(id(parameter)), earlier, False, label)


def _guard_of_eager_gradients(parameters: Sequence[Any]) -> Guard:
    label = "the gradients in eager mode of parameters that the step does not use"
    return Guard(sources.Flag("grad"), tuple(parameters), None, label)
