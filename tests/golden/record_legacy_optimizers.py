"""Record ten steps of OneFlow 0.9.0's optimizers that share an update rule with job functions.

Run with OneFlow 0.9.0: python tests/golden/record_legacy_optimizers.py > tests/golden/legacy_optimizers.json
The keys are those of RULES in tests/legacy/test_legacy_update_rules.py. LARS has no optimizer in 0.9.0.
"""

import json

import numpy as np

import oneflow as flow
from oneflow import optim

STEPS, LR = 10, 0.1
START = np.random.default_rng(3).normal(size=(3, 4))
BATCHES = np.random.default_rng(4).normal(size=(STEPS, 3, 4)).astype(np.float32)
MOMENTS = {"betas": (0.9, 0.99), "eps": 1e-3}
OPTIMIZERS = {
    "SGD": (optim.SGD, {}),
    "SGD-momentum": (optim.SGD, {"momentum": 0.9}),
    "SGDW-plain": (optim.SGD, {"weight_decay": 0.3}),
    "Adam": (optim.Adam, {**MOMENTS, "do_bias_correction": False}),
    "Adam-corrected": (optim.Adam, MOMENTS),
    "AdamW": (optim.AdamW, {**MOMENTS, "weight_decay": 0.2, "do_bias_correction": False}),
    "AdamW-corrected": (optim.AdamW, {**MOMENTS, "weight_decay": 0.2}),
    "LazyAdam": (optim.Adam, MOMENTS),
    "RMSProp": (optim.RMSprop, {"alpha": 0.9, "eps": 1e-3}),
    "RMSProp-centered": (optim.RMSprop, {"alpha": 0.9, "eps": 1e-3, "centered": True}),
    "LAMB": (optim.LAMB, {"betas": (0.9, 0.99), "eps": 1e-6}),
    "LAMB-decay": (optim.LAMB, {"betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.2}),
}


def last_value(optimizer, options):
    parameter = flow.nn.Parameter(flow.tensor(START.astype(np.float32)))
    stepper = optimizer([parameter], lr=LR, **options)
    for batch in BATCHES:
        parameter.grad = flow.tensor((batch.astype(np.float64) / batch.size).astype(np.float32))
        stepper.step()
    return [float(f"{value:.7g}") for value in parameter.numpy().ravel()]


if __name__ == "__main__":
    values = {name: last_value(*how) for name, how in OPTIMIZERS.items()}
    print(json.dumps({"oneflow": flow.__version__, "values": values}, indent=1))
