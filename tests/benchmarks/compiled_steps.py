"""Measure flow.compile_step: training steps as users write them, against eager mode and torch.compile.

    OMP_NUM_THREADS=1 python tests/benchmarks/compiled_steps.py
    OMP_NUM_THREADS=1 python tests/benchmarks/compiled_steps.py --steps mlp,gan --calls 300

The sides run in turns in one process, and each figure is the ratio of medians: how many times as fast as
eager mode. Each side has its own models from one seed. `loss.item()` is kept in every step.
"""

import argparse
import math
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow


def seven_layers():
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    return (
        model,
        torch.optim.AdamW(model.parameters(), 1e-3),
        (torch.randn(32, 64), torch.randint(0, 10, (32,))),
    )


def mlp():
    model, optimizer, arguments = seven_layers()
    losses = []

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())

    return step, arguments


def logged():
    """The MLP, with last lines that need the value of the loss: they run in Python behind the program."""
    model, optimizer, arguments = seven_layers()
    lines, best = [], {"loss": math.inf}

    def logged_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss.item() < best["loss"]:
            best["loss"] = loss.item()
        lines.append(f"loss {loss.item():.4f}")

    return logged_step, arguments


def led():
    """The MLP, with a first line that samples a weight with NumPy: it runs in Python before the program."""
    model, optimizer, (x, y) = seven_layers()
    losses = []

    def led_step(x, y):
        weight = np.random.beta(0.4, 0.4)
        out = model(weight * x + (1 - weight) * x.flip(0))
        loss = weight * F.cross_entropy(out, y) + (1 - weight) * F.cross_entropy(out, y.flip(0))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())

    return led_step, (x, y)


def guarded():
    """The MLP, with branches on the loss and on the norm of its gradient before the update."""
    model, optimizer, arguments = seven_layers()
    losses = []

    def guarded_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if not math.isfinite(loss.item()):
            raise ValueError(f"the loss is {loss.item()}")
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.item() > 1e3:
            return
        optimizer.step()
        losses.append(loss.item())

    return guarded_step, arguments


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 64))
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step(x):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())

    return step, (torch.randn(4, 16, 64),)


def gan():
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
    critic = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), 1e-3)
    optimizer_d = torch.optim.Adam(critic.parameters(), 1e-3)
    losses = []

    def step(real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 16))
        optimizer_d.zero_grad()
        loss_d = F.binary_cross_entropy_with_logits(critic(real), ones)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = F.binary_cross_entropy_with_logits(critic(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        losses.append((loss_d.item(), loss_g.item()))

    return step, (torch.randn(32, 32),)


def carried():
    model = nn.ModuleDict({"cell": nn.GRUCell(32, 64), "head": nn.Linear(64, 8)})
    model.hidden = torch.zeros(16, 64)
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []

    def step(x, y):
        optimizer.zero_grad()
        hidden = model["cell"](x, model.hidden)
        loss = F.cross_entropy(model["head"](hidden), y)
        loss.backward()
        optimizer.step()
        model.hidden = hidden.detach()
        losses.append(loss.item())

    return step, (torch.randn(16, 32), torch.randint(0, 8, (16,)))


STEPS = {
    "mlp": mlp,
    "logged": logged,
    "led": led,
    "guarded": guarded,
    "transformer": transformer,
    "gan": gan,
    "carried": carried,
}
SIDES = {
    "eager": lambda step: step,
    "aten": lambda step: flow.compile_step(step, backend="aten", strict=True),
    "inductor": lambda step: flow.compile_step(step, backend="inductor", strict=True),
    "torch.compile": torch.compile,
}


def measured(make, calls):
    """Return {side: median seconds of a call}."""
    sides = {}
    for name, compile_ in SIDES.items():
        torch.manual_seed(0)
        step, arguments = make()
        sides[name] = compile_(step), arguments
        for _ in range(5):
            sides[name][0](*arguments)
    seconds = {name: [] for name in sides}
    for _ in range(calls):
        for name, (step, arguments) in sides.items():
            start = time.perf_counter()
            step(*arguments)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--calls", type=int, default=300)
    args = parser.parse_args()
    print(f"{torch.get_num_threads()} thread, torch {torch.__version__}")
    for name in args.steps.split(","):
        medians = measured(STEPS[name], args.calls)
        ratios = "  ".join(
            f"{side} {medians['eager'] / seconds:.2f}x"
            for side, seconds in medians.items()
            if side != "eager"
        )
        print(f"{name}: eager {medians['eager'] * 1e3:.2f} ms  {ratios}")


if __name__ == "__main__":
    main()
