"""Deep path of oneflow.special."""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.special")
