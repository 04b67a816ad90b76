"""oneflow.utils.global_view: global tensors in nested containers, and a default placement for creation."""

from .global_mode import current_global_mode, global_mode
from .to_global import to_global
from .to_local import to_local
