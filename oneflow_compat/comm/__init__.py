"""oneflow.comm: collectives in OneFlow's call form. With one process each is the identity."""

from .. import _bind
from .comm_ops import *

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.distributed")
