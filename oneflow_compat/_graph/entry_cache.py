"""The programs of one graph, by the signature of a call; the program of the last call is tried first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from .branch_search import MAX_BRANCHED
from .capture.build import check_leaves
from .compile import compiling
from .program.pytree import tree_flatten
from .signature import signature, with_autocast

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from .agreement import Found
    from .assumptions import Assumptions
    from .call.entry import Entry
    from .signature import Signature


_MAX_VARIANTS = 4
_MAX_DYNAMIC = 64  # programs that serve many sizes, each of them another set


class EntryCache:
    """The entries of one graph. A signature has one for each outcome of guards and options.

    The key of a program that serves many sizes is the signature without sizes (`ArgumentSizes.key_of`).
    """

    def __init__(self, assumptions: Assumptions) -> None:
        self.last: Entry | None = None  # the entry that the last call used
        self._assumptions = assumptions
        self._entries: OrderedDict[Hashable, list[Entry]] = OrderedDict()
        self._has_dynamic = False  # whether some program serves many sizes

    @property
    def entries(self) -> list[Entry]:
        """All entries, those of the signature that was used last at the end."""
        return [entry for variants in self._entries.values() for entry in variants]

    @property
    def recent_first(self) -> list[Entry]:
        return [entry for variants in reversed(self._entries.values()) for entry in variants]

    def clear(self) -> None:
        self._entries.clear()
        self.last = None

    def fitting(self, key: Signature, leaves: Sequence[Any]) -> Found | None:
        """Return the entry that serves the call, and the values of its slots, or None."""
        for entry in self.variants(key):
            if self._takes_same_branches(entry):
                values = entry.values(leaves)
                if values is not None:
                    return entry, values
        return None

    def variants(self, key: Signature) -> list[Entry]:
        """Return the entries of a signature: those of its sizes, then those of all sizes."""
        of_all_sizes = (
            self._entries.get(self._assumptions.argument_sizes.key_of(key), []) if self._has_dynamic else []
        )
        return [*self._entries.get(key, ()), *of_all_sizes]

    def _takes_same_branches(self, entry: Entry) -> bool:
        """Whether the program takes the branches on sizes that the last call took."""
        assumed = self._assumptions.branches
        return not assumed or all(
            entry.branches.get(branch, outcome) == outcome for branch, outcome in assumed.items()
        )

    def keep(self, entry: Entry, most_keys: int) -> None:
        """Put an entry in front of the others of its key. Evict those that are too many."""
        if entry.program.dimensions is not None:
            self._has_dynamic = True
        variants = self._entries.setdefault(entry.key, [])
        variants[:] = [v for v in variants if v.serves_later_calls]
        variants.insert(0, entry)
        del variants[_most_variants(entry) :]
        self._entries.move_to_end(entry.key)
        while len(self._entries) > max(1, most_keys):
            self._entries.popitem(last=False)
        self.last = entry

    def move_to_front(self, fitting: Found) -> Found:
        """Make the entry that serves a call the first of its key and the last used one."""
        entry = fitting[0]
        with compiling:
            variants = self._entries.get(entry.key, [])
            if entry in variants:
                self._entries.move_to_end(entry.key)
                variants.remove(entry)
                variants.insert(0, entry)
            self.last = entry
        return fitting

    def discard_after(self, before: Entry | None) -> None:
        """Remove the entry that was captured after `before`, and the state that its capture created."""
        entry = self.last
        if entry is not None and entry is not before:
            entry.undo_capture()
            self.remove(entry)
            self.last = before

    def remove(self, entry: Entry) -> None:
        variants = self._entries.get(entry.key, [])
        if entry in variants:
            variants.remove(entry)
            if not variants:
                del self._entries[entry.key]


def _most_variants(entry: Entry) -> int:
    """Return how many programs of one key are kept."""
    if entry.program.dimensions is not None:
        return _MAX_DYNAMIC
    return MAX_BRANCHED if entry.branches else _MAX_VARIANTS


def key_and_leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, Sequence[Any]]:
    """Return the signature of a call, with the autocast around it, and the flat arguments."""
    try:
        key, leaves = signature(args, kwargs)
    except RuntimeError:  # a nested tensor has no shape
        check_leaves(tree_flatten((args, kwargs))[0], lambda i: f"argument {i}")
        raise
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        key = with_autocast(key)
    return key, leaves
