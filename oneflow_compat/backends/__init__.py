"""oneflow.backends: torch.backends, with OneFlow's cudnn knobs."""

from .. import _bind
from . import cuda, cudnn

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.backends")
