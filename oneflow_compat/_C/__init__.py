"""oneflow._C: OneFlow's raw functional namespace.

A name is looked up in `_tables/c_ops.py`, then in oneflow and oneflow.nn.functional (a function of ours
before one of torch's),
in fft, linalg, special and comm, among the methods of torch.Tensor (called with the tensor first), and last
in torch._C.
"""

import torch as _torch

from .. import _bind

_rows, __dir__ = _bind.fall_through(__name__, None)


def __getattr__(name):
    try:
        return _rows(name)
    except AttributeError:
        if name.startswith("__"):
            raise
    value = _elsewhere(name)
    globals()[name] = value
    return value


def _elsewhere(name):
    import types

    import oneflow

    places = [
        oneflow,
        oneflow.nn.functional,
        oneflow.fft,
        oneflow.linalg,
        oneflow.special,
        oneflow.comm,
        _torch.Tensor,
        _torch._C,
    ]
    places[:2] = sorted(
        places[:2],
        key=lambda m: (
            name not in _bind.function_rows(m.__name__) and name not in _bind.rename_rows(m.__name__)
        ),
    )
    for place in places:
        value = getattr(place, name, None)
        if value is not None and not (isinstance(value, types.ModuleType) and place is oneflow):
            return value
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: neither oneflow._C nor torch has an operator of that"
        " name"
    )
