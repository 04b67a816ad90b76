"""nn.Parameter is torch's."""

from torch.nn import Parameter

__all__ = ["Parameter"]
