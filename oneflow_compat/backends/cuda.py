"""oneflow.backends.cuda: torch's; cuMatmulMode names the precision switches of `matmul`."""

import torch

from .. import _bind

matmul = torch.backends.cuda.matmul
cuMatmulMode = type(matmul)
__getattr__, __dir__ = _bind.fall_through(__name__, "torch.backends.cuda")
