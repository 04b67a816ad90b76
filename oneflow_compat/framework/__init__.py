"""oneflow.framework: the deep import paths of OneFlow that client code uses, each naming the
public object.
"""

from .. import _bind

__getattr__, __dir__ = _bind.fall_through(__name__, None)
