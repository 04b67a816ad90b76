"""oneflow.random: torch.random, and the random blobs of job functions."""

from . import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.random", also="compatible.single_client.random")
