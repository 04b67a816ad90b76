"""Compiled regions on disk: a second process loads the machine code instead of lowering the region again.

`request_for` returns the keys of a region, `load` the function of an entry, and `keep` writes an entry.
store.py checks who may write there.

A region with symbols has several keys, one for each compiled variant. An entry serves a call whose sizes
satisfy the guards in its record, so the sizes of the call that made it do not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...._kernels import _ext
from ...guards.dimensions import DimensionGuards
from ..inductor.symbols import MAX_VARIANTS
from ..known_operators import known_operator
from .environment import environment
from .library import load_library, with_sizes
from .region_record import (
    NotCacheable,
    decode_guards,
    decode_info,
    decode_tensor,
    encode_guards,
    encode_info,
    encode_tensor,
    record_of,
    target_name,
    target_of,
)
from .store import Entry, Store, default_store

if TYPE_CHECKING:
    from ...program.tensor_info import TensorInfo
    from ..inductor.regions import CompiledRegion, Region
    from ..known_operators import KnownOperator, KnownResult


@dataclass(frozen=True)
class Request:
    """A region that may be compiled, and everything else that decides its machine code."""

    record: dict[str, Any]
    environment: dict[str, Any]
    region_key: str = field(init=False)  # key of the region alone, without the sizes of the call
    keys: tuple[str, ...] = field(init=False)  # keys of the variants; a region without symbols has one

    def __post_init__(self) -> None:
        guards = self.record["guards"]
        symbols = guards and {**guards, "symbols": [row[:-1] for row in guards["symbols"]]}
        key = _digest({**self.record, "guards": symbols})
        object.__setattr__(self, "region_key", key)
        variants = range(MAX_VARIANTS if guards else 1)
        object.__setattr__(self, "keys", tuple(_digest([key, self.environment, i]) for i in variants))

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the symbols for which the region is compiled, or None without symbols."""
        guards = self.record["guards"]
        return guards and tuple(row[-1] for row in guards["symbols"])

    def at(self, sizes: tuple[int, ...]) -> Request:
        """Return the request for the same region at other sizes."""
        guards = self.record["guards"]
        symbols = [[*row[:-1], size] for row, size in zip(guards["symbols"], sizes)]
        return replace(self, record={**self.record, "guards": {**guards, "symbols": symbols}})


@dataclass(frozen=True)
class Binary:
    """The machine code of a region: the path of the library, and what is needed to call it."""

    record: dict[str, Any]
    library: Path


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def request_for(
    module: Region, infos: list[TensorInfo], options: dict[str, Any] | tuple[Any, ...]
) -> Request | None:
    """Return the request for a region on the CPU, or None if its key could not tell it from another one."""
    infos_of_results = (n.meta.get("tensor") for n in module.graph.nodes)
    if any(i is not None and i.device.type != "cpu" for i in (*infos, *infos_of_results)):
        return None
    try:
        return Request(record_of(module, infos, options), environment())
    except NotCacheable:
        return None


def find(request: Request, store: Store) -> Entry | None:
    """Return the entry of a store that serves the region at its sizes, or None."""
    return next((entry for _, entry in _entries(request, store) if _serves(entry, request.sizes)), None)


def _entries(request: Request, store: Store) -> Iterator[tuple[str, Entry]]:
    """Return (key, entry) of each variant of the region in a store."""
    entries = ((key, store.find(key)) for key in request.keys)
    return ((key, entry) for key, entry in entries if entry is not None)


def _serves(entry: Entry, sizes: tuple[int, ...] | None) -> bool:
    try:
        guards = decode_guards(entry.record["guards"])
    except (LookupError, TypeError, ValueError):  # the record is damaged
        return False
    return guards is None or sizes is not None and guards.serves(sizes)


def load(request: Request, store: Store | None = None) -> CompiledRegion | None:
    """Return the function of the region if the cache has a binary for its sizes, else None."""
    store = store or default_store()
    entry = find(request, store) if store is not None else None
    return load_entry(store, entry) if store is not None and entry is not None else None


def load_variants(request: Request) -> list[CompiledRegion]:
    """Return the functions of all variants of the region in the user's cache."""
    store = default_store()
    functions = [load_entry(store, entry) for _, entry in _entries(request, store)] if store else []
    return [function for function in functions if function is not None]


def load_entry(store: Store, entry: Entry) -> CompiledRegion | None:
    """Return the function of an entry that the store has checked (`find`), or None. An entry that cannot be
    loaded is removed.
    """
    try:
        return function_of(Binary(entry.record, entry.library))
    except (ImportError, LookupError, AttributeError, TypeError, ValueError, RuntimeError):
        store.remove(entry)
        return None


def function_of(binary: Binary) -> CompiledRegion:
    """Return the function of a binary. It has the layouts of its results as `layouts`."""
    record = binary.record
    for target, results in record["known_operators"]:
        known_operator(target_of(target), _decode_results(results))
    if record["calls_kernels"]:
        _ext.load()
    constants = [decode_tensor(c) for c in record["constants"]]
    function: Any = load_library(binary.library, record["library"], constants)
    guards = decode_guards(record["guards"])
    if guards is not None:
        function = with_sizes(function, record["sizes"])
    function.guards = guards
    function.layouts = [decode_info(info) for info in record["results"]]
    function.binary, function.library = binary, record["library"]
    region: CompiledRegion = function
    return region


def is_kept(request: Request) -> bool:
    """Whether the user's cache has a binary for a region at its sizes."""
    store = default_store()
    return store is not None and find(request, store) is not None


def copy(request: Request, target: Store) -> None:
    """Copy the binaries of a region from the user's cache into another store."""
    store = default_store()
    for key, entry in _entries(request, store) if store else ():
        target.put(key, entry.record, entry.library.read_bytes())


def keep(request: Request, built: Built, name: str, seconds: float, store: Store | None = None) -> str | None:
    """Write the binary of a region that was compiled in this process. Return its SHA-256 if it is kept.

    A full disk only costs the entry.
    """
    store = store or default_store()
    if store is None:
        return None
    others = {key for key, entry in _entries(request, store) if not _serves(entry, request.sizes)}
    key = next((key for key in request.keys if key not in others), request.keys[-1])
    try:
        return store.put(key, record_for(request, built, name, seconds), built.library.read_bytes())
    except (NotCacheable, OSError):
        return None


@dataclass(frozen=True)
class Built:
    """What a compilation leaves: the file of the library, the constants that it reads, infos of its results,
    the operators with known results that it calls, and whether it calls this package's kernels.

    Of a region with symbols also the guards of the code, and the sizes that it takes as inputs before the
    tensors: (input, dimension) of each.
    """

    library: Path
    constants: list[torch.Tensor]
    results: list[TensorInfo]
    known_operators: list[KnownOperator]
    calls_kernels: bool
    guards: DimensionGuards | None = None
    sizes: tuple[tuple[int, int], ...] = ()


def record_for(request: Request, built: Built, name: str, seconds: float) -> dict[str, Any]:
    """Return the record of an entry: what `function_of` reads, and what a reader of the folder wants."""
    return {
        "program": name,
        "operators": sum(node["op"] == "call" for node in request.record["nodes"]),
        "seconds": round(seconds, 1),
        "region": request.region_key,
        "environment": request.environment,
        "results": [encode_info(info, built.guards is not None) for info in built.results],
        "guards": encode_guards(built.guards),
        "sizes": list(built.sizes),
        "constants": [encode_tensor(c) for c in built.constants],
        "known_operators": [
            [target_name(target), _encode_results(results)] for target, results in built.known_operators
        ],
        "calls_kernels": built.calls_kernels,
    }


def _encode_results(results: KnownResult) -> list[Any] | dict[str, Any] | None:
    """Return infos of results as JSON: an info is a list, several results are {"results": [...]}."""
    if results is None:
        return None
    return (
        encode_info(results) if hasattr(results, "stride") else {"results": [*map(_encode_results, results)]}
    )


def _decode_results(record: list[Any] | dict[str, Any] | None) -> KnownResult:
    if record is None:
        return None
    if isinstance(record, dict):
        return tuple(map(_decode_results, record["results"]))
    return decode_info(record)
