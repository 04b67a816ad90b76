"""Proofs on disk, beside the compiled regions that they are about.

A proof is a note of the program cache. It holds for one library, on the same machine and with the same
versions and settings.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, fields, replace
from typing import Any

from ..program_cache.environment import environment
from ..program_cache.region_record import NotCacheable
from ..program_cache.store import Store, default_store
from .proof import Difference, Proof

_KIND = "proof"


def load(library: str | None, store: Store | None = None) -> Proof | None:
    """Return the proof of a library, given by its SHA-256, if it was made on this machine with the versions
    and settings of this process. `store`: if it is not the user's cache.
    """
    note = find(library, store) if library else None
    if note is None or note.get("environment") != _environment():
        return None
    try:
        return _decode(note["proof"])
    except (KeyError, TypeError):  # the note is damaged
        return None


def find(library: str, store: Store | None = None) -> dict[str, Any] | None:
    """Return the note about a library, whatever process wrote it."""
    store = store or default_store()
    note = store.find_note(_key_of(library)) if store is not None else None
    return note if note is not None and note.get("kind") == _KIND else None


def keep(library: str | None, proof: Proof, store: Store | None = None) -> None:
    """Write a proof. An older one of the library is replaced."""
    here = _environment() if library is not None else None
    store = store or (default_store() if here is not None else None)
    if store is not None and library is not None and here is not None:
        document = {"kind": _KIND, "environment": here, "time": time.time(), "proof": asdict(proof)}
        store.put_note(_key_of(library), document)


def _key_of(library: str) -> str:
    return hashlib.sha256(f"{_KIND} {library}".encode()).hexdigest()


def _environment() -> str | None:
    """Return a digest of the versions, the machine and the settings, or None if they cannot be told apart."""
    try:
        return hashlib.sha256(json.dumps(environment(), sort_keys=True).encode()).hexdigest()
    except NotCacheable:
        return None


def _decode(document: dict[str, Any]) -> Proof:
    names = {f.name for f in fields(Proof)}
    if set(document) != names:
        raise KeyError("the fields of a proof")
    differences = tuple(Difference(**d) for d in document["differences"])
    return replace(Proof(**document), differences=differences, evidence=tuple(document["evidence"]))
