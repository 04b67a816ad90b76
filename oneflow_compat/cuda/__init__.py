"""oneflow.cuda: torch.cuda, and the complex type constructors torch lacks.

With ONEFLOW_CPU_FOR_CUDA=1 on a machine without a CUDA device, the names that need one answer for the CPU, in
torch.cuda, too: events measure time, streams do nothing, the tensor types and the random state are the CPU's.
"""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.cuda")
