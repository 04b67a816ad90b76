"""oneflow.amp.autocast_mode."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from .._bind import fall_through as _ft

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["autocast", "autocast_decorator"]


class autocast(torch.amp.autocast):
    """torch.autocast; on "cpu" without a dtype nothing is cast, as in OneFlow (torch: bfloat16).

    Context manager or decorator.
    """

    def __init__(
        self,
        device_type: str | torch.device,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        name = device_type.type if isinstance(device_type, torch.device) else device_type
        if name == "cpu" and dtype is None:
            enabled = False
        super().__init__(name, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def autocast_decorator(autocast_instance: torch.amp.autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` running under `autocast_instance`."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    unsupported = "@autocast() decorator is not supported in script mode"
    decorate_autocast.__script_unsupported = unsupported  # type: ignore[attr-defined]
    return decorate_autocast


__getattr__, __dir__ = _ft(__name__, "torch.amp.autocast_mode")
