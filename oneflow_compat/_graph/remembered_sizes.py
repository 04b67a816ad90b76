"""Dimensions that varied in an earlier process, noted beside the compiled programs on disk.

Without a note, the first call of a new process gets a static program, although the cache has a program with
symbols that serves the call. A note names the dimensions that varied, with the sizes of the static program.
A call at these sizes gets the static program again. A call at other sizes gets symbols at once.

A note decides only which dimensions are symbols, and each program has its own guards. So a note about code
that has changed since may cost a compilation, but never changes a result.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Hashable
from types import CodeType
from typing import TYPE_CHECKING, Any

from .capture.state_map import resolve
from .compile.program_cache.store import default_folder, default_store

if TYPE_CHECKING:
    from .capture.interfaces import EngineInterface

BACKENDS = ("inductor", "auto")  # that keep compiled programs on disk


def recall(engine: EngineInterface, family: Hashable) -> list[dict[int, int]] | None:
    """Return {dimension: size} of each tensor argument: the dimensions that varied, and their sizes in the
    static program. None if nothing is noted for these calls.
    """
    store = default_store() if default_folder().is_dir() else None
    note = store.find_note(_key(engine, family)) if store is not None else None
    try:
        return None if note is None else [{int(d): int(n) for d, n in rows} for rows in note["sizes"]]
    except (KeyError, TypeError, ValueError):  # a damaged note
        return None


def remember(engine: EngineInterface, family: Hashable, sizes: list[dict[int, int]]) -> None:
    """Note the dimensions that varied, and their sizes in the static program."""
    store = default_store()
    if store is not None and any(sizes):
        store.put_note(_key(engine, family), {"sizes": [sorted(rows.items()) for rows in sizes]})


def _key(engine: EngineInterface, family: Hashable) -> str:
    """Return a digest of the build function, the tensors of its modules, and its arguments without sizes."""
    build = inspect.unwrap(engine.build)
    code = getattr(build, "__code__", None)
    description = [
        f"{type(engine.owner).__module__}.{type(engine.owner).__qualname__}",
        f"{build.__module__}.{getattr(build, '__qualname__', '')}",
        None if code is None else _content(code),
        [
            (name, path, tuple(tensor.shape), str(tensor.dtype))
            for name, module in resolve(engine.modules).items()
            for path, tensor in (*module.named_parameters(), *module.named_buffers())
        ],
        family,
    ]
    return hashlib.sha256(repr(description).encode()).hexdigest()


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return what a function does, without the position of its code."""
    constants = (_content(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, *constants
