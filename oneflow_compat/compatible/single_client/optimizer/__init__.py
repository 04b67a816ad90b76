"""flow.optimizer: optimizers, learning-rate schedules, gradient clipping, loss scaling of job functions."""

from . import grad_clipping, loss_scale, warmup
from ._base import GetVariablesForCurrentJob, Optimizer
from ._rules import LAMB, LARS, SGD, SGDW, Adam, AdamW, CombinedOptimizer, LazyAdam, RMSProp
from ._schedulers import (
    CosineScheduler,
    CustomScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    LrScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
)

PolynomialSchduler = PolynomialScheduler  # OneFlow's own misspelling

__all__ = [
    "Adam",
    "AdamW",
    "CombinedOptimizer",
    "CosineScheduler",
    "CustomScheduler",
    "ExponentialScheduler",
    "GetVariablesForCurrentJob",
    "InverseTimeScheduler",
    "LAMB",
    "LARS",
    "LazyAdam",
    "LinearCosineScheduler",
    "LrScheduler",
    "NaturalExpScheduler",
    "Optimizer",
    "PiecewiseConstantScheduler",
    "PiecewiseScalingScheduler",
    "PolynomialSchduler",
    "PolynomialScheduler",
    "RMSProp",
    "SGD",
    "SGDW",
    "grad_clipping",
    "loss_scale",
    "warmup",
]
