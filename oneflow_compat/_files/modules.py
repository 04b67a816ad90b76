"""Pickled layers: a torch.nn or oneflow.nn module of the same name with the attributes from the file.

No constructor is called with values from a file. A layer starts as a copy of a template, which was
constructed once with arguments fixed here. Then the file's attributes replace the template's. Some layers of
OneFlow lack an attribute of torch's layer (a convolution has no `transposed`); it is derived from the
attributes in the file.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import pickle
import sys
import warnings
import weakref
from typing import Any

import torch
from torch import nn

from .. import nn as ours
from .._data.ingraph import Stage
from .._file_safety.budget import Budget
from .._file_safety.constructors import allow
from .._file_safety.constructors.numpy_values import Shell
from .._file_safety.errors import CheckpointError, RefusedError
from .._file_safety.shown import plain_text, shown

_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = "hooks"
_RENAMED = {"PixelShufflev2": "PixelShuffle"}
_RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.Size, torch.device)
_ELEMENTS = 4096  # the limit of the values in one attribute of a layer
_FIXED = {
    nn.Embedding: (1, 1),
    nn.EmbeddingBag: (1, 1),
    nn.MultiheadAttention: (1, 1),
    nn.Transformer: (1, 1, 1, 1, 1),
}


_COMMON_ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), (1,), (1, 1), (1, 1, 1), ((1, 1),), (None,))


class LayerShell(Shell):
    """A layer without its attributes; subclasses name the layer."""

    layer: type[nn.Module] = nn.Module
    of_oneflow = False
    takes_arguments = True
    size = 4000  # bytes of a module's attributes and tables; a ReLU has 2.4 kB (measured)

    def build(self, state: Any, budget: Budget) -> nn.Module:
        return build(self, state, budget)


@functools.cache
def layer_shell(module: str, name: str) -> type[LayerShell] | None:
    """Return the shell of that layer of torch.nn or oneflow.nn, or None."""
    of_oneflow = module == "oneflow.nn" or module.startswith("oneflow.nn.modules.")
    if of_oneflow:
        layer = getattr(ours, _RENAMED.get(name, name), None)
    elif module == "torch.nn" or module.startswith("torch.nn.modules."):
        # helper classes of layers have no public name
        layer = getattr(nn, name, None) or getattr(sys.modules.get(module), name, None)
    elif module.startswith(ours.__name__ + ".modules."):
        layer = getattr(importlib.import_module(ours.__name__), name, None)
        of_oneflow = True
    else:
        return None
    if not (isinstance(layer, type) and issubclass(layer, nn.Module)) or layer is nn.Module:
        return None
    if issubclass(layer, Stage):  # the constructor of a reader, which makes the template, opens files
        return None
    return type(name, (LayerShell,), {"layer": layer, "of_oneflow": of_oneflow})


def build(shell: LayerShell, state: object, budget: Budget | None) -> nn.Module:
    """Return the layer with the attributes, parameters, buffers and sub-modules of a pickled layer.

    Without a budget the file is trusted.
    """
    cls = shell.layer
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise CheckpointError(f"altered: the state of a {cls.__name__} is no dict of attributes")
    attributes = _template(cls)
    loaded = cls.__new__(cls)
    loaded.__dict__.update(attributes)
    for table in _TABLES:
        loaded.__dict__[table] = _table(cls, table, state.get(table, {}), attributes[table], shell.of_oneflow)
    loaded.training = state.get("training", True) is not False
    for name, value in state.items():
        is_set_above = name in _TABLES or name == "training" or name.endswith(_HOOKS)
        if is_set_above or (shell.of_oneflow and name not in attributes):
            if budget is not None:
                _check_hook(cls, name, value)
        else:
            if budget is not None:
                _check_attribute(cls, name, value, state, budget)
            loaded.__dict__[name] = value
    _derive(loaded, state)
    return loaded


# --------------------------------------------------------------------------- the template
# {id of a class: ...}, because our layers compare equal to torch's classes
_templates: dict[int, tuple[type, dict[str, Any]]] = {}


def _template_of(cls: type) -> dict[str, Any]:
    if id(cls) not in _templates:
        _templates[id(cls)] = cls, _fresh_attributes(cls)
    return _templates[id(cls)][1]


def _fresh_attributes(cls: type) -> dict[str, Any]:
    """Return the attributes of a layer that was constructed with the first arguments that fit."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about deprecated layers
        for arguments in (getattr(cls, "_blank", None), _FIXED.get(cls), *_COMMON_ARGUMENTS):
            if arguments is not None:
                with contextlib.suppress(Exception):  # the layer takes other arguments
                    return cls(*arguments).__dict__
    return nn.Module().__dict__


def _template(cls: type) -> dict[str, Any]:
    """Return the attributes of a fresh layer, which the caller may change."""
    return {name: copy.copy(value) for name, value in _template_of(cls).items()}


# --------------------------------------------------------------------------- checks
def _table(cls: type, table: Any, entries: Any, template: Any, of_oneflow: bool) -> dict[str, Any]:
    """Return the parameters, buffers or sub-modules of a file, or raise if an entry is not one."""
    entry_classes = {"_parameters": nn.Parameter, "_buffers": torch.Tensor, "_modules": nn.Module}
    if not isinstance(entries, dict):
        raise CheckpointError(f"altered: {table} of a {cls.__name__} is a {type(entries).__name__}")
    for name, entry in entries.items():
        is_entry = entry is None or isinstance(entry, entry_classes[table])
        if type(name) is not str or "." in name or not is_entry:
            raise CheckpointError(
                f"altered: {table} of a {cls.__name__} has {shown(name)}, a {type(entry).__name__}"
            )
        if name.startswith("__") or callable(getattr(cls, name, None)) or name in ("training", *_TABLES):
            raise RefusedError(
                f"altered or hostile: {table} of a {cls.__name__} has {shown(name)}, the name of one of its"
                " methods"
            )
    # OneFlow omits entries that are None
    absent = dict.fromkeys(template) if of_oneflow and table != "_modules" else {}
    return type(template)({**absent, **entries})


def _check_hook(cls: type, name: Any, value: Any) -> None:
    if name.endswith(_HOOKS) and value:
        raise RefusedError(
            f"it holds a {cls.__name__} with {plain_text(name)}, which a safe load does not attach. If you"
            " trust the"
            " file, load it with weights_only=False"
        )


def _check_attribute(cls: type, name: str, value: Any, state: dict[str, Any], budget: Budget) -> None:
    """Refuse an attribute that hides a method, parameter or attribute of the class, or has no plain value.

    nn.Module.__call__ runs the attribute `_compiled_call_impl` in place of forward(), for example.
    """
    is_of_class = name not in _template_of(cls) and hasattr(cls, name)
    if name.startswith("__") or is_of_class or any(name in state.get(table, ()) for table in _TABLES):
        raise RefusedError(
            f"altered or hostile: a {cls.__name__} has the attribute {shown(name)}, the name of one of its"
            " methods, parameters or sub-modules, or of an attribute of the class"
        )
    if not _is_plain(value, budget):
        raise RefusedError(
            f"it holds a {cls.__name__} whose attribute {shown(name)} is a {type(value).__name__}. If you"
            " trust the file, load it with weights_only=False"
        )


def _is_plain(value: Any, budget: Budget) -> bool:
    """Whether a layer of torch may have the value as an attribute: a plain value, a tensor, a layer, an
    allowed function, or a container of at most 4096 of these.
    """
    waiting, elements = [value], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple | list | set | dict):
            elements += len(item)
            budget.charge_objects(16 * len(item), "an attribute of a layer")
            if elements > _ELEMENTS:
                return False
            waiting.extend([*item, *item.values()] if isinstance(item, dict) else item)
        elif not _is_plain_element(item):
            return False
    return True


def _is_plain_element(value: Any) -> bool:
    if isinstance(value, (*_PLAIN, torch.Tensor, nn.Module)) or value is torch.Tensor:
        return True
    return callable(value) and (
        getattr(value, "__module__", "") == "torch.nn.functional" or allow.is_user_global(value)
    )


# --------------------------------------------------------------------------- derived attributes
def _derive(loaded: Any, state: Any) -> None:
    """Set the attributes that torch's constructors compute."""
    if _is_integer(divisor := getattr(loaded, "divisor_override", None)) and divisor == 0:
        loaded.divisor_override = None  # OneFlow stores 0 for None
    if isinstance(getattr(loaded, "padding", None), list):
        loaded.padding = tuple(loaded.padding)
    if isinstance(loaded, nn.modules.conv._ConvNd) and "_reversed_padding_repeated_twice" not in state:
        _derive_convolution(loaded, state)
    if isinstance(loaded, nn.PixelShuffle) and "upscale_factor" not in state:
        h: Any = loaded.h_upscale_factor
        is_one_factor = (
            _is_integer(h) and _is_integer(loaded.w_upscale_factor) and h == loaded.w_upscale_factor
        )
        loaded.upscale_factor = h if is_one_factor else None  # type: ignore[assignment]
    if isinstance(loaded, _RECURRENT):
        _derive_recurrent(loaded, state)


def _is_integer(value: object) -> bool:
    """Whether a value may be compared. A tensor of the file that shows one element a billion times would be
    compared in a billion bytes.
    """
    return type(value) is int


def _derive_convolution(loaded: Any, state: Any) -> None:
    sizes = {name: getattr(loaded, name) for name in ("stride", "dilation", "kernel_size", "output_padding")}
    if any(type(v) is not tuple or any(type(n) is not int for n in v) for v in sizes.values()):
        raise CheckpointError(f"altered: a {type(loaded).__name__} has {shown(sizes)}")
    weight = loaded._parameters.get("weight")
    if weight is not None and weight.dim() > 1 and type(loaded.groups) is int:
        inside, outside = (1, 0) if not loaded.transposed else (0, 1)
        loaded.in_channels, loaded.out_channels = weight.shape[inside], weight.shape[outside]
        if loaded.transposed:
            loaded.out_channels *= loaded.groups
        else:
            loaded.in_channels *= loaded.groups
    loaded._reversed_padding_repeated_twice = _repeated_padding(loaded)


def _repeated_padding(loaded: Any) -> tuple[Any, ...]:
    """Return the padding of each side, last dimension first, in the order of torch.nn.functional.pad."""
    if isinstance(loaded.padding, tuple):
        return tuple(n for n in reversed(loaded.padding) for _ in range(2))
    sides = [0, 0] * len(loaded.kernel_size)
    if type(loaded.padding) is str and loaded.padding == "same":
        for i, (d, k) in enumerate(zip(loaded.dilation, loaded.kernel_size)):
            total = d * (k - 1)
            at = 2 * (len(loaded.kernel_size) - 1 - i)
            sides[at : at + 2] = [total // 2, total - total // 2]
    return tuple(sides)


def _derive_recurrent(loaded: Any, state: Any) -> None:
    """Set the weight names in torch's order, for the layers that the file has."""
    loaded.mode = state.get("mode", loaded.mode)
    layers = loaded.num_layers
    if type(layers) is not int or not 0 < layers <= len(loaded._parameters):
        raise CheckpointError(
            f"altered: a {type(loaded).__name__} of {shown(layers)} layers has"
            f" {len(loaded._parameters)} parameters"
        )
    if "_flat_weights_names" not in state:
        loaded._all_weights = _weight_names(loaded, layers)
        loaded._flat_weights_names = [name for names in loaded._all_weights for name in names]
    names = loaded._flat_weights_names
    if type(names) is not list or any(type(n) is not str for n in names):
        raise CheckpointError(f"altered: the weights of a {type(loaded).__name__} have no names")
    loaded._flat_weights = [loaded._parameters.get(name) for name in names]
    if "_flat_weight_refs" in _template_of(type(loaded)):  # torch 2.13 and newer
        loaded._flat_weight_refs = [None if w is None else weakref.ref(w) for w in loaded._flat_weights]
    if isinstance(loaded, nn.RNN):
        loaded.nonlinearity = loaded.mode[4:].lower()


def _weight_names(loaded: Any, layers: int) -> list[list[str]]:
    parts = ["weight_ih", "weight_hh"]
    if loaded.bias:
        parts += ["bias_ih", "bias_hh"]
    if getattr(loaded, "proj_size", 0):
        parts.append("weight_hr")
    ends = ("", "_reverse") if loaded.bidirectional else ("",)
    return [[f"{part}_l{layer}{end}" for part in parts] for layer in range(layers) for end in ends]


# --------------------------------------------------------------------------- writing
def reduced_without_local_hooks(module: nn.Module) -> tuple[Any, ...] | None:
    """Return the result of `module.__reduce_ex__` without the hooks that cannot be pickled, and warn.

    The result is None if every hook can be pickled. OneFlow leaves all hooks out, torch raises.
    """
    tables = {name: hooks for name, hooks in vars(module).items() if name.endswith("_hooks") and hooks}
    kept = {
        name: type(hooks)((hook_id, hook) for hook_id, hook in hooks.items() if _can_be_pickled(hook))
        for name, hooks in tables.items()
        if isinstance(hooks, dict)
    }
    if all(len(hooks) == len(tables[name]) for name, hooks in kept.items()):
        return None
    reduced: Any = module.__reduce_ex__(4)
    function, arguments, state, *rest = reduced
    warnings.warn(
        f"save: hooks of a {type(module).__name__} are left out, because they cannot be pickled (lambdas and"
        " functions inside functions); register them again after load()",
        stacklevel=2,
    )
    return function, arguments, {**state, **kept}, *rest


def _can_be_pickled(hook: Any) -> bool:
    try:
        pickle.dumps(hook)
    except Exception:  # a hook's __reduce__ may raise anything
        return False
    return True
