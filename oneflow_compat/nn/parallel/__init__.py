"""oneflow.nn.parallel: DistributedDataParallel in OneFlow's call form; else torch.nn.parallel."""

from ... import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.parallel")
