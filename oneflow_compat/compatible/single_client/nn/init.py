"""nn.init: today's oneflow.nn.init, where 0.4 accepted layouts as positional arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....nn import init as _today
from ....nn.init import *
from .._functions.orders import takes_older_orders

if TYPE_CHECKING:
    from typing import Any


kaiming_normal_, kaiming_uniform_, xavier_normal_, xavier_uniform_ = (
    takes_older_orders(f"nn.init.{name}")(getattr(_today, name))
    for name in ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_")
)


def __getattr__(name: str) -> Any:
    return getattr(_today, name)
