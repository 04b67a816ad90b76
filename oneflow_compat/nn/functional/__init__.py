"""oneflow.nn.functional: torch.nn.functional with OneFlow's signatures where they differ."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.functional")
