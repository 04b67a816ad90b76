"""oneflow.nn.utils.container: torch's containers, also as members of another class family."""

from __future__ import annotations

import functools

import torch.nn as _nn


@functools.cache
def _as_family(container: type, T: type) -> type:
    if issubclass(container, T):
        return container
    return type(f"{T.__name__}{container.__name__}", (container, T), {"__module__": T.__module__})


def get_seq(T: type) -> type:
    """nn.Sequential, derived from T as well where it is not already."""
    return _as_family(_nn.Sequential, T)


def get_list(T: type) -> type:
    return _as_family(_nn.ModuleList, T)


def get_dict(T: type) -> type:
    return _as_family(_nn.ModuleDict, T)


def get_para_list(T: type) -> type:
    return _as_family(_nn.ParameterList, T)


def get_para_dict(T: type) -> type:
    return _as_family(_nn.ParameterDict, T)
