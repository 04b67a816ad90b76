"""oneflow.special: torch.special."""

from . import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.special")
__path__: list = []  # a package: `import oneflow.special.special_ops`
