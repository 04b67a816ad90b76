"""Gradients and model updates of a job, appended to its body.

Order, as in OneFlow: gradient of the sum of the losses; divide by the number of loss elements and by the
loss scale; add the regularizers' part; clip; update (weight decay is part of the update).
"""

from __future__ import annotations

import contextlib

from . import _session
from ..._graph import outside_capture as outside


def outside_capture(trace):
    """Context in which real tensors are created while a job is captured."""
    if trace is None or not trace.captured:
        return contextlib.nullcontext()

    return outside()


class Update:
    """An optimizer within one job: its rule, its variables, and the tensors holding this step's scalars."""

    def __init__(self, trace, optimizer):
        self.trace, self.optimizer = trace, optimizer
        self.scalars = {}  # (dtype, device) -> list of 0-dim tensors
        self.values = None
        self.lr_blob = None
        lbn = getattr(optimizer.lr_scheduler, "lbn", None)
        if lbn is not None:
            self.lr_blob = trace.named.get(lbn)
            if self.lr_blob is None:
                raise ValueError(
                    f"CustomScheduler({lbn!r}): no blob of that name in job {trace.job.name}; take it from"
                    " blob.logical_blob_name"
                )

    def numbers(self, step):
        lr = 1.0 if self.lr_blob is not None else self.optimizer.lr_scheduler.learning_rate(step)
        return self.optimizer.numbers(lr, step)

    def set_scalars(self, step):
        values = self.numbers(step)
        if values == self.values:
            return
        self.values = values
        for tensors in self.scalars.values():
            for tensor, value in zip(tensors, values):
                tensor.fill_(value)

    def scalars_for(self, tensor):
        """This step's scalars as 0-dim tensors of the dtype and device of `tensor`."""
        import torch

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
            return [values[0] * lr, *values[1:]]
        return values

    def slot(self, variable, name, like=None):
        """The tensor of one optimizer slot ("<variable>-<name>"), a variable of the session.

        It starts as zeros.
        """
        import torch

        full = f"{variable.name}-{name}"
        state = self.trace.session.variables.get(full)
        if state is None:
            with outside_capture(self.trace):
                initial = torch.zeros_like(variable.tensor.detach() if like is None else like)
            state = self.trace.session.variables[full] = _session.Variable(full, initial)
            self.trace.new_variables.append(full)
        return state.tensor


def _gradients(losses, tensors, scale):
    """Return (gradients of the losses' sum, factor that makes them those of the means).

    An empty loss has the gradient zero.
    """
    import torch

    if not losses:
        return [None] * len(tensors), 1.0
    counts = [max(loss.numel(), 1) for loss in losses]
    shared = len(set(counts)) == 1
    seeds = [torch.full_like(loss, 1.0 if shared else 1.0 / count) for loss, count in zip(losses, counts)]
    seeds = seeds if scale is None else [seed * scale for seed in seeds]
    return list(torch.autograd.grad(losses, tensors, seeds, allow_unused=True)), (
        1.0 / counts[0] if shared else 1.0
    )


def apply(trace):
    """Append everything that training needs.

    Returns the gradients that `watch_diff` asked for; None where no gradient flows.
    """
    import torch

    losses = trace.losses
    if not losses:
        if trace.diffs:
            raise ValueError(
                f"job {trace.job.name} calls watch_diff but has no loss: call"
                " flow.optimizer.X(...).minimize(loss)"
            )
        return []
    optimizers = trace.optimizers or trace.job.config.optimizers()
    if not optimizers:
        raise ValueError(
            f"job {trace.job.name} has a loss but no optimizer: call flow.optimizer.X(...).minimize(loss), "
            "or set function_config.train.primary_lr(...) and train.model_update_conf(...)"
        )
    plan = _plan(trace, optimizers)
    targets = [(update, v) for update, variables in plan for v in variables]
    parameters = [v.tensor for _, v in targets]
    watched = [t if t.requires_grad else None for t, _ in trace.diffs]
    inputs = parameters + [t for t in watched if t is not None]
    for i, loss in enumerate(losses):
        if loss.is_floating_point() and not loss.requires_grad:
            raise ValueError(f"minimize: loss {i} of job {trace.job.name} depends on no trainable variable")
    policy = next((o.loss_scale_policy for o in optimizers if o.loss_scale_policy is not None), None)
    scale = policy.current(trace) if policy is not None else None
    grads, factor = _gradients(
        [loss for loss in losses if loss.requires_grad], inputs, scale
    )  # integers have none
    with torch.no_grad():
        grads_of = grads[: len(parameters)]
        rest = iter(grads[len(parameters) :])
        diffs = [None if t is None else next(rest) for t in watched]
        diffs = [d if d is None else d.detach().clone() for d in diffs]
        if trace.probe:
            for update, variables in plan:
                for v in variables:
                    update.optimizer.make_slots(update, v)
                trace.updates.append(update)
            return []
        finite = policy.check(trace, grads_of, scale) if policy is not None else None
        position = 0
        for update, variables in plan:
            chunk = grads_of[position : position + len(variables)]
            position += len(variables)
            _update_group(trace, update, variables, chunk, factor, scale, finite)
            trace.updates.append(update)
        if policy is not None:
            policy.advance(trace, finite)
    return diffs


def _plan(trace, optimizers):
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


def _update_group(trace, update, variables, grads, factor, scale, finite):
    import torch

    optimizer = update.optimizer
    present = [(v, g) for v, g in zip(variables, grads) if g is not None]
    if not present:
        return
    ready = []
    for v, g in present:
        p = v.tensor
        g = g.detach()
        if scale is not None:
            g = g / scale.to(g.dtype)
        if factor != 1.0:
            g = g * factor
        if v.regularizer is not None:
            g = v.regularizer.add_to(g, p)
        ready.append(g)
    if optimizer.grad_clipping is not None:
        ready = optimizer.grad_clipping.clip(ready)
    lazy = trace.job.config.sparse_rows()
    for (v, _), g in zip(present, ready):
        p = v.tensor
        slots = optimizer.make_slots(update, v)
        rows = optimizer.lazy or v.name in lazy
        old = [t.clone() for t in (p, *slots)] if rows or finite is not None else None
        optimizer.update(p, g, slots, update.scalars_for(p), optimizer.decay_of(v.name))
        if rows and p.dim():
            touched = (g != 0).reshape(g.shape[0], -1).any(1).reshape(-1, *[1] * (g.dim() - 1))
            for t, before in zip((p, *slots), old):
                if t.shape == p.shape:
                    t.copy_(torch.where(touched, t, before))
        if finite is not None:
            for t, before in zip((p, *slots), old):
                t.copy_(torch.where(finite, t, before))
