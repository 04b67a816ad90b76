"""Optimizers and schedules in a graph's job message: {class: (message, {field: location of its value})}."""

from typing import Any

_BETAS = {"beta1": ("betas", 0), "beta2": ("betas", 1), "epsilon": "eps"}
_ADAM = _BETAS | {"do_bias_correction": "do_bias_correction", "amsgrad": "amsgrad"}

# a value names a setting of a parameter group; (setting, i) is one element of a pair
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": (
        "momentum_conf",
        {"beta": "momentum", "dampening": "dampening", "nesterov": "nesterov", "maximize": "maximize"},
    ),
    "Adam": ("adam_conf", _ADAM),
    "AdamW": ("adam_conf", _ADAM),
    "Adagrad": (
        "adagrad_conf",
        {"lr_decay": "lr_decay", "initial_accumulator_value": "initial_accumulator_value", "epsilon": "eps"},
    ),
    "RMSprop": ("rmsprop_conf", {"decay_rate": "alpha", "epsilon": "eps", "centered": "centered"}),
    "LAMB": ("lamb_conf", _BETAS | {"do_bias_correction": "do_bias_correction"}),
    "Adadelta": ("adadelta_conf", {"rho": "rho", "epsilon": "eps", "maximize": "maximize"}),
    "Ftrl": (
        "ftrl_conf",
        {n: n for n in ("initial_accumulator_value", "lr_power", "lambda1", "lambda2", "beta")},
    ),
}

# a value names an attribute of the schedule, or is a number
SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "CosineDecayLR": ("cosine_conf", {"decay_batches": "decay_steps", "alpha": "alpha"}),
    "CosineAnnealingLR": ("cosine_annealing_conf", {"t_max": "T_max", "eta_min": "eta_min"}),
    "StepLR": ("step_conf", {"step_size": "step_size", "gamma": "gamma"}),
    "MultiStepLR": ("multi_step_conf", {"milestones": "milestones", "gamma": "gamma"}),
    "ExponentialLR": ("step_conf", {"step_size": 1, "gamma": "gamma"}),
    "ConstantLR": ("constant_lr_conf", {"factor": "factor", "total_iters": "total_iters"}),
    "LinearLR": ("linear_lr_conf", {n: n for n in ("start_factor", "end_factor", "total_iters")}),
    "PolynomialLR": (
        "polynomial_conf",
        {"decay_batches": "max_decay_steps"} | {n: n for n in ("end_learning_rate", "power", "cycle")},
    ),
    "CosineAnnealingWarmRestarts": (
        "cosine_annealing_warm_restarts_conf",
        {"t_initial": "T_0", "t_mult": "T_mult"} | {n: n for n in ("eta_min", "decay_rate", "restart_limit")},
    ),
}

_FLOATS = dict.fromkeys(
    (
        "beta",
        "beta1",
        "beta2",
        "epsilon",
        "dampening",
        "lr_decay",
        "initial_accumulator_value",
        "decay_rate",
        "rho",
        "lr_power",
        "lambda1",
        "lambda2",
        "alpha",
        "eta_min",
        "gamma",
        "factor",
        "start_factor",
        "end_factor",
        "end_learning_rate",
        "power",
    ),
    0.0,
)
_FLAGS = dict.fromkeys(("nesterov", "maximize", "do_bias_correction", "amsgrad", "centered", "cycle"), False)
_OTHERS: dict[str, Any] = _FLOATS | _FLAGS | {"milestones": []}


def messages(table: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return {message: {field: default}} of a table."""
    fields: dict[str, dict[str, Any]] = {}
    for message, names in table.values():
        fields.setdefault(message, {}).update({n: _OTHERS.get(n, 0) for n in names})
    return fields
