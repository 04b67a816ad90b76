"""Turn what a context has noted into the guards that the program keeps, once build() has returned."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..code_origins import is_of_this_package
from ..guards.counters import Counter
from ..guards.failure import failure_of
from ..guards.guard import Guard
from ..guards.observed import Observed
from ..guards.places import number_source
from ..guards.sources import CONTENTS, OF_CAPTURE, Contains, Item, Mode, hold_weakly
from ..guards.values import WEAK_CONTAINERS, is_a, is_fake, is_plain, is_same_plain
from ..program.python_values import MISSING
from .hooks.new_dicts import with_ages_of_dicts
from .hooks.writes import Write, undo
from .instrumentation.policy import fills_for_good, is_of_the_capture
from .outliving import guards_of_lasting, outliving
from .repeated_writes import RepeatedWrites

if TYPE_CHECKING:
    from .hooks.reads import Reads
    from .instrumentation.instrument import Site


_TRAINING = sys.intern("training")


class Settling:
    """The end of one context of the observer: which guards hold from the next call on.

    A guard stays if its source holds the value of before build(), or what each run puts there. A source that
    build() filled in for good gets a guard of its new value. Any other change ends the program with its call.
    """

    def __init__(
        self,
        reads: Reads,
        numbers: Mapping[tuple[int, Any], int | float],
        returned: set[int],
        ids_made_by_build: Callable[[], set[int]],
        repeats_stores: bool,
    ) -> None:
        """`numbers`: the inputs of the program, by (id(owner), key or None for a variable).

        `returned`: ids of the containers that build() returns. `repeats_stores`: whether each run stores
        outside what build() stored there.
        """
        self.reads, self.numbers, self.returned = reads, numbers, returned
        self._ids_made_by_build = ids_made_by_build
        self._caches: list[Any] = []  # objects that keep what the first call puts there
        self._followed: set[tuple[int, Any]] = set()  # (id(dict), key) that stay as the first call left them
        self._repeated = RepeatedWrites(reads, returned, self._followed) if repeats_stores else None
        self._changed: list[Guard] = []  # of what build() reads and then changes itself
        # what only a refusal takes back: filled caches, and changes of code that is not observed
        self._filled: list[Write] = []
        self._unnoted: list[Guard] = []
        self._objects_of_build: set[int] = set()  # ids of the objects that build() made

    def observed(
        self, replayed: Iterable[tuple[int, Any]], modes: Iterable[int], has_numbers: bool
    ) -> Observed:
        """Return the guards that the program keeps, and what no guard follows. See `Observer.finish`."""
        reads = self.reads
        replayed = {*replayed, *self.numbers}
        self._leave_out_numbers()
        dicts_of_modules = _ids_of_attribute_dicts(reads.notes.objects, modes)
        guards = self._guards_of_objects_outside()
        objects_of_build = self._objects_of_build = self._objects_made()
        snapshots = dict(reads.writes.snapshots)
        if self._repeated is not None:
            self._repeated.objects_of_build = objects_of_build
            self._repeated.keys_read = {(id(g.owner), g.source.key) for g in guards}
        opaque = self._opaque(objects_of_build, replayed, has_numbers)
        pinned = reads.notes.pinned | self._with_instances(owner for owner, _ in replayed)
        unfollowed = [(site, what) for (_, what), site in reads.notes.unfollowed.items()]
        written = {(owner, source.key) for source, owner in reads.notes.written if isinstance(source, Item)}
        reads.notes.guards, reads.notes.objects, reads.notes.opaque, reads.writes.noted = {}, {}, [], []
        reads.notes.seen.clear()
        reads.writes.snapshots.clear()
        self._filled = reads.writes.take_filled(objects_of_build)
        gc.collect(0)
        guards, opaque = outliving(guards, opaque, objects_of_build)
        kept, filled = self._settled(guards, dicts_of_modules, replayed, opaque)
        # the collector lists a dict of numbers only once it gets another object, so its age says nothing
        opaque[:] = [e for e in opaque if id(e[0]) not in objects_of_build or e[3:] and type(e[0]) is dict]
        writes = [write for *_, write in opaque if isinstance(write, Write)]
        unfollowed += [(site, what) for _, site, what, *write in opaque if not write]
        opaque.clear()  # its tuples would count as holders of the objects
        filled = guards_of_lasting(
            filled, self._caches, objects_of_build, reads.notes.attribute_dicts, snapshots
        )
        writes = self._of_lasting_objects(writes, objects_of_build, snapshots)
        hold_weakly(kept, reads.notes.weak)
        reads.notes.weak.clear()
        numbers = map(number_source, self._changed)
        result = Observed(
            tuple(kept),
            frozenset(pinned),
            tuple(unfollowed),
            numbers_changed=tuple(number for number in numbers if number is not None),
            argument_facts=tuple(reads.tensors.argument_facts.values()),
        )
        if reads.notes.ends_capture:
            result = self._ending_with_changes(result, writes, written, replayed)
        self._caches.clear()
        # what each run stores again was taken back just now, so it keeps no number
        kept_number = self._kept_number(writes, replayed) if has_numbers else None
        ending = failure_of(filled[0]) if filled else result.ending
        return replace(result, ending=ending, kept_number=kept_number)

    def _leave_out_numbers(self) -> None:
        """Forget the symbols that the capture put in the places of numbers."""
        writes = self.reads.writes
        noted = (write for write in writes.noted if not write.is_at(self.numbers))
        writes.noted = [write.without_symbols(self.numbers) for write in noted]

    def _guards_of_objects_outside(self) -> list[Guard]:
        """Return the guards, without those of modules that build() made and of tensors of the capture."""
        notes = self.reads.notes
        created = _ids_of_attribute_dicts(notes.objects, notes.made) | notes.made
        guards = (guard for guard in notes.guards.values() if id(guard.owner) not in created)
        return [guard for guard in guards if not _is_made_of_fakes(guard.owner)]

    def _kept_number(self, writes: Iterable[Write], replayed: Any) -> tuple[Site, str] | None:
        """Return (site, what it is) of a number that only a run knows and no run puts there, or None."""
        kept = None
        for write in writes:
            if id(write.owner) not in self.reads.notes.twins and write.keeps_a_number(replayed):
                kept = write.site, write.what
        return kept

    def _objects_made(self) -> set[int]:
        """Return the ids of the objects that build() made, dicts of constants included."""
        reads = self.reads
        own = {*map(id, vars(self).values()), *reads.ids_of_own_containers()}
        own |= reads.notes.complete  # step() may have put a dict there meanwhile: writes there are not noted
        return with_ages_of_dicts(
            self._ids_made_by_build(), reads.writes.noted, reads.notes.attribute_dicts, own
        )

    def _with_instances(self, owners: Iterable[int]) -> set[int]:
        """Return the ids of owners, and of the objects whose attributes are in those that are dicts."""
        ids = {*owners}
        instances = self.reads.notes.attribute_dicts
        return ids | {instances[owner] for owner in ids & instances.keys()}

    def _opaque(self, objects_of_build: set[int], replayed: Any, has_numbers: bool) -> list[Any]:
        """Return (object, site, what it is), perhaps with a Write, of what no guard follows."""
        reads = self.reads
        opaque = [entry for entry in reads.notes.opaque if not _is_made_of_fakes(entry[0])]
        if not reads.notes.ends_capture:
            keeping = (
                write for write in reads.writes.noted if has_numbers and write.keeps_a_number(replayed)
            )
            return opaque + [(write.owner, write.site, write.what, write) for write in keeping]
        older = [write for write in reads.writes.noted if id(write.owner) not in objects_of_build]
        repeated = self._taken_back(older, replayed, guards_are_settled=False)
        others = (write for write in reads.writes.noted if id(write) not in repeated)
        return opaque + [(write.owner, write.site, write.what, write) for write in others]

    def _of_lasting_objects(
        self, writes: list[Write], objects_of_build: set[int], snapshots: dict[int, Any]
    ) -> list[Write]:
        """Leave out the writes to objects that each call of build() makes anew."""
        guards = [Guard(CONTENTS, write.owner, None, None, write.site) for write in writes]
        attribute_dicts = self.reads.notes.attribute_dicts
        guards = guards_of_lasting(guards, self._caches, objects_of_build, attribute_dicts, snapshots)
        lasting = {id(guard.owner) for guard in guards}
        return [write for write in writes if id(write.owner) in lasting]

    def _taken_back(self, writes: Iterable[Write], replayed: Any, guards_are_settled: bool) -> set[int]:
        """Take back the changes that each run makes as build() did, and return the ids of their writes."""
        if self._repeated is None:
            return set()
        return self._repeated.take_back(writes, replayed, guards_are_settled)

    def _ending_with_changes(
        self, result: Observed, writes: list[Write], written: set[Any], replayed: Any
    ) -> Observed:
        """Let a program serve one call if it does not repeat what build() changes. Guard other writes."""
        caches = {id(cache) for cache in self._caches if not is_a(cache, WEAK_CONTAINERS)}
        writes = [write for write in writes if id(write.owner) not in caches]
        repeated = self._taken_back(writes, replayed, guards_are_settled=True)
        stores = self._repeated.take_stores() if self._repeated is not None else ()
        pinned = self._with_instances(id(store.owner) for store in stores)
        pinned |= self._with_instances(older for store in stores for older in store.older)
        writes = [write for write in writes if id(write) not in repeated]
        guards, changed = self._guards_of_writes(writes, result.guards, written, replayed)
        unfollowed = [*result.unfollowed, *changed]
        undoing = [write.settled() for write in (*writes, *self._filled, *map(Write.of_guard, self._unnoted))]
        result = replace(
            result,
            guards=(*result.guards, *guards),
            pinned=result.pinned | pinned,
            stores=stores,
            undo_writes=functools.partial(undo, undoing, self.reads.writes.caches_before),
        )
        return result.ending_at(unfollowed[0]) if unfollowed else result

    def _guards_of_writes(
        self, writes: list[Write], guards: Iterable[Guard], written: set[Any], replayed: Any
    ) -> tuple[list[Guard], list[tuple[Site, str]]]:
        """Return guards of what the writes left, and (site, what it is) of those that changed something."""
        counters = (guard for guard in guards if isinstance(guard.source, Counter))
        counted = {(id(guard.owner), guard.source.key.key) for guard in counters}
        followed = counted | {*replayed} | self._followed
        is_followed = lambda owner, key: (owner, key) in followed
        left: list[Guard] = []
        unfollowed: list[tuple[Site, str]] = []
        for write in writes:
            if id(write.owner) in self.reads.notes.complete or write.counts(counted):
                continue
            if write.changed(is_followed):
                unfollowed.append((write.site, write.what))
            elif not self._is_appended_to(write.owner, replayed):
                left += write.guards(written, is_followed)
        return left, unfollowed

    def _is_appended_to(self, owner: Any, replayed: Iterable[tuple[int, Any]]) -> bool:
        """Whether build() only appended to a list, which each run does and which is put back already."""
        keys = [key for container, key in replayed if container == id(owner)]
        if not keys or not is_a(owner, list) or id(owner) in self.reads.writes.rearranged:
            return False
        return all(type(key) is int and key >= len(owner) for key in keys)

    def _settled(
        self, guards: list[Guard], dicts_of_modules: set[int], replayed: object, opaque: list[Any]
    ) -> tuple[list[Guard], list[Guard]]:
        """Return the guards that the program keeps, and those of sources that build() filled in.

        Add what build() reads and changes to `opaque`.
        """
        kept: list[Guard] = []
        filled: list[Guard] = []
        for guard in guards:
            if id(guard.owner) in self.reads.notes.complete:
                kept.append(guard)
                continue
            is_mode = isinstance(guard.source, Item) and guard.source.key is _TRAINING
            if is_mode and id(guard.owner) in dicts_of_modules:
                guard.source = Mode(_TRAINING)
            self._settle(guard, replayed, kept, filled, opaque)
        return kept, filled

    def _settle(self, guard: Any, replayed: Any, kept: Any, filled: Any, opaque: Any) -> None:
        """Keep a guard, unless build() itself changed its source in another way than the program does.

        `filled` gets the guard of a source that build() filled in where it found nothing, and of a flag that
        it switched. Most such values are final, so the next call finds that out with a program of its own.
        """
        if _is_symbolic(guard.value):
            return
        if guard.value is OF_CAPTURE or is_of_the_capture(guard.value):
            guard.value = OF_CAPTURE
            kept.append(guard)
            return
        current = guard.current()
        if _is_replayed(guard, replayed):
            kept.append(guard)
            self._changed.append(guard)
        elif _is_equal(guard.value, current):
            kept.append(guard)
        elif _is_empty_or_flag(guard.value):
            self._settle_filled(guard, current, kept, filled)
        elif is_a(guard.owner, WEAK_CONTAINERS) and id(guard.owner) not in self.reads.values.read_whole:
            # a cache of results, filled by the first call
            guard.value = current
            self._caches.append(guard.owner)
            kept.append(guard)
        elif guard.site is None or not (guard.site.counts or is_of_this_package(guard.site.code.co_filename)):
            if _is_empty_dict(guard) and id(guard.owner) not in self._objects_of_build:
                filled.append(guard)
                return
            what = f"a value that build() reads and then changes itself ({guard.label})"
            opaque.append((guard.owner, guard.site, what))
            self._changed.append(guard)
            if guard.source is CONTENTS:
                self._unnoted.append(guard)
        else:  # it counts by a number that only a run knows
            self._changed.append(guard)

    def _settle_filled(self, guard: Any, current: Any, kept: Any, filled: Any) -> None:
        """Keep the guard of a source that build() filled in, with its new value, if that is final."""
        if _is_symbolic(current):
            return
        if _is_cached_tensor(guard) or guard.site is not None and fills_for_good(guard.site.code):
            _take_value_of_first_call(guard, current)
            self._caches.append(guard.value)
            self._followed.add((id(guard.owner), guard.source.key))
            kept.append(guard)
        else:
            filled.append(guard)


def _ids_of_attribute_dicts(objects: dict[int, Any], keys: Iterable[int]) -> set[int]:
    """Return the ids of the attribute dicts of these objects, which are named by their ids."""
    return {id(vars(objects[key])) for key in keys if key in objects}


def _is_empty_or_flag(value: object) -> bool:
    return value is MISSING or value is None or type(value) is bool


def _is_empty_dict(guard: Any) -> bool:
    """Whether build() asked for the contents of a dict that had none."""
    return guard.source is CONTENTS and guard.value == () and is_a(guard.owner, dict)


def _is_cached_tensor(guard: Any) -> bool:
    """Whether build() put a tensor into a dict where it found no such key."""
    is_new_key = isinstance(guard.source, Contains) and guard.current()
    return is_new_key and _is_symbolic(dict.get(guard.owner, guard.source.key))


def _take_value_of_first_call(guard: Any, current: Any) -> None:
    """Guard what the first call filled in, because the next ones read it."""
    if isinstance(guard.source, Contains) and current:
        guard.source = Item(guard.source.key)
        current = guard.current()
    guard.value = current


def _is_replayed(guard: Any, replayed: Any) -> bool:
    """Whether the program assigns the source, or an element of the container, in each call."""
    if (id(guard.owner), guard.source.key) in replayed:
        return True
    return guard.source is CONTENTS and any(owner == id(guard.owner) for owner, _ in replayed)


def _is_equal(old: object, new: object) -> bool:
    if old is new:
        return True
    if type(old) is tuple and type(new) is tuple:
        return len(old) == len(new) and all(map(_is_equal, old, new))
    return is_plain(old) and is_same_plain(old, new)


def _is_made_of_fakes(owner: Any) -> bool:
    """Whether the owner is a fake tensor, or a tuple with some, as a PackedSequence that build() made.

    A tensor of vmap() or grad() lives in build() only, and has no memory that a guard could compare.
    """
    if is_a(owner, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(owner):
        return True
    return any(map(_is_symbolic, owner)) if is_a(owner, tuple) else _is_symbolic(owner)


def _is_symbolic(value: object) -> bool:
    if type(value) is tuple:
        return any(map(_is_symbolic, value))
    return is_fake(value) or is_a(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
