"""oneflow.nn.utils.clip_grad: torch's, with OneFlow's positional order."""

from ..._bind import fall_through as _ft
from ..._ops.clip_grad import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


__getattr__, __dir__ = _ft(__name__, "torch.nn.utils.clip_grad")
