"""Learning rates of the first steps: `constant` and `linear`."""


class constant:
    """base_lr * multiplier for the first `steps` steps."""

    def __init__(self, steps, multiplier):
        self.steps, self.multiplier = steps, multiplier

    @property
    def warmup_conf(self):
        return {"constant_conf": {"warmup_batches": self.steps, "multiplier": self.multiplier}}

    def factor(self, step):
        return self.multiplier


class linear:
    """From base_lr * start_multiplier to base_lr over the first `steps` steps."""

    def __init__(self, steps, start_multiplier):
        self.steps, self.start_multiplier = steps, start_multiplier

    @property
    def warmup_conf(self):
        return {"linear_conf": {"warmup_batches": self.steps, "start_multiplier": self.start_multiplier}}

    def factor(self, step):
        return self.start_multiplier + (1.0 - self.start_multiplier) * (step / self.steps)
