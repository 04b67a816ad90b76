"""oneflow.nn.optimizer: the deep paths of OneFlow's optimizers and schedulers, kept for old imports.

Each path is the module of oneflow.optim that has the class: `oneflow.nn.optimizer.step_lr` is
`oneflow.optim.lr_scheduler`.
"""

import sys as _sys

from ...optim import (
    adadelta,
    adagrad,
    adam,
    adamw,
    lamb,
    lbfgs,
    lr_scheduler,
    optimizer,
    rmsprop,
    sgd,
    swa_utils,
)

SCHEDULER_PATHS = (
    "chained_scheduler constant_lr cosine_annealing_lr cosine_annealing_warm_restarts cosine_decay_lr"
    " exponential_lr lambda_lr linear_lr multiplicative_lr multistep_lr polynomial_lr reduce_lr_on_plateau"
    " sequential_lr step_lr warmup_lr"
)

for _name in SCHEDULER_PATHS.split():
    globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = lr_scheduler
for _name in "adadelta adagrad adam adamw lamb lbfgs lr_scheduler optimizer rmsprop sgd swa_utils".split():
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name]
