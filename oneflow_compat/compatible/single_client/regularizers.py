"""flow.regularizers: parts added to a variable's gradient."""


class Regularizer:
    """gradient + l1 * sign(variable) + l2 * variable."""

    def __init__(self, l1=0.0, l2=0.0):
        self.l1, self.l2 = l1, l2

    def add_to(self, gradient, variable):
        import torch

        if self.l1:
            gradient = gradient + self.l1 * torch.sign(variable).to(gradient.dtype)
        if self.l2:
            gradient = gradient + self.l2 * variable
        return gradient

    def __repr__(self):
        return f"Regularizer(l1={self.l1}, l2={self.l2})"


def l1_l2(l1=0.01, l2=0.01):
    return Regularizer(l1, l2)


def l1(l=0.01):
    return Regularizer(l, 0.0)


def l2(l=0.01):
    return Regularizer(0.0, l)
