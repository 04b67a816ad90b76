"""`oneflow.set_dialect("oneflow-0.9")`: OneFlow 0.9's numbers also where torch's meaning holds otherwise.

Operators and methods of torch.Tensor, undocumented quirks of functions and the CPU random stream are
exchanged for the whole process (`_tables/exact.py` lists all of them), for comparing a port with
recorded OneFlow results. Slower than torch; on the CPU only as far as random numbers go.
"""

import importlib
from typing import Any, Literal, NoReturn

import torch

from .._import_hook import import_target
from .._method import own_attribute
from .._tables.exact import FUNCTIONS, TENSOR

_kept: list[tuple[object, str, object]] = []
_ABSENT = object()


def switch(on: bool) -> None:
    """Bind the rows of `_tables/exact.py`, or put back what they replaced."""
    if on == bool(_kept):
        return
    if not on:
        while _kept:
            owner, name, value = _kept.pop()
            delattr(owner, name) if value is _ABSENT else setattr(owner, name, value)
        return
    for name, target in TENSOR.items():
        _keep(torch.Tensor, name, import_target(target)(own_attribute(torch.Tensor, name)))
    for public, target in FUNCTIONS.items():
        space, _, name = public.rpartition(".")
        owner = importlib.import_module(space)
        _keep(owner, name, import_target(target)(getattr(owner, name)))


def _keep(owner: object, name: str, new: object) -> None:
    _kept.append((owner, name, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, new)
