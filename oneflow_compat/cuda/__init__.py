"""oneflow.cuda: torch.cuda, and the complex type constructors torch lacks."""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.cuda")
