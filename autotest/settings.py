"""Settings of torch's process that a call may change: the grad mode and the default dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .errors import Mismatch

if TYPE_CHECKING:
    import torch


class Settings(NamedTuple):
    """State of torch that both sides share if the candidate runs on torch."""

    grad_enabled: bool
    default_dtype: torch.dtype

    def __str__(self) -> str:
        mode = "enabled" if self.grad_enabled else "disabled"
        return f"gradients {mode}, default dtype {str(self.default_dtype).removeprefix('torch.')}"


def current_settings() -> Settings:
    import torch  # here, because the harness may be imported without it

    return Settings(torch.is_grad_enabled(), torch.get_default_dtype())


def set_settings(settings: Settings) -> None:
    import torch

    torch.set_grad_enabled(settings.grad_enabled)
    torch.set_default_dtype(settings.default_dtype)


def compare_settings(before: Settings, reference: Settings, names: tuple[str, str]) -> None:
    """Raise Mismatch, and put the settings back, if the candidate's call left others than the reference's."""
    candidate = current_settings()
    if candidate != reference:
        set_settings(before)
        raise Mismatch("settings", f"{names[0]} leaves {reference}\n{names[1]} leaves {candidate}")
