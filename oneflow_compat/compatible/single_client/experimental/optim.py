"""flow.experimental.optim of 0.5: today's optimizers, whose learning rate and `scale` come as keywords."""

import importlib

_today = importlib.import_module(__package__.split(".")[0] + ".optim")
Optimizer, lr_scheduler = _today.Optimizer, _today.lr_scheduler
__path__: list = []  # a package: `import oneflow.experimental.optim.lr_scheduler`


def _scaled(cls):
    """Today's class with the argument `scale`: gradients are multiplied by it before the update."""

    class Scaled(cls):
        def step(self, closure=None):
            if self._scale != 1.0:
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.grad.mul_(self._scale)
            return super().step(closure)

    Scaled.__name__ = Scaled.__qualname__ = cls.__name__
    return Scaled


class SGD(_scaled(_today.SGD)):
    """Today's SGD; gradients are multiplied by `scale`."""

    def __init__(self, parameters, lr=1e-3, momentum=0.0, scale=1.0):
        self._scale = scale
        super().__init__(parameters, lr=lr, momentum=momentum)


class Adam(_scaled(_today.Adam)):
    def __init__(
        self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, scale=1.0
    ):
        self._scale = scale
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class AdamW(_scaled(_today.AdamW)):
    def __init__(
        self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, scale=1.0
    ):
        self._scale = scale
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)


class RMSprop(_scaled(_today.RMSprop)):
    def __init__(
        self,
        parameters,
        lr=1e-3,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0.0,
        centered=False,
        scale=1.0,
    ):
        self._scale = scale
        super().__init__(
            parameters,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
        )
