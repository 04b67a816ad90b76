"""Values in program.json: JSON as it is, and a tagged object ({"dtype": "float32"}) for anything else."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from ..._file_safety.shown import shown
from ..program.graph_records import TORCH_TYPES, value_record
from .reader import INT64, PackageError, number, refuse, row

_DEEPEST = 20  # lists in the arguments of a node
_DEVICE = re.compile(r"[a-z0-9]{1,20}(:[0-9]{1,3})?\Z")
# (tag, name in the file) -> value
_CONSTANTS = {("float", name): float(name) for name in ("nan", "inf", "-inf")} | {
    (tag, str(value).removeprefix("torch.")): value
    for tag in TORCH_TYPES
    for value in vars(torch).values()
    if isinstance(value, getattr(torch, tag))
}


def encode(value: object) -> object:
    """Return the JSON form of a value in a program."""
    return value_record(value, refusal)


def refusal(value: object) -> PackageError:
    """Return the error of a value that program.json cannot hold."""
    return PackageError(f"a {type(value).__name__} in the program cannot be stored: {value!r}")


def decode(
    value: object,
    nodes: Mapping[str, torch.fx.Node],
    device: torch.device | None,
    location: str,
    depth: int = 0,
) -> Any:
    """Return the value of a JSON form, with `nodes` by name. If `device` is set, it replaces every device."""
    if depth > _DEEPEST:
        raise PackageError(
            f"{location} is damaged: values are nested more than {_DEEPEST} deep; save the graph again"
        )
    if type(value) is list:
        return [decode(v, nodes, device, location, depth + 1) for v in value]
    if type(value) is dict:
        return _decode_tagged(value, nodes, device, location, depth)
    if type(value) is int and not INT64[0] <= value < 2**64:
        raise refuse(location, "an integer of 64 bits", value)
    if type(value) is float:
        return number(value, location)
    return value


def decode_dtype(value: object, location: str) -> torch.dtype | None:
    if value is None:
        return None
    dtype = decode(value, {}, None, location)
    if not isinstance(dtype, torch.dtype):
        raise refuse(location, "a dtype", value)
    return dtype


def decode_device(name: object, device: torch.device | None, location: str) -> torch.device | None:
    return None if name is None else decode({"device": name}, {}, device, location)


def _decode_tagged(
    value: dict[str, Any],
    nodes: Mapping[str, torch.fx.Node],
    device: torch.device | None,
    location: str,
    depth: int,
) -> Any:
    if len(value) != 1:
        raise refuse(location, "an object with one key", value)
    ((tag, inner),) = value.items()
    if tag == "tuple" and type(inner) is list:
        return tuple(decode(v, nodes, device, location, depth + 1) for v in inner)
    if tag == "complex":
        return complex(*row(_part, _part)(inner, location))
    if tag == "node" and type(inner) is str:
        return _node(inner, nodes, location)
    if tag == "device" and type(inner) is str and _DEVICE.match(inner):
        return device or _torch_device(inner, location)
    if type(inner) is str and (tag, inner) in _CONSTANTS:
        return _CONSTANTS[tag, inner]
    raise refuse(location, "a node, tuple, float, complex, dtype, layout, memory_format or device", value)


def _node(name: str, nodes: Mapping[str, torch.fx.Node], location: str) -> torch.fx.Node:
    if name not in nodes:
        raise PackageError(
            f"{location} is damaged: no node before this one is named {shown(name)}; save the graph again"
        )
    return nodes[name]


def _torch_device(name: str, location: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise refuse(location, "a device that torch knows", name) from None


def _part(value: object, location: str) -> float:
    """Read the real or imaginary part of a complex value."""
    if type(value) is float or type(value) is int and INT64[0] <= value <= INT64[1]:
        return value
    raise refuse(location, "a number", value)
