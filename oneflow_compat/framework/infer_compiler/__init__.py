"""oneflow.framework.infer_compiler: a torch module whose calls run as an nn.Graph.

Modules and tensors are torch's, so nothing is translated; `register` may still swap classes
(difference row infer-compiler).
"""

from .convert import register
from .with_oneflow_compile import DualModule, DualModuleList, compile_from_torch

__all__ = ["DualModule", "DualModuleList", "compile_from_torch", "register"]
