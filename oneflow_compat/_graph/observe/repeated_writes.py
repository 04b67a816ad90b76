"""The changes of build() that each run makes as build() did.

    self.last = loss.detach()       # each run stores the loss of its call
    history.append(loss.detach())   # each run appends it

They are taken back after build(), because the run that follows makes them, too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hooks.reads import Reads
    from .hooks.writes import Store, Write


class RepeatedWrites:
    """The stores of each run, and whether a run can do what a write of build() did."""

    def __init__(self, reads: Reads, returned: set[int], followed: set[tuple[int, Any]]) -> None:
        """`returned`: ids of the containers that build() returns.

        `followed`: (id(dict), key) that stay as the first call left them; the caller adds to it.
        """
        self.reads, self.returned, self.followed = reads, returned, followed
        self.objects_of_build: set[int] = set()  # ids of the objects that build() made
        # (id(owner), key or None for all of it) of what has guards
        self.keys_read: set[tuple[int, Any]] = set()
        self.stores: list[Store] = []  # what each run does as build() did

    def take_back(
        self, writes: Iterable[Write], replayed: set[tuple[int, Any]], guards_are_settled: bool
    ) -> set[int]:
        """Take back the changes that each run can make, and return the ids of their writes.

        What is stored is noted before any change is taken back, because it may lie in another container that
        build() filled. The collector does not list a new dict of constants.
        """
        repeated: list[Write] = []
        is_followed = lambda owner, key: (owner, key) in replayed or (owner, key) in self.followed
        for write in writes:
            if id(write.owner) in self.reads.notes.complete or not write.changed(is_followed):
                continue
            stores = write.stores(is_followed, self._is_older)
            if stores is not None and self._are_repeatable(write, stores, guards_are_settled):
                self.stores += stores
                repeated.append(write)
        for write in repeated:
            write.settled(is_followed).undo()
        return set(map(id, repeated))

    def take_stores(self) -> tuple[Store, ...]:
        """Return the stores of each run, and keep none, because they refer to what is outside."""
        stores, self.stores = tuple(self.stores), []
        return stores

    def _is_older(self, container: object) -> bool:
        """Whether a container was there before build(). An unwritten dict of constants counts as new."""
        return gc.is_tracked(container) and id(container) not in self.objects_of_build

    def _are_repeatable(self, write: Write, stores: list[Store], guards_are_settled: bool) -> bool:
        """Whether a later call does the same, though it finds what this one stored.

        So build() must not have read it, or return the container itself. A tensor may have been read, if its
        guard is not settled yet and will compare what was there before: the next call reads the new tensor.
        """
        owner = id(write.owner)
        if self._is_in_use(owner) or not all(store.is_possible for store in stores):
            return False
        if any(store.appends for store in stores):
            has_reads = any(read == owner for read, _ in self.keys_read)
            return not has_reads and owner not in self.reads.writes.rearranged
        if not guards_are_settled:
            stores = [store for store in stores if not store.is_state]
        return self.keys_read.isdisjoint((owner, key) for key in write.keys_of(stores))

    def _is_in_use(self, owner: int) -> bool:
        """Whether build() returns the container, or read it where no guard tells."""
        writes = self.reads.writes
        return owner in self.returned or owner in writes.elements_read or writes.has_filled_caches()
