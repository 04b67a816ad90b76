"""oneflow._oneflow_internal._C: the functions of `oneflow._C`."""

from .. import _C as _functions


def __getattr__(name):
    return getattr(_functions, name)


def __dir__():
    return dir(_functions)
