"""nn.Module is torch's."""

from torch.nn import Module

__all__ = ["Module"]
