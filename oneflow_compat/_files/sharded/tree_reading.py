"""The values of a tree from a stranger's file: only the types of trees.py, each checked while it is read."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Collection
from typing import Any

import torch

from ... import sbp as sbps
from ..._file_safety.budget import Budget
from ..._file_safety.errors import CheckpointError
from ..._file_safety.shown import shown
from ..._global.placement import placement as Placement
from .trees import DEPTH, LEAVES, MAPPINGS, SEQUENCES, Path, path_name


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
        # one leaf for each stored tensor, so that tied parameters are one object
        self._leaves: dict[Any, torch.Tensor] = {}
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
        type_name, content = next(iter(tree.items()))
        if type_name == "ranks":
            self._differs += 1
            value = self.decode(self._of_rank(tree, path), path)
            self._differs -= 1
            return value
        if type_name in LEAVES:
            return self._leaf(type_name, tree, path)
        if type_name in MAPPINGS:
            return self._mapping(type_name, tree, path)
        if len(tree) != 1:
            raise _damaged(tree)
        if type_name in SEQUENCES:
            return self._sequence(type_name, content, path)
        if type_name not in _DECODERS:
            raise CheckpointError(f"altered, or of a newer version: a value of the type {shown(type_name)}")
        return _DECODERS[type_name](content)

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

    def _leaf(self, type_name: str, tree: Any, path: Path) -> Any:
        name = tree[type_name]
        flags = {k: v for k, v in tree.items() if k != type_name}
        is_known = type_name == "tensor" and flags.keys() <= {"parameter", "requires_grad"} or not flags
        if type(name) is not str or not is_known or any(v is not True for v in flags.values()):
            raise _damaged(tree)
        tensor = self._tensor_of(name, path, type_name != "tensor" or self._differs > 0)
        if type_name != "tensor":
            return _array(tensor, type_name)
        if id(tensor) in self._targets or not flags:
            return tensor
        key = (id(tensor), *flags)
        if key not in self._leaves:
            self._leaves[key] = _with_flags(tensor, flags)
        return self._leaves[key]

    def _mapping(self, type_name: str, tree: Any, path: Path) -> Any:
        content = tree[type_name]
        allowed = {type_name, "metadata"} if type_name == "OrderedDict" else {type_name}
        if type(content) is not list or not tree.keys() <= allowed:
            raise _damaged(tree)
        out: Any = MAPPINGS[type_name]()
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

    def _sequence(self, type_name: str, content: Any, path: Path) -> Any:
        if type(content) is not list:
            raise _damaged(content)
        items = [self.decode(item, (*path, i)) for i, item in enumerate(content)]
        if type_name != "tuple":
            for item in items:
                self._budget.check_key(item)
        return SEQUENCES[type_name](items)


def _with_flags(tensor: torch.Tensor, flags: dict[str, Any]) -> torch.Tensor:
    requires_grad = "requires_grad" in flags
    if requires_grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise CheckpointError(f"altered: a tensor of {tensor.dtype} requires a gradient")
    if "parameter" in flags:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.detach().requires_grad_(requires_grad)


def _damaged(tree: object) -> CheckpointError:
    return CheckpointError(f"altered, or of a newer version: {shown(tree)} is no value of the object")


def _array(tensor: torch.Tensor, type_name: str) -> Any:
    if tensor.dtype not in _NUMPY:
        raise CheckpointError(f"altered: a NumPy value of {tensor.dtype}")
    array = tensor.numpy()
    return array if type_name == "array" else array[()]


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
