"""Training steps as users of PyTorch write them. Each makes its models and returns what a test compares."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow


@dataclass
class StepProgram:
    """A step, the arguments of call i, and the objects that it changes."""

    step: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    modules: Sequence[nn.Module] = ()
    optimizers: Sequence[torch.optim.Optimizer] = ()
    objects: Sequence[Any] = field(default_factory=list)  # lists, dicts and attributes of numbers and tensors


def mlp(inputs: int = 4, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def rows(i: int) -> tuple[Any, ...]:
    return (torch.randn(5, 4),)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, *others: nn.Module) -> StepProgram:
    """The step that most programs share."""

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model, *others], [optimizer])


def usual():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss, norm

    return StepProgram(step, lambda i: (*rows(i), torch.arange(5) % 3), [model], [optimizer])


def gan():
    generator, critic = mlp(4, 4), mlp(4, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), 1e-3)
    optimizer_d = torch.optim.Adam(critic.parameters(), 1e-3)

    def step(real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(real.shape[0], 4))
        optimizer_d.zero_grad()
        loss_d = F.binary_cross_entropy_with_logits(critic(real), ones)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = F.binary_cross_entropy_with_logits(critic(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        return loss_d, loss_g

    return StepProgram(step, rows, [generator, critic], [optimizer_g, optimizer_d])


def gradients_summed():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x, is_last):
        loss = model(x).square().mean() / 4
        loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return StepProgram(step, lambda i: (*rows(i), i % 4 == 3), [model], [optimizer])


def gradients_of_zeros():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def moving_average():
    model = mlp()
    average = copy.deepcopy(model)
    optimizer = torch.optim.RMSprop(model.parameters(), 0.01)

    def step(x):
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.1)
        return loss

    return StepProgram(step, rows, [model, average], [optimizer])


def of_oneflow():
    model = mlp()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def without_optimizer():
    holder = nn.ParameterList([nn.Parameter(torch.randn(4, 2))])
    weight = holder[0]

    def step(x):
        loss = (x @ weight).square().mean()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad * 0.1)
            weight.grad.zero_()
        return loss

    return StepProgram(step, rows, [holder])


def gradient_dropped():
    holder = nn.ParameterList([nn.Parameter(torch.randn(4, 2))])
    weight = holder[0]

    def step(x):
        loss = (x @ weight).square().mean()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad * 0.1)
        weight.grad = None
        return loss

    return StepProgram(step, rows, [holder])


def rate_read():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        again = optimizer.param_groups[0]["lr"]
        scheduler.step()
        return loss * rate, loss * again

    return StepProgram(step, rows, [model], [optimizer])


def several_steps():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)

    def step(x):
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def groups():
    model = mlp()
    first = {"params": model[0].parameters(), "weight_decay": 0.1}
    optimizer = torch.optim.AdamW([first, {"params": model[2].parameters(), "lr": 0.3}], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda e: 1 / (e + 1), lambda e: 0.9**e])

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def scaled():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss, scaler._scale.clone()

    overflow = lambda i: (torch.full((5, 4), float("inf")),) if i in (2, 5) else rows(i)
    return StepProgram(step, overflow, [model], [optimizer])


def scaled_without_unscale():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    overflow = lambda i: (torch.full((5, 4), float("nan")),) if i == 0 else rows(i)
    return StepProgram(step, overflow, [model], [optimizer])


def frozen():
    model = mlp()
    model[0].requires_grad_(False)
    shared = nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *shared.parameters()], 0.1)

    return fit(model, optimizer, shared)


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)

    return fit(model, optimizer)


def half_precision():
    model = mlp().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x.bfloat16()).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def autocast():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def mixup():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        weight = torch.rand(())
        order = torch.randperm(len(x))
        optimizer.zero_grad()
        out = model(weight * x + (1 - weight) * x[order])
        loss = weight * F.cross_entropy(out, y) + (1 - weight) * F.cross_entropy(out, y[order])
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, lambda i: (*rows(i), torch.arange(5) % 3), [model], [optimizer])


def with_helpers():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def loss_of(x):
        return model(x).square().mean()

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step(x):
        loss = loss_of(x)
        update(loss)
        return {"loss": loss.detach(), "rows": len(x)}

    return StepProgram(step, rows, [model], [optimizer])


def frozen_critic():
    generator, critic = mlp(4, 4), mlp(4, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), 1e-3)
    optimizer_d = torch.optim.Adam(critic.parameters(), 1e-3)

    def step(real):
        critic.requires_grad_(True)
        fake = generator(real)
        optimizer_d.zero_grad()
        loss_d = critic(fake.detach()).mean() - critic(real).mean()
        loss_d.backward()
        optimizer_d.step()
        critic.requires_grad_(False)
        optimizer_g.zero_grad()
        loss_g = -critic(fake).mean()
        loss_g.backward()
        optimizer_g.step()
        return loss_d, loss_g

    return StepProgram(step, rows, [generator, critic], [optimizer_g, optimizer_d])


def gradients_of_a_model_elsewhere():
    class Holder:
        model = mlp()

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss, [p.grad is None for p in Holder.model.parameters()]

    return StepProgram(step, rows, [model], [optimizer])


def fused():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)

    return fit(model, optimizer)


def schedule_before_zero_grad():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def epoch_of_schedule(factor_after_step):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean() * (1 + scheduler.last_epoch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss * factor_after_step(scheduler)

    return StepProgram(step, rows, [model], [optimizer])


def epoch_of_schedule_before_its_step():
    return epoch_of_schedule(lambda scheduler: 1)


def registered_buffer():
    model = mlp()
    model.register_buffer("center", torch.zeros(3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        out = model(x)
        loss = (out - model.center).square().mean()
        loss.backward()
        optimizer.step()
        model.center = 0.9 * model.center + 0.1 * out.detach().mean(0)
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def model_elsewhere_cleared():
    class Holder:
        model = mlp()

    for p in Holder.model.parameters():
        p.grad = torch.ones_like(p)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        Holder.model.zero_grad()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model, Holder.model], [optimizer])


def state_dict_kept():
    model = mlp()
    optimizer, kept = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), {}

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        kept["state"] = optimizer.state_dict()
        return loss

    return StepProgram(step, rows, [model], [optimizer], [kept])


def scaler_left_open():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        if float(loss.detach()) > 0:
            scaler.update()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


IN_PROGRAMS = [
    scaler_left_open,
    state_dict_kept,
    model_elsewhere_cleared,
    schedule_before_zero_grad,
    epoch_of_schedule_before_its_step,
    registered_buffer,
    frozen_critic,
    gradients_of_a_model_elsewhere,
    fused,
    usual,
    gan,
    gradients_summed,
    gradients_of_zeros,
    moving_average,
    of_oneflow,
    without_optimizer,
    gradient_dropped,
    rate_read,
    several_steps,
    groups,
    scaled,
    scaled_without_unscale,
    frozen,
    tied,
    half_precision,
    autocast,
    mixup,
    with_helpers,
]


def lbfgs():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return StepProgram(step, rows, [model], [optimizer])


def forward_only():
    model = mlp()
    return StepProgram(lambda x: model(x), rows, [model])


def epoch_of_schedule_after_its_step():
    return epoch_of_schedule(lambda scheduler: 2 if scheduler.last_epoch > 3 else 1)


def metric_of_plateau():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def optimizer_made_in_step():
    model = mlp()

    def step(x):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model])


def gradient_of_argument():
    model = mlp()

    def step(x):
        model(x).square().mean().backward()
        return x.grad.sign()

    return StepProgram(step, lambda i: (torch.randn(5, 4, requires_grad=True),), [model])


def rate_set_in_step():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, lambda i: (*rows(i), 0.1 / (i + 1)), [model], [optimizer])


def rate_read_and_set():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] * 0.9
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


def state_dropped():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)

    def step(x):
        optimizer.state.clear()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return StepProgram(step, rows, [model], [optimizer])


CUT = [
    epoch_of_schedule_after_its_step,
    metric_of_plateau,
    optimizer_made_in_step,
    rate_set_in_step,
    rate_read_and_set,
]
IN_EAGER_MODE = [
    state_dropped,
    lbfgs,
    forward_only,
    gradient_of_argument,
]
