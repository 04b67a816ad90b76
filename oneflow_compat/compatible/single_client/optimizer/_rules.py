"""Update rules. `update(p, g, slots, scalars, decay)` works in place on the variable and its slots."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._functions.orders import takes_older_orders
from ._base import GetVariablesForCurrentJob, Optimizer

Tensors = Sequence[Tensor]

_ALL = GetVariablesForCurrentJob


class SGD(Optimizer):
    """v = momentum * v - lr * g; p = p + v.

    Source: OneFlow's momentum rule (the rate is inside v, unlike torch's).
    """

    def __init__(
        self,
        lr_scheduler: Any,
        loss_scale_factor: Any = None,
        momentum: float = 0.9,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.momentum = momentum
        self.slot_names = ("momentum",) if momentum else ()

    def update(self, p: Tensor, g: Tensor, slots: Tensors, scalars: Tensors, decay: float) -> None:
        (lr,) = scalars
        shrink = p * lr * decay if decay else None
        if slots:
            (v,) = slots
            p.add_(v.mul_(self.momentum).addcmul_(g, lr, value=-1))
        else:
            p.addcmul_(g, lr, value=-1)
        if shrink is not None:
            p.sub_(shrink)


class SGDW(SGD):
    """SGD with decoupled weight decay: p = p + v - lr * weight_decay * p."""

    def __init__(
        self,
        lr_scheduler: Any,
        loss_scale_factor: Any = None,
        momentum: float = 0.9,
        weight_decay: float | None = None,
        weight_decay_includes: Sequence[str] | None = None,
        weight_decay_excludes: Sequence[str] | None = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler,
            loss_scale_factor,
            momentum,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )
        self._set_decay(weight_decay, weight_decay_includes, weight_decay_excludes)


class Adam(Optimizer):
    """m, v: moving averages of g and g * g; p = p - lr * m / (sqrt(v) + epsilon).

    With `do_bias_correction` m and v are divided by 1 - beta ** t beforehand. That is the rule of OneFlow 0.5
    and of torch's Adam.
    """

    slot_names = ("m", "v")
    rates = 2

    def __init__(
        self,
        lr_scheduler: Any,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        do_bias_correction: bool = False,
        loss_scale_factor: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.beta1, self.beta2, self.epsilon, self.do_bias_correction = (
            beta1,
            beta2,
            epsilon,
            do_bias_correction,
        )

    def numbers(self, lr: float, step: int) -> tuple[float, ...]:
        if not self.do_bias_correction:
            return lr, lr, 1.0
        t = step + 1
        return lr, lr / (1 - self.beta1**t), (1 - self.beta2**t) ** 0.5

    def update(self, p: Tensor, g: Tensor, slots: Tensors, scalars: Tensors, decay: float) -> None:
        m, v = slots
        lr, step_size, root = scalars
        m.lerp_(g, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        change = m * step_size / (v.sqrt().div_(root).add_(self.epsilon))
        if decay:
            change = change + p * lr * decay
        p.sub_(change)


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p - lr * weight_decay * p besides Adam's change."""

    def __init__(
        self,
        lr_scheduler: Any,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        do_bias_correction: bool = False,
        loss_scale_factor: Any = None,
        weight_decay: float | None = None,
        weight_decay_includes: Sequence[str] | None = None,
        weight_decay_excludes: Sequence[str] | None = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler,
            beta1,
            beta2,
            epsilon,
            do_bias_correction,
            loss_scale_factor,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )
        self._set_decay(weight_decay, weight_decay_includes, weight_decay_excludes)


class LazyAdam(Adam):
    """Adam with bias correction that changes only the rows whose gradient is not zero."""

    lazy = True

    def __init__(
        self,
        lr_scheduler: Any,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        loss_scale_factor: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler,
            beta1,
            beta2,
            epsilon,
            True,
            loss_scale_factor,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )


class RMSProp(Optimizer):
    """s = decay_rate * s + (1 - decay_rate) * g * g; p = p - lr * g / sqrt(s + epsilon).

    `centered` subtracts the squared moving average of g from s. epsilon is inside the root, unlike torch's.
    """

    def __init__(
        self,
        lr_scheduler: Any,
        decay_rate: float = 0.99,
        epsilon: float = 1e-8,
        centered: bool = False,
        loss_scale_factor: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.decay_rate, self.epsilon, self.centered = decay_rate, epsilon, centered
        self.slot_names = ("mean_square", "mean_gradient") if centered else ("mean_square",)

    def update(self, p: Tensor, g: Tensor, slots: Tensors, scalars: Tensors, decay: float) -> None:
        (lr,) = scalars
        square = slots[0]
        square.mul_(self.decay_rate).addcmul_(g, g, value=1 - self.decay_rate)
        denominator = square
        if self.centered:
            mean = slots[1]
            mean.lerp_(g, 1 - self.decay_rate)
            denominator = square - mean * mean
        p.sub_(lr * g * (denominator + self.epsilon).rsqrt())


@takes_older_orders("optimizer.LARS")
class LARS(Optimizer):
    """SGD with momentum at the rate lr * lars_coefficient * |p| / (epsilon + |g| + weight_decay * |p|).

    The rate is layer-wise. The plain rate is used where |p| or |g| is zero.
    """

    slot_names = ("momentum",)

    def __init__(
        self,
        lr_scheduler: Any,
        momentum_beta: float = 0.9,
        epsilon: float = 1e-9,
        lars_coefficient: float = 0.0001,
        loss_scale_factor: Any = None,
        weight_decay: Any = None,
        weight_decay_includes: Any = None,
        weight_decay_excludes: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.momentum_beta, self.epsilon, self.lars_coefficient = momentum_beta, epsilon, lars_coefficient
        self._set_decay(weight_decay, weight_decay_includes, weight_decay_excludes)

    def update(self, p: Tensor, g: Tensor, slots: Tensors, scalars: Tensors, decay: float) -> None:
        (lr,) = scalars
        (v,) = slots
        p_norm, g_norm = p.norm(), g.norm()
        ratio = self.lars_coefficient * p_norm / (self.epsilon + g_norm + decay * p_norm)
        local = lr * torch.where((p_norm > 0) & (g_norm > 0), ratio, torch.ones_like(ratio))
        shrink = local * decay * p if decay else None
        p.add_(v.mul_(self.momentum_beta).sub_(local * g))
        if shrink is not None:
            p.sub_(shrink)


@takes_older_orders("optimizer.LAMB")
class LAMB(Optimizer):
    """p = p - lr * |p| / |d| * (d + weight_decay * p) for each variable.

    d is Adam's bias-corrected direction. The plain rate is used where |p| or |d| is zero.
    """

    slot_names = ("m", "v")

    def __init__(
        self,
        lr_scheduler: Any,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        loss_scale_factor: Any = None,
        weight_decay: Any = None,
        weight_decay_includes: Any = None,
        weight_decay_excludes: Any = None,
        grad_clipping: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
        variables: Any = _ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self._set_decay(weight_decay, weight_decay_includes, weight_decay_excludes)

    def numbers(self, lr: float, step: int) -> tuple[float, ...]:
        t = step + 1
        return lr, 1 / (1 - self.beta1**t), 1 / (1 - self.beta2**t)

    def update(self, p: Tensor, g: Tensor, slots: Tensors, scalars: Tensors, decay: float) -> None:
        m, v = slots
        lr, first_correction, second_correction = scalars
        m.lerp_(g, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        direction = m * first_correction / ((v * second_correction).sqrt() + self.epsilon)
        p_norm, d_norm = p.norm(), direction.norm()
        trust = torch.where((p_norm > 0) & (d_norm > 0), p_norm / d_norm, torch.ones_like(p_norm))
        change = direction + decay * p if decay else direction
        p.sub_(lr * trust * change)


class CombinedOptimizer(Optimizer):
    """Several optimizers, each with its own list of variables, for one loss."""

    def __init__(
        self,
        optimizers: Sequence[Any],
        loss_scale_factor: Any = None,
        train_step_lbn: Any = None,
        loss_scale_policy: Any = None,
    ) -> None:
        super().__init__(None, loss_scale_factor, None, train_step_lbn, loss_scale_policy)
        for o in optimizers:
            if o.variables is _ALL and len(optimizers) > 1:
                raise ValueError(
                    f"CombinedOptimizer: {type(o).__name__} has no list of variables; give each optimizer"
                    " variables=[...]"
                )
        self.optimizers = list(optimizers)
        if self.loss_scale_policy is not None:
            for o in self.optimizers:
                o.loss_scale_policy = self.loss_scale_policy

    def Variables(self) -> Any:
        return [name for o in self.optimizers for name in o.Variables()]

    def parts(self) -> list[Any]:
        return self.optimizers
