"""Deep path of no_grad."""

from torch import no_grad

__all__ = ["no_grad"]
