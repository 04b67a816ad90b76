"""oneflow.amp: mixed precision on torch.amp, with OneFlow's constructors."""

from .._bind import fall_through as _ft
from . import autocast_mode, grad_scaler
from .autocast_mode import autocast, autocast_decorator
from .grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler", "autocast", "autocast_decorator", "autocast_mode", "grad_scaler"]

__getattr__, __dir__ = _ft(__name__, "torch.amp")
