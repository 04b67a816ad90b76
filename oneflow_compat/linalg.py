"""oneflow.linalg: torch.linalg with OneFlow's positions (`_ops/linalg_ops.py`)."""

from . import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.linalg")
