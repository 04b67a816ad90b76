"""Gradients and model updates of a job, appended to its body.

Order, as in OneFlow: gradient of the sum of the losses; divide by the number of loss elements and by the
loss scale; add the regularizers' part; clip; update (weight decay is part of the update).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from ...._graph import outside_capture as outside
from . import session as _session


def outside_capture(trace: Any) -> Any:
    """Context in which real tensors are created while a job is captured."""
    if trace is None or not trace.captured:
        return contextlib.nullcontext()

    return outside()


class Update:
    """An optimizer within one job: its rule, its variables, and the tensors holding this step's scalars."""

    def __init__(self, trace: Any, optimizer: Any) -> None:
        self.trace, self.optimizer = trace, optimizer
        self.scalars = {}  # (dtype, device) -> list of 0-dim tensors
        self.values: tuple[float, ...] | None = None
        self.lr_blob = None
        lbn = getattr(optimizer.lr_scheduler, "lbn", None)
        if lbn is not None:
            self.lr_blob = trace.named.get(lbn)
            if self.lr_blob is None:
                raise ValueError(
                    f"CustomScheduler({lbn!r}): no blob of that name in job {trace.job.name}; take it from"
                    " blob.logical_blob_name"
                )

    def numbers(self, step: int) -> tuple[float, ...]:
        lr = 1.0 if self.lr_blob is not None else self.optimizer.lr_scheduler.learning_rate(step)
        return self.optimizer.numbers(lr, step)

    def set_scalars(self, step: int) -> None:
        values = self.numbers(step)
        if values == self.values:
            return
        self.values = values
        for tensors in self.scalars.values():
            for tensor, value in zip(tensors, values):
                tensor.fill_(value)

    def scalars_for(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """This step's scalars as 0-dim tensors of the dtype and device of `tensor`."""
        key = tensor.dtype, tensor.device
        if key not in self.scalars:
            self.values = self.numbers(self.trace.job.step)
            with outside_capture(self.trace):
                self.scalars[key] = [
                    torch.tensor(v, dtype=tensor.dtype, device=tensor.device) for v in self.values
                ]
        values = self.scalars[key]
        if self.lr_blob is not None:
            lr = self.lr_blob.detach().reshape(()).to(tensor.dtype)
            rates = self.optimizer.rates
            return [*(value * lr for value in values[:rates]), *values[rates:]]
        return values

    def slot(self, variable: Any, name: str, like: torch.Tensor | None = None) -> torch.Tensor:
        """The tensor of one optimizer slot ("<variable>-<name>"), a variable of the session.

        It starts as zeros.
        """
        full = f"{variable.name}-{name}"
        state = self.trace.session.variables.get(full)
        if state is None:
            with outside_capture(self.trace):
                initial = torch.zeros_like(variable.tensor.detach() if like is None else like)
            state = self.trace.session.variables[full] = _session.Variable(full, initial)
            self.trace.new_variables.append(full)
        return state.tensor


def _gradients(
    losses: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], scale: torch.Tensor | None
) -> tuple[Any, ...]:
    """Return (gradients of the sum of the losses, factor that converts them to gradients of the means). The
    gradient of an empty loss is zero.
    """
    if not losses:
        return [None] * len(tensors), 1.0
    counts = [max(loss.numel(), 1) for loss in losses]
    shared = len(set(counts)) == 1
    seeds = [torch.full_like(loss, 1.0 if shared else 1.0 / count) for loss, count in zip(losses, counts)]
    seeds = seeds if scale is None else [seed * scale for seed in seeds]
    return list(torch.autograd.grad(losses, tensors, seeds, allow_unused=True)), (
        1.0 / counts[0] if shared else 1.0
    )


def apply(trace: Any) -> list[torch.Tensor | None]:
    """Append everything that training needs.

    Returns the gradients that `watch_diff` asked for; None where no gradient flows.
    """
    losses = trace.losses
    if not losses:
        if trace.diffs:
            raise ValueError(
                f"job {trace.job.name} calls watch_diff but has no loss: call"
                " flow.optimizer.X(...).minimize(loss)"
            )
        return []
    optimizers = trace.optimizers or trace.job.config.optimizers()
    _check_losses(trace, losses, optimizers)
    plan = _plan(trace, optimizers)
    policy = next((o.loss_scale_policy for o in optimizers if o.loss_scale_policy is not None), None)
    scale = policy.current(trace) if policy is not None else None
    parameters = [v.tensor for _, variables in plan for v in variables]
    watched = [t for t, _ in trace.diffs if t.requires_grad]
    differentiable = [loss for loss in losses if loss.requires_grad]  # a loss of integers is not
    gradients, factor = _gradients(differentiable, parameters + watched, scale)
    watched_gradients = iter(gradients[len(parameters) :])
    diffs = [next(watched_gradients) if t.requires_grad else None for t, _ in trace.diffs]
    diffs = [None if d is None else d.detach().clone() for d in diffs]
    if trace.probe:
        _make_all_slots(trace, plan)
        return []
    _update_all(trace, plan, gradients[: len(parameters)], factor, policy, scale)
    return diffs


def _check_losses(trace: Any, losses: Sequence[torch.Tensor], optimizers: Sequence[Any]) -> None:
    if not optimizers:
        raise ValueError(
            f"job {trace.job.name} has a loss but no optimizer: call flow.optimizer.X(...).minimize(loss), "
            "or set function_config.train.primary_lr(...) and train.model_update_conf(...)"
        )
    for i, loss in enumerate(losses):
        if loss.is_floating_point() and not loss.requires_grad:
            raise ValueError(f"minimize: loss {i} of job {trace.job.name} depends on no trainable variable")


def _make_all_slots(trace: Any, plan: Any) -> None:
    """Create the slots of all optimizers without an update."""
    with torch.no_grad():
        for update, variables in plan:
            for v in variables:
                update.optimizer.make_slots(update, v)
            trace.updates.append(update)


def _update_all(
    trace: Any,
    plan: Sequence[Any],
    gradients: Sequence[Any],
    factor: float,
    policy: Any,
    scale: torch.Tensor | None,
) -> None:
    """Append the update of each optimizer; with a loss scale policy, only finite gradients update."""
    with torch.no_grad():
        finite = policy.check(trace, gradients, scale) if policy is not None else None
        remaining = iter(gradients)
        for update, variables in plan:
            own_gradients = [next(remaining) for _ in variables]
            _update_group(trace, update, variables, own_gradients, factor, scale, finite)
            trace.updates.append(update)
        if policy is not None:
            policy.advance(trace, finite)


def _plan(trace: Any, optimizers: Sequence[Any]) -> list[Any]:
    """[(Update, variables)] with each variable under exactly one optimizer."""
    plan, owner = [], {}
    for optimizer in optimizers:
        names = optimizer.variable_names(trace)
        chosen = []
        for name in names:
            variable = trace.created_by.get(name)
            if variable is None:
                raise KeyError(
                    f"{type(optimizer).__name__}: job {trace.job.name} has no variable {name!r}; it has"
                    f" {sorted(trace.created_by)}"
                )
            if not (variable.tensor.requires_grad and trace.trainable[name]):
                continue
            if name in owner:
                raise ValueError(
                    f"variable {name!r} is given to two optimizers, {owner[name]} and"
                    f" {type(optimizer).__name__}"
                )
            owner[name] = type(optimizer).__name__
            chosen.append(variable)
        plan.append((Update(trace, optimizer), chosen))
    return plan


def _update_group(
    trace: Any,
    update: Update,
    variables: Sequence[Any],
    grads: Sequence[Any],
    factor: float,
    scale: torch.Tensor | None,
    finite: torch.Tensor | None,
) -> None:
    """Append the update of the variables of one optimizer; those without a gradient stay."""
    optimizer = update.optimizer
    present = [(v, g) for v, g in zip(variables, grads) if g is not None]
    if not present:
        return
    ready = [_final_gradient(v, g.detach(), factor, scale) for v, g in present]
    if optimizer.grad_clipping is not None:
        ready = optimizer.grad_clipping.clip(ready)
    sparse = trace.job.config.sparse_rows()
    for (v, _), g in zip(present, ready):
        by_rows = (optimizer.lazy or v.name in sparse) and g.dim() > 0
        _update_variable(update, v, g, _touched_rows(trace, v, g) if by_rows else None, finite)


def _final_gradient(
    variable: Any, gradient: torch.Tensor, factor: float, scale: torch.Tensor | None
) -> torch.Tensor:
    """Return the gradient without the loss scale, times `factor`, with the regularizer's part."""
    if scale is not None:
        gradient = gradient / scale.to(gradient.dtype)
    if factor != 1.0:
        gradient = gradient * factor
    if variable.regularizer is not None:
        gradient = variable.regularizer.add_to(gradient, variable.tensor)
    return gradient


def _touched_rows(trace: Any, variable: Any, gradient: torch.Tensor) -> torch.Tensor:
    """Whether each row of a variable was read by a gather, or has a gradient that is not zero."""
    touched = (gradient != 0).reshape(gradient.shape[0], -1).any(1)
    for tensor, rows in trace.rows_read:
        if tensor is variable.tensor:
            touched = touched.index_fill(0, rows, True)
    return touched.reshape(-1, *[1] * (gradient.dim() - 1))


def _update_variable(
    update: Update,
    variable: Any,
    gradient: torch.Tensor,
    touched: torch.Tensor | None,
    finite: torch.Tensor | None,
) -> None:
    """Append the update of one variable.

    touched: the rows that change with their state. None: all of them.
    finite: a tensor; where it is false, nothing changes. None: always update.
    """
    optimizer, parameter = update.optimizer, variable.tensor
    slots = optimizer.make_slots(update, variable)
    written = (parameter, *slots)
    before = [t.clone() for t in written] if touched is not None or finite is not None else []
    scalars = update.scalars_for(parameter)
    optimizer.update(parameter, gradient, slots, scalars, optimizer.decay_of(variable.name))
    if touched is not None:
        for t, old in zip(written, before):
            if t.shape == parameter.shape:
                t.copy_(torch.where(touched, t, old))
    if finite is not None:
        for t, old in zip(written, before):
            t.copy_(torch.where(finite, t, old))
