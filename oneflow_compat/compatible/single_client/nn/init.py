"""nn.init is today's oneflow.nn.init."""
from ....nn.init import *  # noqa: F401,F403
from ....nn import init as _today


def __getattr__(name):
    return getattr(_today, name)
