"""Python values as JSON.

A tree has plain values as they are, lists as lists, and every other value as an object whose first key names
the type: {"tuple": [...]}, {"dict": [[key, value], ...]}, {"tensor": name}, {"ranks": [tree of rank 0, ...]}.

`tree_reading` turns a tree into values again.
"""

from __future__ import annotations

import base64
import collections
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.torch_version import TorchVersion

from ... import sbp as sbps
from ..._global.placement import placement as Placement

DEPTH = 100  # levels of containers
_BITS = 10_000  # the largest integer; Python parses at most 4300 digits
Path = tuple[Any, ...]
# The names of containers in a tree
MAPPINGS: dict[str, type] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
}
SEQUENCES: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
CONTAINERS = {cls: name for name, cls in (*MAPPINGS.items(), *SEQUENCES.items())}
LEAVES = ("tensor", "array", "scalar")  # objects whose values are in the safetensors files


def path_name(path: Path) -> str:
    """Return the name of a position in an object, as "model.0.weight"."""
    return ".".join(map(str, path)) or "object"


class Encoder:
    """Turn an object into a tree. `add(tensor, path)` returns the entry of a tensor."""

    def __init__(self, add: Callable[[torch.Tensor, Path], Any]) -> None:
        self._add = add

    def encode(self, value: Any, path: Path = ()) -> Any:
        """Return the tree of a value at a position of the object. TypeError for other types."""
        if len(path) > DEPTH:
            raise ValueError(
                f"layout='sharded' saves at most {DEPTH} levels of containers; {path_name(path[:8])}... has"
                " more, or contains itself"
            )
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, path)
        for encode in (_plain, _described):
            tree = encode(value)
            if tree is not NotImplemented:
                return tree
        return self._container(value, path)

    def _tensor(self, value: torch.Tensor, path: Path) -> dict[str, Any]:
        tree: dict[str, Any] = {"tensor": self._add(value, path)}
        if isinstance(value, torch.nn.Parameter) or getattr(value, "_is_param", False):
            tree["parameter"] = True
        if value.requires_grad:
            tree["requires_grad"] = True
        return tree

    def _array(self, value: Any, path: Path) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise TypeError(
                f"layout='sharded' saves NumPy arrays of numbers and bools, found dtype {array.dtype} at"
                f" {path_name(path)}; save it with the default layout"
            )
        values = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
        return {"array" if isinstance(value, np.ndarray) else "scalar": self._add(values, path)}

    def _container(self, value: Any, path: Path) -> Any:
        if type(value) is list:
            return [self.encode(item, (*path, i)) for i, item in enumerate(value)]
        name = CONTAINERS.get(type(value))
        if name in SEQUENCES:
            return {name: [self.encode(item, (*path, i)) for i, item in enumerate(value)]}
        if name in MAPPINGS:
            pairs = [[self._key(k, path), self.encode(v, (*path, k))] for k, v in value.items()]
            tree: dict[str, Any] = {name: pairs}
            if type(value) is collections.OrderedDict and hasattr(value, "_metadata"):
                # versions of modules, which load_state_dict() reads
                tree["metadata"] = self.encode(value._metadata, (*path, "_metadata"))
            return tree
        raise TypeError(
            f"layout='sharded' saves tensors, numbers, texts, dicts, lists and tuples, found a"
            f" {type(value).__name__} at {path_name(path)}; save what it holds (a module's state_dict()), or"
            " use the default layout"
        )

    def _key(self, key: Any, path: Path) -> Any:
        if isinstance(key, torch.Tensor | np.ndarray | np.generic):
            raise TypeError(
                f"layout='sharded': a key of {path_name(path)} is a {type(key).__name__}; keys are plain"
                " values"
            )
        return self.encode(key, (*path, "key"))


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        if value.bit_length() > _BITS:
            raise TypeError(f"layout='sharded' saves integers of at most {_BITS} bits")
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    return str(value) if type(value) is TorchVersion else NotImplemented


def _described(value: Any) -> Any:
    if type(value) is complex:
        return {"complex": [_plain(value.real), _plain(value.imag)]}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, torch.dtype | torch.device):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, Placement):
        return encode_placement(value)
    if isinstance(value, sbps.sbp):
        return {"sbp": value._ToAttrStr()}
    return NotImplemented


def encode_placement(value: Placement) -> dict[str, Any]:
    """Return the tree of a placement."""
    return {"placement": [value.type, value.ranks.tolist()]}
