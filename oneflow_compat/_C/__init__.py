"""oneflow._C: OneFlow's raw functional namespace.

A name is looked up in `_tables/c_ops.py`, then in oneflow and oneflow.nn.functional (a function of ours
before one of torch's),
in fft, linalg, special and comm, among the methods of torch.Tensor (called with the tensor first), and last
in torch._C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch as _torch

from .. import _bind

if TYPE_CHECKING:
    import types

    import torch


_rows, __dir__ = _bind.fall_through(__name__, None)


def __getattr__(name: str) -> Any:
    try:
        return _rows(name)
    except AttributeError:
        if name.startswith("__"):
            raise
    value = _elsewhere(name)
    globals()[name] = value
    return value


def _elsewhere(name: str) -> Any:
    import types

    import oneflow

    namespaces = [
        oneflow,
        oneflow.nn.functional,
        oneflow.fft,
        oneflow.linalg,
        oneflow.special,
        oneflow.comm,
        _torch.Tensor,
        _torch._C,
    ]
    namespaces[:2] = sorted(
        namespaces[:2],
        key=lambda m: (
            name not in _bind.function_rows(m.__name__) and name not in _bind.rename_rows(m.__name__)
        ),
    )
    for namespace in namespaces:
        value = getattr(namespace, name, None)
        if value is not None and not (isinstance(value, types.ModuleType) and namespace is oneflow):
            return value
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: neither oneflow._C nor torch has an operator of that"
        " name"
    )
