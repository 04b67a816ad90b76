"""oneflow.optim.lr_scheduler: OneFlow's schedulers; torch's others (OneCycleLR, CyclicLR, ...)
fall through.
"""

from ..._bind import fall_through as _ft
from .base import LRScheduler
from .compose import ChainedScheduler, SequentialLR, WarmUpLR, WarmupLR
from .formulas import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CosineDecayLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from .plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CosineDecayLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "LrScheduler",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "WarmUpLR",
    "WarmupLR",
    "_LRScheduler",
]

LrScheduler = _LRScheduler = LRScheduler  # the names in OneFlow before 0.7, and in 1.0

__getattr__, __dir__ = _ft(__name__, "torch.optim.lr_scheduler", classes=True)
