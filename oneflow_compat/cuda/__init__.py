"""oneflow.cuda: torch.cuda, and the complex type constructors torch lacks.

With ONEFLOW_CPU_FOR_CUDA=1 on a machine without a CUDA device, `device` does nothing and the tensor types are
those of the CPU.
"""

from .. import _bind, _cpu_for_cuda

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.cuda")
if _cpu_for_cuda.is_on():
    globals().update(_cpu_for_cuda.names_of_cuda())
