"""`oneflow.set_dialect("oneflow-0.9")`: OneFlow 0.9's numbers also where torch's meaning holds otherwise.

Operators and methods of torch.Tensor, undocumented quirks of functions and the CPU random stream are
exchanged for the whole process (`_tables/exact.py` lists all of them), for comparing a port with
recorded OneFlow results. Slower than torch; on the CPU only as far as random numbers go.
"""

import importlib
from types import ModuleType
from typing import Any, Literal, NoReturn

import torch

from .._import_hook import import_target
from .._method import own_attribute
from .._public_module import own_names
from .._tables.exact import FUNCTIONS, TENSOR

_kept: list[tuple[object, str, object]] = []
_ABSENT = object()


def switch(on: bool) -> None:
    """Bind the rows of `_tables/exact.py`, or put back what they replaced."""
    if on == bool(_kept):
        return
    if not on:
        while _kept:
            _bind(*_kept.pop())
        return
    for name, target in TENSOR.items():
        _keep(torch.Tensor, name, import_target(target)(own_attribute(torch.Tensor, name)))
    for public, target in FUNCTIONS.items():
        space, _, name = public.rpartition(".")
        owner = importlib.import_module(space)
        _keep(owner, name, import_target(target)(getattr(owner, name)))


def _keep(owner: object, name: str, new: object) -> None:
    names = own_names(owner) if isinstance(owner, ModuleType) else vars(owner)
    _kept.append((owner, name, names.get(name, _ABSENT)))
    _bind(owner, name, new)


def _bind(owner: Any, name: str, value: object) -> None:
    """Set or delete a name of a class, or of a public module, whose writes would reach torch."""
    if isinstance(owner, ModuleType):
        own_names(owner).pop(name, None)
        own_names(owner).update({} if value is _ABSENT else {name: value})
    elif value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
