"""Compiled regions on disk: a second process loads the machine code instead of lowering the region again.

`request_for` gives a region its key, `load` returns the function of an entry, `keep` writes one. See store.py
for who may write there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from ...._kernels import _ext
from ...program.dimension_guards import DimensionGuards
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
from .store import default_store


@dataclass(frozen=True)
class Request:
    """A region that may be compiled, and everything else that decides its machine code."""

    record: dict
    environment: dict
    region_key: str = field(init=False)  # of the region alone
    key: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "region_key", _digest(self.record))
        object.__setattr__(self, "key", _digest([self.region_key, self.environment]))


@dataclass(frozen=True)
class Binary:
    """The machine code of a region: the path of the library, and what is needed to call it."""

    record: dict
    library: Path


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def request_for(module, infos, options) -> Request | None:
    """Return the request for a region on the CPU, or None if its key could not tell it from another one."""
    infos_of_results = (n.meta.get("tensor") for n in module.graph.nodes)
    if any(i is not None and i.device.type != "cpu" for i in (*infos, *infos_of_results)):
        return None
    try:
        return Request(record_of(module, infos, options), environment())
    except NotCacheable:
        return None


def load(request: Request, store=None):
    """Return the function of the region if the cache has its binary, else None."""
    store = store or default_store()
    return store and load_entry(store, request.key)


def load_entry(store, key: str):
    """Return the function of an entry of a store, or None. An entry that cannot be loaded is removed."""
    entry = store.find(key)
    if entry is None:
        return None
    try:
        return function_of(Binary(entry.record, entry.library))
    except (ImportError, LookupError, AttributeError, TypeError, ValueError, RuntimeError):
        store.remove(entry)
        return None


def function_of(binary: Binary):
    """Return the function of a binary. It has the layouts of its results as `layouts`."""
    record = binary.record
    for target, results in record["known_operators"]:
        known_operator(target_of(target), _decode_results(results))
    if record["calls_kernels"]:
        _ext.status()  # registers them
    constants = [decode_tensor(c) for c in record["constants"]]
    function = load_library(binary.library, record["library"], constants)
    guards = decode_guards(record["guards"])
    if guards is not None:
        function = with_sizes(function, record["sizes"])
    function.guards = guards
    function.layouts = [decode_info(info) for info in record["results"]]
    function.binary = binary
    return function


def is_kept(request: Request) -> bool:
    """Whether the user's cache has the binary of a region."""
    store = default_store()
    return store is not None and store.find(request.key) is not None


def copy(request: Request, target) -> bool:
    """Copy the binary of a region from the user's cache into another store. Return False if there is none."""
    store = default_store()
    entry = store and store.find(request.key)
    if entry is None:
        return False
    target.put(entry.key, entry.record, entry.library.read_bytes())
    return True


def keep(request: Request, built: Built, name: str, seconds: float, store=None) -> None:
    """Write the binary of a region that was compiled in this process. A full disk only costs the entry."""
    store = store or default_store()
    if store is None:
        return
    try:
        store.put(request.key, record_for(request, built, name, seconds), built.library.read_bytes())
    except (NotCacheable, OSError):
        pass


@dataclass(frozen=True)
class Built:
    """What a compilation leaves: the file of the library, the constants that it reads, infos of its results,
    the operators with known results that it calls, and whether it calls this package's kernels.

    Of a region with symbols also the guards of the code, and the sizes that it takes as inputs before the
    tensors: (input, dimension) of each.
    """

    library: Path
    constants: list
    results: list
    known_operators: list
    calls_kernels: bool
    guards: DimensionGuards | None = None
    sizes: tuple = ()


def record_for(request: Request, built: Built, name: str, seconds: float) -> dict:
    """Return the record of an entry: what `function_of` reads, and what a reader of the folder wants."""
    return {
        "program": name,
        "operators": sum(node[0] == "call_function" for node in request.record["nodes"]),
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


def _encode_results(results):
    """Return infos of results as JSON: an info is a list, several results are {"results": [...]}."""
    if results is None:
        return None
    return (
        encode_info(results) if hasattr(results, "stride") else {"results": [*map(_encode_results, results)]}
    )


def _decode_results(record):
    if record is None:
        return None
    if isinstance(record, dict):
        return tuple(map(_decode_results, record["results"]))
    return decode_info(record)
