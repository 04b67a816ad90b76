"""oneflow.utils.model_zoo: download a state dict (older name of oneflow.hub.load_state_dict_from_url)."""

from .. import _bind
from ..hub import load_state_dict_from_url
from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url", "load_state_dict_from_url"]

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.utils.model_zoo")
