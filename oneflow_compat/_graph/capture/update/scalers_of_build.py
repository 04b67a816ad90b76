"""GradScalers that build() uses itself, as a training step of eager mode does.

`scaler.step(optimizer)` skips the step by a value. A program steps and takes the old values back by a value.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.amp import GradScaler

from ...._active import capturing, outside_capture
from ...errors import CaptureError
from ..patches.patching import patched, undone
from .loss_scaling import keep_old, put_back

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .step import Update


class ScalersOfBuild:
    """The GradScalers that build() uses, each with what it notes between unscale_() and update()."""

    def __init__(self, update: Update | None, on_creation: Callable[[object], None]) -> None:
        """`on_creation(attributes)` is called once the capture has put tensors into those of a scaler."""
        self._update, self._on_creation = update, on_creation
        self._notes: list[tuple[GradScaler, Any]] = []

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(undone(self._restore))
            for name in ("unscale_", "step", "update"):
                stack.enter_context(patched(GradScaler, name, self._noting))
            stack.enter_context(patched(GradScaler, "_maybe_opt_step", self._choosing))
            stack.enter_context(patched(GradScaler, "_lazy_init_scale_growth_tracker", self._creating))
            yield
            self._check()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            if capturing() and scaler.is_enabled() and all(scaler is not known for known, _ in self._notes):
                notes = scaler._per_optimizer_states
                if notes:
                    raise CaptureError(
                        "the step begins between unscale_() and update() of a GradScaler",
                        "Call unscale_(), step() and update() in one step.",
                    )
                self._notes.append((scaler, notes))
            return original(scaler, *args, **kwargs)

        return method

    def _choosing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scaler: GradScaler, optimizer: Optimizer, state: Any, *args: Any, **kwargs: Any) -> Any:
            update = self._update
            if not capturing():
                return original(scaler, optimizer, state, *args, **kwargs)
            if update is None or all(optimizer is not known for known, _ in update.state.optimizers):
                return optimizer.step()  # the capture finds the optimizer, and begins again
            overflows = list(state["found_inf_per_device"].values())
            found_inf = sum(overflows[1:], start=overflows[0])
            with update.phase():
                update.prepare(optimizer)
                kept = keep_old([optimizer])
            optimizer.step(*args, **kwargs)
            with update.phase():
                put_back(update, [optimizer], found_inf, kept)
            update.skips_steps = True
            return None

        return step

    def _creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Create the tensors of a GradScaler as real ones, which its next call finds."""

        @functools.wraps(original)
        def create(scaler: GradScaler, device: torch.device) -> None:
            if not capturing():
                original(scaler, device)
                return
            with outside_capture():
                original(scaler, device)
            self._on_creation(vars(scaler))

        return create

    def _check(self) -> None:
        for scaler, _ in self._notes:
            if scaler._per_optimizer_states:
                raise CaptureError(
                    "the step ends between unscale_() and update() of a GradScaler",
                    "Call scaler.update() in the step.",
                )

    def _restore(self) -> None:
        for scaler, notes in self._notes:
            notes.clear()
            scaler._per_optimizer_states = notes


def refuse_skipped_numbers(update: Update) -> None:
    """Raise if a step that may be skipped counts in Python numbers, which the program would store."""
    if update.skips_steps and update.state_values:
        raise CaptureError(
            "a GradScaler in the step may skip the step of an optimizer that keeps Python numbers",
            "Give an optimizer whose state are tensors, or use add_optimizer() of nn.Graph.",
        )
