"""Which dimensions of the arguments become symbols.

The first program of a build function is static. A dimension whose size differs in a later call is a symbol in
the next program, which then serves all sizes that satisfy its guards. Sizes of 0 and 1 keep programs of their
own, because torch broadcasts them.

Calls that are alike except for sizes and strides are one *family*: a signature without them.

Notes on disk name the dimensions that varied, with the sizes of the static program. Without a note, the first
call of a new process gets a static program, although the cache has a program with symbols that serves the
call. With a note, a call at these sizes gets the static program again, and a call at other sizes gets symbols
at once. A note decides only which dimensions are symbols, and each program has its own guards. So a
note about code that has changed since may cost a compilation, but never changes a result.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from .._errors import OneFlowError
from .._global.marks import is_global, several
from .capture.state_map import resolve
from .compile.program_cache.store import default_folder, default_store

if TYPE_CHECKING:
    from .config import Dynamic
    from .definition import GraphDefinition
    from .errors import Specialization
    from .signature import Signature


VARIES = object()
Shapes = list[torch.Size | None]  # sizes of the tensor arguments; None if the key of a family has them
ArgumentName = tuple[str, str]  # name of the argument of a leaf, and of the leaf
SymbolicDims = dict[int, set[int]]  # index of a flat argument -> dimensions that are symbols
_MAX_FAMILIES = 256  # a Python number that differs in each call makes a family each time
_MAX_COMPARED = 8  # sizes of a dimension that comparisons fixed, before all its sizes are fixed


@dataclass
class Family:
    """What is known of the sizes of calls that differ in nothing else."""

    # {dimension: size, or VARIES} of each tensor argument; None if its sizes are in the key
    sizes: list[Any]
    initial: list[dict[int, int]]  # {dimension: size of the earliest call} of each tensor argument
    # index of a flat argument -> dimensions that captures needed as numbers
    fixed: dict[int, set[int]] = field(default_factory=dict)
    # (index of a flat argument, dimension) -> how many captures needed a number because a comparison held
    compared: Counter[tuple[int, int]] = field(default_factory=Counter)
    # (position of a tensor argument, dimension) that varied in an earlier process
    remembered: frozenset[tuple[int, int]] = frozenset()
    is_static: bool = False  # symbols could not be captured: each set of sizes gets its own program

    def varied(self) -> list[set[int] | None]:
        """Return the dimensions of each tensor argument that varied. None: its sizes are in the key."""
        return [
            None if sizes is None else {dim for dim, size in sizes.items() if size is VARIES}
            for sizes in self.sizes
        ]

    def fixed_in(self, index: int, excluded: Collection[tuple[int, int]]) -> set[int]:
        """Return the dimensions of a flat argument that captures need as numbers."""
        return self.fixed.get(index, set()) | {dim for i, dim in excluded if i == index}


class ArgumentSizes:
    """The families of one engine."""

    def __init__(self) -> None:
        self.families: dict[Hashable, Family] = {}  # key -> Family

    def key_of(self, signature: Signature) -> Signature:
        """The key of the family: the signature without sizes and strides."""
        if signature and signature[0] == "autocast":
            return (*signature[:-1], self.key_of(signature[-1]))
        return ("any sizes", *(_without_sizes(entry) for entry in signature))

    def symbolic_dims(
        self,
        signature: Signature,
        leaves: Sequence[object],
        dynamic: Dynamic,
        names: Sequence[ArgumentName],
        excluded: Collection[tuple[int, int]] = (),
    ) -> SymbolicDims:
        """Return {index of a flat argument: dimensions that the next program has as symbols}.

        The result is {} for a static program. Notes the sizes of this call. `dynamic` is the option
        config.dynamic; `names` are those of the flat arguments, if that option names some.
        `excluded`: (index, dimension) that this call needs as numbers.
        """
        shapes = shapes_of(signature)
        tensors = [(i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        if dynamic is False or several() or any(is_global(leaf) for _, leaf in tensors):
            return {}
        family = self._note(self.key_of(signature), shapes)
        if family.is_static:
            return {}
        asked = _asked(dynamic, tensors, names)
        dims = {
            index: _symbols_of(tensor, asked_dims | varied, fixed | family.fixed_in(index, excluded))
            for (index, tensor), varied, (asked_dims, fixed) in zip(tensors, family.varied(), asked)
            if varied is not None
        }
        return dims if any(dims.values()) else {}

    def expect(
        self, signature: Signature, recall: Callable[[Signature], list[dict[int, int]] | None]
    ) -> None:
        """Take over the dimensions that varied in an earlier process, before the first call of a family.

        `recall(family)` returns for each tensor argument {dimension: size in the static program}, or None.
        """
        key, shapes = self.key_of(signature), shapes_of(signature)
        rows = recall(key) if key not in self.families else None
        if rows is None or len(rows) != len(shapes):
            return
        for row, shape in zip(rows, shapes):
            if any(dim < 0 or dim >= len(shape or ()) for dim in row):
                return
        family = self._add(key, shapes)
        family.remembered = frozenset((i, dim) for i, row in enumerate(rows) for dim in row)
        for i, dim in family.remembered:
            family.sizes[i][dim] = family.initial[i][dim] = rows[i][dim]

    def varied(self, signature: Signature) -> list[dict[int, int]]:
        """Return for each tensor argument {dimension that varied: the size of the earliest call}."""
        family = self.families[self.key_of(signature)]
        return [
            {dim: initial[dim] for dim, size in (sizes or {}).items() if size is VARIES}
            for sizes, initial in zip(family.sizes, family.initial)
        ]

    def fix(self, signature: Signature, specializations: Sequence[Specialization]) -> list[Specialization]:
        """Note dimensions that a capture needed as numbers. Return those that have no symbol from now on.

        A comparison needs the number for this size only, unless many sizes were compared.
        """
        family = self.families[self.key_of(signature)]
        fixed: list[Specialization] = []
        for item in specializations:
            family.compared[item.argument, item.dim] += item.is_compared
            if not item.is_compared or family.compared[item.argument, item.dim] > _MAX_COMPARED:
                family.fixed.setdefault(item.argument, set()).add(item.dim)
                fixed.append(item)
        return fixed

    def keep_static(self, signature: Signature) -> None:
        """Note that symbols could not be captured for these calls."""
        self.families[self.key_of(signature)].is_static = True

    def _note(self, key: Signature, shapes: Shapes) -> Family:
        family = self.families.get(key)
        if family is None:
            family = self._add(key, shapes)
        for sizes, initial, shape in zip(family.sizes, family.initial, shapes):
            for dim, size in enumerate(shape or ()):
                if size > 1:
                    initial.setdefault(dim, size)
                    if sizes.setdefault(dim, size) != size:
                        sizes[dim] = VARIES
        if any(family.sizes[i][dim] is VARIES for i, dim in family.remembered):
            for i, dim in family.remembered:
                family.sizes[i][dim] = VARIES
        return family

    def _add(self, key: Signature, shapes: Shapes) -> Family:
        sizes: list[Any] = [None if shape is None else {} for shape in shapes]
        family = self.families[key] = Family(sizes, [{} for _ in shapes])
        if len(self.families) > _MAX_FAMILIES:
            del self.families[next(iter(self.families))]
        return family


def _symbols_of(tensor: torch.Tensor, varying: set[int], fixed: set[int]) -> set[int]:
    """Return which of the varying dimensions of a tensor can be symbols now."""
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return set()
    return {dim for dim in varying - fixed if tensor.shape[dim] > 1}


def shapes_of(signature: Signature) -> Shapes:
    """The shape of each tensor argument, or None where the key of its family has it."""
    if signature and signature[0] == "autocast":
        return shapes_of(signature[-1])
    return [
        entry[0] if _has_sizes_and_strides(entry) else None
        for entry in signature
        if type(entry) is tuple and entry and isinstance(entry[0], torch.Size)
    ]


def _has_sizes_and_strides(entry: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether an entry of a signature describes an ordinary tensor, whose sizes may be symbols."""
    return (
        type(entry) is tuple and len(entry) == 5 and type(entry[0]) is torch.Size and type(entry[1]) is tuple
    )


def _without_sizes(entry: Hashable) -> Hashable:
    return (len(entry[0]), *entry[2:]) if _has_sizes_and_strides(entry) else entry


def _asked(
    dynamic: Dynamic, tensors: Sequence[tuple[int, torch.Tensor]], names: Sequence[ArgumentName]
) -> list[tuple[set[int], set[int]]]:
    """Return (dimensions asked to be symbols, dimensions asked to be fixed) of each tensor."""
    by_name = _checked(dynamic, names) if isinstance(dynamic, dict) else {}
    asked = []
    for index, tensor in tensors:
        dims = set(range(tensor.dim())) if dynamic is True else set(by_name.get(index, ()))
        marked = (
            getattr(tensor, "_dynamo_dynamic_indices", ()),
            getattr(tensor, "_dynamo_weak_dynamic_indices", ()),
        )
        fixed = set(getattr(tensor, "_dynamo_static_indices", ()))
        asked.append(({d for d in dims.union(*marked) if d < tensor.dim()}, fixed))
    return asked


def _checked(dims_of: Mapping[str, Iterable[int]], names: Sequence[ArgumentName]) -> dict[int, set[int]]:
    """Return {index of a flat argument: dimensions} of {name: dimensions}."""
    by_index: dict[int, set[int]] = {}
    for name, dims in dims_of.items():
        indices = [i for i, (top, full) in enumerate(names) if name in (top, full)]
        if not indices:
            raise OneFlowError(
                f"config.dynamic names the argument {name!r}; build() was called with"
                f" {', '.join(dict.fromkeys(repr(top) for top, _ in names)) or 'none'}"
            )
        for index in indices:
            by_index.setdefault(index, set()).update(dims)
    return by_index


# --------------------------------------------------------------------------- notes on disk
BACKENDS_WITH_NOTES = ("inductor", "auto")  # backends that keep compiled programs on disk


def remembered_sizes(definition: GraphDefinition, family: Hashable) -> list[dict[int, int]] | None:
    """Return {dimension: size} of each tensor argument: the dimensions that varied, and their sizes in the
    static program. None if nothing is noted for these calls.
    """
    store = default_store() if default_folder().is_dir() else None
    note = store.find_note(_key(definition, family)) if store is not None else None
    try:
        return None if note is None else [{int(d): int(n) for d, n in rows} for rows in note["sizes"]]
    except (KeyError, TypeError, ValueError):  # a damaged note
        return None


def remember_sizes(definition: GraphDefinition, family: Hashable, sizes: list[dict[int, int]]) -> None:
    """Note the dimensions that varied, and their sizes in the static program."""
    store = default_store()
    if store is not None and any(sizes):
        store.put_note(_key(definition, family), {"sizes": [sorted(rows.items()) for rows in sizes]})


def _key(definition: GraphDefinition, family: Hashable) -> str:
    """Return a digest of the build function, the tensors of its modules, and its arguments without sizes."""
    build = inspect.unwrap(definition.build)
    code = getattr(build, "__code__", None)
    description = [
        f"{type(definition.owner).__module__}.{type(definition.owner).__qualname__}",
        f"{build.__module__}.{getattr(build, '__qualname__', '')}",
        None if code is None else _content(code),
        [
            (name, path, tuple(tensor.shape), str(tensor.dtype))
            for name, module in resolve(definition.modules).items()
            for path, tensor in (*module.named_parameters(), *module.named_buffers())
        ],
        family,
    ]
    return hashlib.sha256(repr(description).encode()).hexdigest()


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return what a function does, without the position of its code."""
    constants = (_content(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, *constants
