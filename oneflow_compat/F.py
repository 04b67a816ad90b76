"""oneflow.F: what 0.4 and 0.5 called oneflow._C."""

from . import _C


def __getattr__(name):
    return getattr(_C, name)


def __dir__():
    return dir(_C)
