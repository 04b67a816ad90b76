"""nn.init: today's oneflow.nn.init, where 0.4 accepted layouts as positional arguments."""

from ....nn import init as _today
from ....nn.init import *
from .._orders import takes_older_orders

kaiming_normal_, kaiming_uniform_, xavier_normal_, xavier_uniform_ = (
    takes_older_orders(f"nn.init.{name}")(getattr(_today, name))
    for name in ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_")
)


def __getattr__(name):
    return getattr(_today, name)
