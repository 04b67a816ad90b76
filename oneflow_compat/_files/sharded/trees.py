"""Python values as JSON, and back.

A tree has plain values as they are, lists as lists, and every other value as an object whose first key names
the type: {"tuple": [...]}, {"dict": [[key, value], ...]}, {"tensor": name}, {"ranks": [tree of rank 0, ...]}.

Reading makes only the types of this file. A tree from a stranger's file is checked while it is read.
"""

from __future__ import annotations

import base64
import collections
import math
import warnings
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch.torch_version import TorchVersion

from ... import sbp as sbps
from ..._file_safety.budget import Budget
from ..._file_safety.errors import CheckpointError
from ..._file_safety.shown import shown
from ..._global.placement import placement as Placement

DEPTH = 100  # levels of containers
_BITS = 10_000  # of an integer; Python parses at most 4300 digits
Path = tuple[Any, ...]
_MAPPINGS: dict[type, str] = {
    dict: "dict",
    collections.OrderedDict: "OrderedDict",
    collections.Counter: "Counter",
}
_SEQUENCES: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
MAPPINGS = frozenset(_MAPPINGS.values())
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
        if type(value) in _SEQUENCES:
            return {_SEQUENCES[type(value)]: [self.encode(item, (*path, i)) for i, item in enumerate(value)]}
        if type(value) in _MAPPINGS:
            tree = {
                _MAPPINGS[type(value)]: [
                    [self._key(k, path), self.encode(v, (*path, k))] for k, v in value.items()
                ]
            }
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


# --------------------------------------------------------------------------- reading
class Decoder:
    """Turn a tree into an object.

    `tensor_of(name, path, is_plain)` returns a tensor; `is_plain`: it must be an ordinary one. `rank`
    selects from the values of several ranks; a rank beyond the saved ones gets those of rank 0. Tensors in
    `targets` (by id) are returned as they are.
    """

    def __init__(
        self,
        tensor_of: Callable[[str, Path, bool], torch.Tensor],
        rank: int,
        ranks: int,
        size: int,
        targets: Collection[int] = (),
    ) -> None:
        self._tensor_of, self._rank, self._ranks, self._targets = tensor_of, rank, ranks, targets
        self._budget = Budget(size)
        self._leaves: dict[Any, torch.Tensor] = {}  # so that tied parameters are one object
        self.warned = False
        self._differs = 0  # depth of values that differ between the ranks

    def decode(self, tree: Any, path: Path = ()) -> Any:
        """Return the value of a tree."""
        if len(path) > DEPTH + 2:
            raise CheckpointError("altered: its containers are nested too deep")
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        if type(tree) is list:
            return [self.decode(item, (*path, i)) for i, item in enumerate(tree)]
        if type(tree) is not dict or not tree:
            raise _damaged(tree)
        kind, content = next(iter(tree.items()))
        if kind == "ranks":
            self._differs += 1
            value = self.decode(self._of_rank(tree, path), path)
            self._differs -= 1
            return value
        if kind in LEAVES:
            return self._leaf(kind, tree, path)
        if kind in MAPPINGS:
            return self._mapping(kind, tree, path)
        if len(tree) != 1:
            raise _damaged(tree)
        if kind in _SEQUENCES.values():
            return self._sequence(kind, content, path)
        if kind not in _DECODERS:
            raise CheckpointError(f"altered, or of a newer version: a value of the type {shown(kind)}")
        return _DECODERS[kind](content)

    def _of_rank(self, tree: Any, path: Path) -> Any:
        values = tree["ranks"]
        if len(tree) != 1 or type(values) is not list or len(values) != self._ranks:
            raise _damaged(tree)
        if self._rank >= len(values) and not self.warned:
            self.warned = True
            warnings.warn(
                f"load: {shown(path_name(path))} has a value for each of {len(values)} ranks; rank"
                f" {self._rank} gets that of rank 0",
                stacklevel=2,
            )
        value = values[self._rank if self._rank < len(values) else 0]
        if type(value) is dict and "ranks" in value:
            raise _damaged(value)
        return value

    def _leaf(self, kind: str, tree: Any, path: Path) -> Any:
        name = tree[kind]
        flags = {k: v for k, v in tree.items() if k != kind}
        is_known = kind == "tensor" and flags.keys() <= {"parameter", "requires_grad"} or not flags
        if type(name) is not str or not is_known or any(v is not True for v in flags.values()):
            raise _damaged(tree)
        tensor = self._tensor_of(name, path, kind != "tensor" or self._differs > 0)
        if kind != "tensor":
            return _array(tensor, kind)
        if id(tensor) in self._targets or not flags:
            return tensor
        key = (id(tensor), *flags)
        if key not in self._leaves:
            self._leaves[key] = _with_flags(tensor, flags)
        return self._leaves[key]

    def _mapping(self, kind: str, tree: Any, path: Path) -> Any:
        content = tree[kind]
        allowed = {kind, "metadata"} if kind == "OrderedDict" else {kind}
        if type(content) is not list or not tree.keys() <= allowed:
            raise _damaged(tree)
        out: Any = next(cls for cls, name in _MAPPINGS.items() if name == kind)()
        for pair in content:
            if type(pair) is not list or len(pair) != 2:
                raise _damaged(pair)
            key = self.decode(pair[0], (*path, "key"))
            self._budget.check_key(key)
            if key in out:
                raise CheckpointError(f"altered: the key {shown(key)} stands twice in a dict")
            out[key] = self.decode(pair[1], (*path, key))
        if "metadata" in tree:
            out._metadata = self.decode(tree["metadata"], (*path, "_metadata"))
        return out

    def _sequence(self, kind: str, content: Any, path: Path) -> Any:
        if type(content) is not list:
            raise _damaged(content)
        items = [self.decode(item, (*path, i)) for i, item in enumerate(content)]
        if kind != "tuple":
            for item in items:
                self._budget.check_key(item)
        return next(cls for cls, name in _SEQUENCES.items() if name == kind)(items)


def _with_flags(tensor: torch.Tensor, flags: dict[str, Any]) -> torch.Tensor:
    requires_grad = "requires_grad" in flags
    if requires_grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise CheckpointError(f"altered: a tensor of {tensor.dtype} requires a gradient")
    if "parameter" in flags:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.detach().requires_grad_(requires_grad)


def _damaged(tree: object) -> CheckpointError:
    return CheckpointError(f"altered, or of a newer version: {shown(tree)} is no value of the object")


def _array(tensor: torch.Tensor, kind: str) -> Any:
    if tensor.dtype not in _NUMPY:
        raise CheckpointError(f"altered: a NumPy value of {tensor.dtype}")
    array = tensor.numpy()
    return array if kind == "array" else array[()]


_NUMPY = {
    *(torch.float64, torch.float32, torch.float16, torch.complex64, torch.complex128, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}


def _float(content: Any) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise _damaged(content)
    return float(content)


def _complex(content: Any) -> complex:
    if type(content) is not list or len(content) != 2:
        raise _damaged(content)
    parts = [
        _float(part["float"]) if part.__class__ is dict and "float" in part else part for part in content
    ]
    if any(type(part) is not float for part in parts):
        raise _damaged(content)
    return complex(*parts)


def _bytes(content: Any) -> bytes:
    if type(content) is not str:
        raise _damaged(content)
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        raise _damaged(content) from None


def counts(content: Any) -> tuple[int, ...]:
    """Return a list of sizes or offsets from a file as a tuple."""
    if type(content) is not list or len(content) > 64:
        raise _damaged(content)
    if any(type(n) is not int or not 0 <= n < 1 << 62 for n in content):
        raise _damaged(content)
    return tuple(content)


DTYPES = {str(dtype)[6:]: dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def dtype_named(content: Any) -> torch.dtype:
    """Return the dtype of a name from a file."""
    if type(content) is not str or content not in DTYPES:
        raise CheckpointError(f"altered, or of a newer torch: {shown(content)} is no dtype")
    return DTYPES[content]


def _device(content: Any) -> torch.device:
    if type(content) is not str or len(content) > 40:
        raise _damaged(content)
    try:
        return torch.device(content)
    except (RuntimeError, ValueError):
        raise _damaged(content) from None


def decode_placement(content: Any) -> Placement:
    """Return the placement of a tree."""
    if type(content) is not list or len(content) != 2 or type(content[0]) is not str:
        raise _damaged(content)
    device_type, ranks = content
    if device_type not in ("cpu", "cuda") or type(ranks) is not list or _depth(ranks) > 8:
        raise _damaged(content)
    try:
        return Placement(device_type, ranks)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        raise _damaged(content) from None


def _depth(value: Any) -> int:
    depth = 0
    while type(value) is list and value and depth < 10:
        value, depth = value[0], depth + 1
    return depth


_SBP: dict[str, sbps.sbp] = {
    "B": sbps.broadcast,
    "P": sbps.partial_sum,
    **{f"S({dim})": sbps.split(dim) for dim in range(6)},
}


def sbp_named(content: Any) -> sbps.sbp:
    """Return the SBP of a name from a file."""
    if type(content) is not str or content not in _SBP:
        raise _damaged(content)
    return _SBP[content]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": _float,
    "complex": _complex,
    "bytes": _bytes,
    "size": lambda content: torch.Size(counts(content)),
    "dtype": dtype_named,
    "device": _device,
    "placement": decode_placement,
    "sbp": sbp_named,
}
