"""oneflow.utils.checkpoint: torch's, but activations are computed again without re-entering autograd unless
the caller asks for that.

Re-entrant, as torch does it by default, weights get no gradient where no argument needs one, nor inputs
inside a dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from .. import _bind

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["checkpoint"]


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """function(*args, **kwargs), whose activations are computed again in backward instead of kept.

    use_reentrant=None means False (torch: True); torch's other keywords are taken. Returns what `function`
    returns.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=bool(use_reentrant), **kwargs)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.utils.checkpoint")
