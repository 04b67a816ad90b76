"""RNN with OneFlow's positions."""

from __future__ import annotations

from typing import Any

from torch import nn

from ... import _bind
from ._same import SameAsTorch

__all__ = ["RNN"]


class RNN(nn.RNN, metaclass=SameAsTorch):
    """torch's RNN; a bool in slot 4 is OneFlow's `bias`, followed by batch_first, dropout and bidirectional
    (torch has `nonlinearity` there).
    """

    _torch_class = nn.RNN
    _blank = (1, 1, 1, "tanh", True, False, 0.0, False, 0, "meta")  # weights that draw no random numbers

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 3 and isinstance(args[3], bool):
            args = (*args[:3], kwargs.pop("nonlinearity", "tanh"), *args[3:])
        super().__init__(*args, **kwargs)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.rnn", classes=True)
