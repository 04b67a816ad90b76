"""OneFlow's pickled modules, read as the torch.nn (oneflow.nn) module of the same name.

A pickled module is its attributes. OneFlow's differ from torch's here and there (no `transposed` in
a convolution, ...), so the module is constructed from the attributes that are constructor arguments,
and then gets the pickled parameters, buffers, sub-modules and training flag.
"""
from __future__ import annotations

import functools
import inspect

import torch

from .layout import CheckpointError

_TABLES = ("_parameters", "_buffers", "_modules")


@functools.cache
def shell(module: str, name: str):
    """A class whose instances turn into the layer `oneflow.nn.<name>` when their state arrives, or None."""
    from .. import nn

    name = {"PixelShufflev2": "PixelShuffle"}.get(name, name)
    cls = getattr(nn, name, None)
    if not (isinstance(cls, type) and issubclass(cls, torch.nn.Module)) or cls is torch.nn.Module:
        return None

    class Shell(torch.nn.Module):
        def __new__(klass, *args, **kwargs):
            return super().__new__(klass)

        def __init__(self):
            pass

        def __setstate__(self, state):
            made = rebuild(cls, state)
            self.__dict__.clear()
            self.__dict__.update(made.__dict__)
            self.__class__ = cls

    Shell.__name__ = Shell.__qualname__ = name
    return Shell


def rebuild(cls, state) -> torch.nn.Module:
    """A `cls` with the parameters, buffers, sub-modules and constructor arguments of a pickled OneFlow module."""
    arguments = _arguments(cls, state)
    try:
        with torch.device("meta"):
            made = cls(**arguments)
    except Exception as error:
        raise CheckpointError(f"a pickled {cls.__name__} cannot be rebuilt from {sorted(arguments)}: {error}") from error
    for table in _TABLES:
        kept = getattr(made, table)
        absent = [k for k, v in kept.items() if v is None]
        kept.clear()
        kept.update(dict.fromkeys(absent) | dict(state.get(table, {})))
    made.training = bool(state.get("training", True))
    names = getattr(made, "_flat_weights_names", None)
    if names is not None:  # recurrent layers keep a list of their parameters
        made._flat_weights = [getattr(made, n, None) for n in names]
    return made


def _arguments(cls, state) -> dict:
    """Constructor arguments, as far as the attributes tell them."""
    parameters, buffers = state.get("_parameters", {}), state.get("_buffers", {})
    weight = parameters.get("weight")
    derived = {"bias": lambda: parameters.get("bias") is not None}
    if cls.__name__.startswith("ConvTranspose"):
        derived["in_channels"] = lambda: weight.shape[0]
        derived["out_channels"] = lambda: weight.shape[1] * state["groups"]
    if "Loss" in cls.__name__:
        derived["weight"] = lambda: buffers.get("weight")
    out = {}
    for name in inspect.signature(cls.__init__).parameters:
        if name in ("self", "device", "dtype", "args", "kwargs", "generator"):
            continue
        if name in state:
            out[name] = state[name]
        elif name in derived:
            out[name] = derived[name]()
    if out.get("divisor_override") == 0:
        out["divisor_override"] = None  # OneFlow's way to say: none
    if cls.__name__ in ("RNN", "LSTM", "GRU"):
        out = {k: state[k] for k in _RECURRENT if k in state} | ({"nonlinearity": state["mode"][4:].lower()} if cls.__name__ == "RNN" else {})
        if cls.__name__ != "LSTM":
            out.pop("proj_size", None)
    return out


_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")


