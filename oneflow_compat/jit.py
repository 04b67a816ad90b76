"""oneflow.jit: torch.jit, but `script` gives back what TorchScript cannot compile (OneFlow's `script`
compiles nothing).
"""

from . import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.jit")
__path__: list = []  # a package, so that `import oneflow.jit.frontend` finds torch.jit.frontend
