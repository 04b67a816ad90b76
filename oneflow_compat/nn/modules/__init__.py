"""oneflow.nn.modules: torch.nn.modules, with OneFlow's constructors where they differ."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules", classes=True)
