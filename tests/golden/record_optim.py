"""Record optimizer and scheduler results of OneFlow 0.9.0 into optim_*.json beside this file.

Run it with an interpreter that has real OneFlow:  python record_optim.py
Each case is Python text that tests/optim replays with `flow` bound to this package.
"""

import contextlib
import io
import itertools
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 6

# w, b: a linear layer; s: 0-d; z: starts at zero; u: never has a gradient
SETUP = """
rs = np.random.RandomState(0)
w = nn.Parameter(flow.tensor(rs.randn(3, 4).astype('float32')))
b = nn.Parameter(flow.tensor(rs.randn(4).astype('float32')))
s = nn.Parameter(flow.tensor(float(np.float32(0.7)), dtype=flow.float32))
z = nn.Parameter(flow.zeros(2))
u = nn.Parameter(flow.ones(2))
X = flow.tensor(rs.randn(5, 3).astype('float32'))
Y = flow.tensor(rs.randn(5, 4).astype('float32'))
P = [w, b, s, z, u]
def loss():
    return ((flow.matmul(X, w) * s + b - Y) ** 2).mean() + (z * z * 3.0 + z).sum()
"""

OPTIMIZERS = (
    [
        "SGD(P, lr=0.1, momentum=%s, dampening=%s, weight_decay=%s, nesterov=%s)" % c
        for c in itertools.product((0.0, 0.9), (0.0, 0.3), (0.0, 0.05), (False, True))
    ]
    + ["SGD(P, lr=0.1, momentum=0.9, maximize=True)", "SGD(P, 0.05, 0.8, 0.2, 0.01, True, True)", "SGD(P)"]
    + [
        "%s(P, lr=0.05, betas=(%s, 0.99), weight_decay=%s, amsgrad=%s, do_bias_correction=%s)" % c
        for c in itertools.product(("Adam", "AdamW"), (0.9,), (0.0, 0.1), (False, True), (False, True))
    ]
    + [
        "Adam(P)",
        "AdamW(P)",
        "Adam(P, 0.01, (0.5, 0.9), 1e-3)",
        "AdamW(P, 0.01, (0.5, 0.9), 1e-3, 0.2, True, False)",
    ]
    + [
        "Adagrad(P, lr=%s, lr_decay=%s, weight_decay=%s, initial_accumulator_value=%s)" % c
        for c in itertools.product((0.1,), (0.0, 0.1), (0.0, 0.1), (0.0, 0.5))
    ]
    + ["Adagrad(P)"]
    + [
        "Adadelta(P, lr=%s, rho=%s, weight_decay=%s)" % c
        for c in itertools.product((1.0, 0.3), (0.9, 0.5), (0.0, 0.1))
    ]
    + ["Adadelta(P)"]
    + [
        "RMSprop(P, lr=0.01, alpha=%s, eps=%s, weight_decay=%s, centered=%s)" % c
        for c in itertools.product((0.99, 0.5), (1e-8, 1e-2), (0.0, 0.1), (False, True))
    ]
    + ["RMSprop(P)"]
    + [
        "LAMB(P, lr=0.05, betas=(0.9, 0.99), weight_decay=%s, adam_w_mode=%s, do_bias_correction=%s)" % c
        for c in itertools.product((0.0, 0.1), (False, True), (False, True))
    ]
    + ["LAMB(P)"]
    + [
        "SGD([{'params': [w, s]}, {'params': [b, z], 'lr': 0.01, 'momentum': 0.5}], lr=0.1)",
        (
            "AdamW([{'params': [w, s], 'weight_decay': 0.3}, {'params': [b, z], 'lr': 0.01, 'betas': (0.5, "
            "0.6)}], lr=0.1)"
        ),
        "LAMB([{'params': [w, s], 'weight_decay': 0.3}, {'params': [b, z], 'lr': 0.01}], lr=0.1)",
    ]
)

CLIPPED = [
    (
        "SGD([{'params': [w, b], 'clip_grad_max_norm': %s, 'clip_grad_norm_type': %s}, {'params': [s, "
        "z]}], lr=0.1)"
    )
    % c
    for c in (("0.5", "2.0"), ("0.2", "1.0"), ("0.3", "float('inf')"), ("100.0", "2.0"), ("0.5", "3.0"))
] + [
    (
        "Adam([{'params': [w], 'clip_grad_max_norm': 0.1, 'clip_grad_norm_type': 2.0}, {'params': [b, s], "
        "'clip_grad_max_norm': 0.2, 'clip_grad_norm_type': 2.0}], lr=0.1)"
    )
]

# OneFlow 0.9.0's CPU kernel raises to lr_power where the formula says -lr_power: recorded with the sign
# turned
FTRL = [
    "Ftrl(P, lr=%s, lr_power=%s, lambda1=%s, lambda2=%s, beta=%s, weight_decay=%s)" % c
    for c in (
        (0.1, -0.5, 0.0, 0.0, 0.0, 0.0),
        (0.1, -0.5, 0.1, 0.2, 0.5, 0.0),
        (0.3, -0.7, 0.5, 0.0, 0.0, 0.0),
        (0.1, -0.5, 0.0, 0.0, 1.0, 0.1),
    )
]

RESUMED = [
    "SGD(P, lr=0.1)",
    "SGD(P, lr=0.1, momentum=0.9)",
    "Adam(P, lr=0.1)",
    "Adam(P, lr=0.1, amsgrad=True)",
    "AdamW(P, lr=0.1, weight_decay=0.1)",
    "RMSprop(P, lr=0.1)",
    "RMSprop(P, lr=0.1, centered=True)",
    "Adagrad(P, lr=0.1, lr_decay=0.1)",
    "Adadelta(P)",
    "LAMB(P, lr=0.1)",
]

SCHEDULERS = [
    "StepLR(o, 3)",
    "StepLR(o, 4, 0.5)",
    "MultiStepLR(o, [2, 5, 11], 0.3)",
    "ExponentialLR(o, 0.8)",
    "ConstantLR(o)",
    "ConstantLR(o, 0.25, 7)",
    "ConstantLR(o, 0.0, 2)",
    "LinearLR(o)",
    "LinearLR(o, 0.5, 0.2, 4)",
    "LinearLR(o, 0.0, 1.0, 6)",
    "LinearLR(o, 0.5, 1.0, 0)",
    "CosineAnnealingLR(o, 5)",
    "CosineAnnealingLR(o, 7, 0.02)",
    "CosineDecayLR(o, 6)",
    "CosineDecayLR(o, 4, 0.2)",
    "LambdaLR(o, lambda e: 0.9 ** e)",
    "LambdaLR(o, lr_lambda=lambda e: 1 / (e + 1))",
    "PolynomialLR(o, 5)",
    "PolynomialLR(o, 5, 0.01, 2.0)",
    "PolynomialLR(o, 4, 0.01, 2.0, True)",
    "PolynomialLR(o, 3, 0.0, 0.5, True)",
    "CosineAnnealingWarmRestarts(o, 3)",
    "CosineAnnealingWarmRestarts(o, 2, 2, 0.01)",
    "CosineAnnealingWarmRestarts(o, 2, 2, 0.01, 0.5, 2)",
    "CosineAnnealingWarmRestarts(o, 2, 1, 0.01, 0.5, 3)",
    "CosineAnnealingWarmRestarts(o, 4, 1, 0.0, 0.7)",
    "CosineAnnealingWarmRestarts(o, 1, 3)",
    "SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], [3])",
    "SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], [3], True)",
    (
        "SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.StepLR(o, 2, 0.5), L.ExponentialLR(o, 0.9)], [3, 6], "
        "[True, False])"
    ),
    (
        "SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.StepLR(o, 2, 0.5), L.ExponentialLR(o, 0.9)], [3, 6], "
        "[False, True])"
    ),
    "SequentialLR(o, [L.StepLR(o, 2, 0.5), L.StepLR(o, 3, 0.1)], [4], False, 2)",
    (
        "SequentialLR(o, [L.LinearLR(o, 0.1, 1.0, 3), L.CosineAnnealingLR(o, 5, 0.01), L.PolynomialLR(o, "
        "9)], [3, 8], interval_rescaling=True)"
    ),
    "ChainedScheduler([L.StepLR(o, 2, 0.5), L.ExponentialLR(o, 0.9)])",
    "ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)])",
    "ChainedScheduler([L.LinearLR(o, 0.5, 1.0, 3), L.CosineDecayLR(o, 9), L.MultiStepLR(o, [4])])",
    "WarmUpLR(o)",
    "WarmUpLR(o, 0.1, 4)",
    "WarmUpLR(o, 0.1, 4, 'constant')",
    "WarmUpLR(o, 0.0, 3)",
    "WarmupLR(o, warmup_factor=0.2, warmup_iters=6)",
    "WarmUpLR(L.CosineDecayLR(o, 8), 0.1, 4, 'linear')",
    "WarmUpLR(L.CosineDecayLR(o, 8), 0.1, 4, 'linear', True)",
    "WarmUpLR(L.CosineDecayLR(o, 8), 0.1, 4, 'constant')",
    "WarmUpLR(L.CosineDecayLR(o, 8), 0.1, 4, 'constant', True)",
    "WarmUpLR(L.CosineAnnealingLR(o, 8), 0.5, 3)",
    "WarmUpLR(L.StepLR(o, 3, 0.5), 0.1, 4)",
    "WarmUpLR(L.PolynomialLR(o, 10, 0.0), 0.1, 2, warmup_prefix=True)",
    "WarmUpLR(L.StepLR(o, 3, 0.5), 0.1, 0)",
]

PLATEAU = [
    ("ReduceLROnPlateau(o, patience=1)", [5, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3]),
    (
        "ReduceLROnPlateau(o, 'max', 0.5, 0, 0.1, 'abs', 1, 0.001)",
        [1, 2, 2.05, 2.05, 2.05, 2.05, 3, 3, 3, 3, 3],
    ),
    (
        "ReduceLROnPlateau(o, 'min', 0.3, 1, 0.1, 'rel', 2, 0.002, 1e-3)",
        [5, 4.8, 4.7, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0],
    ),
    ("ReduceLROnPlateau(o, 'max', 0.1, 1, 0.2, 'rel')", [1, 1.1, 1.3, 1.3, 1.4, 1.5, 1.7, 1.7, 1.7, 1.7]),
]

PRINTED = [
    "StepLR(o, 1, verbose=True)",
    "WarmUpLR(L.StepLR(o, 3, 0.5), 0.1, 2, verbose=True)",
    "CosineDecayLR(o, 5, 0.1, -1, True)",
    "ReduceLROnPlateau(o, patience=0, verbose=True)",
]


def values(params):
    return [
        [float("%.9g" % x) for x in p.detach().numpy().ravel()] for p in params
    ]  # 9 digits hold a float32


def plain(o):
    """Tensors and arrays as {"tensor": nested list}; tuples as lists."""
    if hasattr(o, "numpy"):
        return {"tensor": o.numpy().tolist()}
    if isinstance(o, dict):
        return {str(k): plain(v) for k, v in o.items()}
    return [plain(v) for v in o] if isinstance(o, (list, tuple)) else o


def start(flow, text):
    ns = dict(flow=flow, np=np, nn=flow.nn)
    exec(SETUP, ns)
    ns["o"] = eval(("flow.one_embedding." if "Ftrl" in text else "flow.optim.") + text, ns)
    return ns


def train(ns, steps, clip=False):
    out = []
    for _ in range(steps):
        ns["o"].zero_grad()
        ns["loss"]().backward()
        if clip:
            ns["o"].clip_grad()
        ns["o"].step()
        out.append(values(ns["P"]))
    return out


def two_groups(flow, text, lrs):
    p, q = flow.nn.Parameter(flow.ones(2)), flow.nn.Parameter(flow.ones(2))
    o = flow.optim.SGD([{"params": [p], "lr": lrs[0]}, {"params": [q], "lr": lrs[1]}])
    for group in o.param_groups:
        group["initial_lr"] = group["lr"]
    return o, eval("L." + text, dict(o=o, L=flow.optim.lr_scheduler))


def rates(flow, text, lrs, metrics=None, steps=16):
    o, sch = two_groups(flow, text, lrs)
    out = [[float(g["lr"]) for g in o.param_groups]]
    for m in metrics if metrics is not None else [None] * steps:
        sch.step() if m is None else sch.step(m)
        out.append([float(g["lr"]) for g in o.param_groups])
    return out


def resumed(flow, text):
    ns = start(flow, text)
    train(ns, 3)
    state, params = plain(ns["o"].state_dict()), values(ns["P"])
    return {"state": state, "params": params, "then": train(ns, 2)}


def printed(flow, text):
    text_out = io.StringIO()
    with contextlib.redirect_stdout(text_out):
        o, sch = two_groups(flow, text, (0.1, 0.1))
        for m in (1.0, 2.0, 3.0):
            sch.step(m) if "Plateau" in text else sch.step()
    return text_out.getvalue()


def main():
    import oneflow as flow
    import oneflow.one_embedding

    assert flow.__version__.startswith("0.9"), flow.__version__
    dump = {
        "optim_trajectories": {
            "setup": SETUP,
            "steps": STEPS,
            "cases": {t: train(start(flow, t), STEPS) for t in OPTIMIZERS},
            "ftrl": {t: train(start(flow, t.replace("=-0.", "=0.")), STEPS) for t in FTRL},
            "clipped": {t: train(start(flow, t), STEPS, clip=True) for t in CLIPPED},
        },
        "optim_states": {t: resumed(flow, t) for t in RESUMED},
        "optim_schedules": {
            "lrs": [[0.1, 0.1], [0.3, 0.05]],
            "cases": {
                t: [
                    rates(flow, t, lrs) if i == 0 or "WarmUp" not in t else None
                    for i, lrs in enumerate(((0.1, 0.1), (0.3, 0.05)))
                ]
                for t in SCHEDULERS
            },
            "plateau": [[t, m, rates(flow, t, (0.1, 0.01), m)] for t, m in PLATEAU],
            "printed": {t: printed(flow, t) for t in PRINTED},
        },
    }
    for name, data in dump.items():
        with open(os.path.join(HERE, name + ".json"), "w") as f:
            json.dump(data, f, separators=(",", ":"))
            f.write("\n")
        print(name, os.path.getsize(f.name), file=sys.stderr)


if __name__ == "__main__":
    main()
