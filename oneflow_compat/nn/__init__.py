"""oneflow.nn: torch.nn, with OneFlow's signatures where they differ and `nn.Graph`."""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn", also="compatible.single_client.nn")
