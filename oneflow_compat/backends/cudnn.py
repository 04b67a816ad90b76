"""oneflow.backends.cudnn: torch's, and three knobs that are remembered without effect."""
from .. import _bind, _knobs

globals().update(_knobs.setters("backends.cudnn"))
__getattr__, __dir__ = _bind.fall_through(__name__, "torch.backends.cudnn")
