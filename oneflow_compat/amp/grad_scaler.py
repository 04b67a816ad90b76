"""oneflow.amp.grad_scaler: loss scaling for nn.Graph (`graph.set_grad_scaler`) and for eager loops."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .._bind import fall_through as _ft

__all__ = ["GradScaler", "StaticGradScaler"]


ONEFLOW_ORDER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
TORCH_ORDER = ("device", *ONEFLOW_ORDER, "enabled")
DEFAULTS = {"init_scale": 2.0**16, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}


class GradScaler(torch.amp.GradScaler):
    """Dynamic loss scaling: `GradScaler(init_scale=65536., growth_factor=2., backoff_factor=.5,
    growth_interval=2000)`.

    torch's `scale/unscale_/step/update` work as well. A string in the first place means torch's positional
    order, which begins with the device; by default that is "cuda" where there is one, else "cpu".

    TypeError for an unknown or repeated argument.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        order = TORCH_ORDER if args and isinstance(args[0], (str, torch.device)) else ONEFLOW_ORDER
        if len(args) > len(order):
            raise TypeError(
                f"GradScaler() takes at most {len(order)} positional arguments ({', '.join(order)}), got"
                f" {len(args)}"
            )
        options = dict(zip(order, args))
        twice, unknown = options.keys() & kwargs.keys(), kwargs.keys() - set(TORCH_ORDER)
        if twice or unknown:
            raise TypeError(
                f"GradScaler() got {sorted(twice or unknown)[0]!r}"
                f" {'twice' if twice else 'which it does not know'}"
            )
        options = {**DEFAULTS, **options, **kwargs}
        device = options.pop("device", None) or ("cuda" if torch.cuda.is_available() else "cpu")
        super().__init__(str(device), **{**options, "init_scale": float(options["init_scale"])})

    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        + [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=d)
            for n, d in DEFAULTS.items()
        ]
        + [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d)
            for n, d in (("device", None), ("enabled", True))
        ]
    )


class StaticGradScaler(GradScaler):
    """A constant loss scale. `update()` keeps it; a step with infinite gradients is skipped.

    ValueError unless `scale_factor` is positive.
    """

    def __init__(self, scale_factor: float) -> None:
        if not scale_factor > 0:
            raise ValueError(f"StaticGradScaler: scale_factor={scale_factor} must be positive")
        super().__init__(init_scale=scale_factor)
        self.scale_factor = float(scale_factor)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        if new_scale is not None:
            self.scale_factor = float(new_scale)
        super().update(self.scale_factor)


__getattr__, __dir__ = _ft(__name__, "torch.amp.grad_scaler")
