"""Observe what Python reads while build() runs, and turn it into guards."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CAPTURED_AGAIN
from ..program.python_values import MISSING
from .guards.counters import become_counter
from .guards.outliving import MadeByBuild, guards_of_lasting, outliving
from .guards.places import number_source
from .guards.python_guards import PythonGuards
from .guards.sources import (
    CELL,
    CONTENTS,
    OF_CAPTURE,
    SPECIAL_METHODS,
    Contains,
    Guard,
    Item,
    Mode,
    hold_weakly,
)
from .guards.values import WEAK_CONTAINERS, contents, is_a, is_fake, is_input, is_plain, is_same_plain
from .hooks.answers import active_function_modes
from .hooks.entry_points import HOOKS, NOTHING, current
from .hooks.new_dicts import with_ages_of_dicts
from .hooks.reads import Reads
from .hooks.unfollowed import TEXT, calling_site, is_at, is_logging, reads_objects
from .hooks.writes import Store, Write, undo
from .instrumentation.frames import observed_frames
from .instrumentation.policy import (
    Policy,
    fills_for_good,
    is_of_the_capture,
    is_of_this_package,
    policy_of,
)

if TYPE_CHECKING:
    from torch.nn import Module


_TRAINING = sys.intern("training")


def _global_hooks(module: Any) -> dict[str, dict[Any, Any]]:
    """Return the tables of the hooks of all modules, or of all optimizers."""
    names = [name for name in vars(module) if name.startswith("_global_")]
    return {name: hooks for name in names if isinstance(hooks := getattr(module, name), dict)}


class Observer:
    """A context: notes what build() reads. `finish()` gives the guards of later calls."""

    _is_of_build = True  # whether each call repeats the steps of counters, and what is stored outside

    def __init__(
        self,
        active: Callable[..., Any],
        on_module: Callable[[Module], None],
        ends_capture: bool,
        owners: Sequence[Any] = (torch.nn.modules.module,),
    ) -> None:
        """`ends_capture`: what no guard can follow raises, and a change that no program repeats lets the
        program serve one call. Otherwise both are reported.

        `owners`: the modules with the tables of hooks that apply to all objects of a kind.
        """
        self.reads = Reads(active, on_module, ends_capture)
        self.takes_back = False  # whether every error takes back what build() changed
        self.made_by_build: Any = None  # MadeByBuild, from the first use on
        self._caches: list[Any] = []  # objects that keep what the first call puts there
        self._followed: set[tuple[int, Any]] = set()  # (id(dict), key) that stay as the first call left them
        # (id(owner), key or None for all of it) of what has guards
        self._keys_read: set[tuple[int, Any]] = set()
        self._stores: list[Store] = []  # what each run does as build() did
        # the numbers that are inputs of the program, by (id(owner), key or None for a variable)
        self.numbers: dict[tuple[int, Any], int | float] = {}
        self._changed: list[Guard] = []  # of what build() reads and then changes itself
        self.returned: set[int] = set()  # ids of the containers that build() returns
        self._objects_of_build: set[int] = set()  # their ids, once build() has returned
        # before the capture adds hooks of its own
        for name, hooks in (item for owner in owners for item in _global_hooks(owner).items()):
            self.reads.add(CONTENTS, hooks, contents(hooks), name, None)
            self.reads.complete.add(id(hooks))
        self.reads.add(SPECIAL_METHODS, torch.Tensor, OF_CAPTURE, "the operators of torch.Tensor", None)
        self.reads.function_modes(active_function_modes(), None)

    def __enter__(self) -> Any:
        if self.made_by_build is None:  # step() of each optimizer enters again
            self.made_by_build = MadeByBuild()
        self.made_by_build.__enter__()
        self.frames = observed_frames(HOOKS, self._unobserved)
        self.reads.make_visible, self.reads.leave_out = self.frames.make_visible, self.frames.leave_out
        self.frames.__enter__()
        current.reads, current.seen = self.reads, self.reads.seen
        return self

    def __exit__(self, *exc: Any) -> None:
        current.reads, current.seen = None, NOTHING
        self.frames.__exit__(*exc)
        self.made_by_build.__exit__(*exc)
        self._keep_counters()
        # no cycle: an error of build() holds this object, and the reads hold weights
        del self.frames, self.reads.make_visible, self.reads.leave_out
        if exc[0] is not None:
            if self.takes_back or isinstance(exc[1], CAPTURED_AGAIN):
                undo(self.reads.writes, self.reads.caches_before)
            del self.reads

    def undo_writes(self) -> None:
        """Take back what was written in this context, unless finish() has been called or an error left it."""
        if hasattr(self, "reads"):
            undo(self.reads.writes, self.reads.caches_before)

    def _keep_counters(self) -> None:
        """Set counters back to what they were before build(), because each call counts, the first one too."""
        counters = list(self.reads.counters()) if self._is_of_build else []
        # a number in a container that build() returns is a result as well
        fixed = self.ids_made_by_build() | self.reads.made | self.returned if counters else frozenset()
        for guard, counting in counters:
            instance = self.reads.attribute_dicts.get(id(guard.owner))
            if fixed.isdisjoint([id(guard.owner), instance]):
                become_counter(guard, counting)

    def note_hash(self, tensor: torch.Tensor) -> None:
        """Note that the user's code asks for the hash of a tensor, which may be an argument."""
        if is_input(tensor) and current.reads is self.reads:
            site = calling_site(through_torch=False)
            if site is not None:
                self.reads.hash_of_argument(tensor, site)

    def note_arguments(self, arguments: Any) -> Any:
        """Note the arguments of build(), and return (None, text) for what it does not see of them."""
        return self.reads.note_arguments(arguments)

    def note_twins(self, twins: dict[int, Any]) -> None:
        """Note which objects stand for arguments in build(): {id(object): the argument}."""
        self.reads.twins = twins

    def ids_made_by_build(self) -> set[int]:
        """Return the ids of the objects that build() made."""
        created: set[int] = self.made_by_build.ids(self.reads.attribute_dicts)
        return created

    def is_text_for_output(self, frame: Any) -> bool:
        """Whether the text that a frame asks for goes to print() or to a log, and decides nothing."""
        if self.reads.ends_capture:
            return False
        site = self.reads.printing_site
        return site is not None and is_at(frame, site) or is_logging(frame)

    def warn_of_text(self) -> None:
        """Note that build() makes a text of a tensor whose values are not known."""
        site = calling_site()
        if site is not None:
            self.reads.warn(site, TEXT)

    def _unobserved(self, code: CodeType, scope: Any) -> None:
        """Names of a class body, or of an asynchronous function, are guarded whether they are read or not."""
        if policy_of(code, scope) is not Policy.USER:
            return
        for name in code.co_names:
            if name in scope:
                self.reads.add(Item(name), scope, scope[name], name, None)
        imports = code.co_name == "<module>" and getattr(scope.get("__spec__"), "_initializing", False)
        site = None if imports or not reads_objects(code) else calling_site()
        if site is not None:
            self.reads.warn(site, f"the code of {code.co_name}, whose reads of objects are not observed")

    def finish(self, replayed: Any, modes: Any, has_numbers: bool = False) -> PythonGuards:
        """Return the guards.

        `replayed` are the (id(container), key) that the program assigns at each call, and `modes` the ids of
        the modules whose train() or eval() the graph keeps. `has_numbers`: whether the program has numbers
        that only a run knows, which build() may have kept.
        """
        reads = self.reads
        replayed = {*replayed, *self.numbers}
        reads.writes = [w.without_symbols(self.numbers) for w in reads.writes if not w.is_at(self.numbers)]
        dicts_of_modules = _ids_of_attribute_dicts(reads.objects, modes)
        created = _ids_of_attribute_dicts(reads.objects, reads.made) | reads.made
        guards = [
            g for g in reads.guards.values() if id(g.owner) not in created and not _is_made_of_fakes(g.owner)
        ]
        objects_of_build = self._objects_of_build = self._objects_made()
        snapshots = dict(reads.snapshots)
        self._keys_read = {(id(g.owner), g.source.key) for g in guards}
        opaque = self._opaque(objects_of_build, replayed, has_numbers)
        pinned = reads.pinned | self._with_instances(owner for owner, _ in replayed)
        unfollowed = [(site, what) for (_, what), site in reads.unfollowed.items()]
        written = {(owner, source.key) for source, owner in reads.written if isinstance(source, Item)}
        reads.guards, reads.objects, reads.opaque, reads.writes = {}, {}, [], []
        reads.seen.clear()
        reads.snapshots.clear()
        gc.collect(0)
        guards, opaque = outliving(guards, opaque, objects_of_build)
        kept, filled = self._settled(guards, dicts_of_modules, replayed, opaque)
        # the collector lists a dict of numbers only once it gets another object, so its age says nothing
        opaque[:] = [e for e in opaque if id(e[0]) not in objects_of_build or e[3:] and type(e[0]) is dict]
        writes = [write for *_, write in opaque if isinstance(write, Write)]
        unfollowed += [(site, what) for _, site, what, *write in opaque if not write]
        opaque.clear()  # its tuples would count as holders of the objects
        filled = guards_of_lasting(filled, self._caches, objects_of_build, reads.attribute_dicts, snapshots)
        writes = self._of_lasting_objects(writes, objects_of_build, snapshots)
        hold_weakly(kept, reads.weak)
        reads.weak.clear()
        result = PythonGuards(kept, pinned, unfollowed)
        result.numbers_changed = [
            number for number in map(number_source, self._changed) if number is not None
        ]
        if reads.ends_capture:
            self._end_with_changes(result, writes, written, replayed)
        if filled:
            result.end_with_this_call(filled[0])
        self._caches.clear()
        result.argument_facts = [*reads.argument_facts.values()]
        for write in writes if has_numbers else ():
            if id(write.owner) not in reads.twins and write.keeps_a_number(replayed):
                result.kept_number = write.site, write.what
        return result

    def _is_older(self, container: object) -> bool:
        """Whether a container was there before build(). An unwritten dict of constants counts as new."""
        return gc.is_tracked(container) and id(container) not in self._objects_of_build

    def _objects_made(self) -> set[int]:
        """Return the ids of the objects that build() made, dicts of constants included."""
        reads = self.reads
        own = {id(value) for value in (*vars(self).values(), *vars(reads).values())}
        return with_ages_of_dicts(self.ids_made_by_build(), reads.writes, reads.attribute_dicts, own)

    def _with_instances(self, owners: Iterable[int]) -> set[int]:
        """Return the ids of owners, and of the objects whose attributes are in those that are dicts."""
        ids = {*owners}
        instances = self.reads.attribute_dicts
        return ids | {instances[owner] for owner in ids & instances.keys()}

    def _opaque(self, objects_of_build: set[int], replayed: Any, has_numbers: bool) -> list[Any]:
        """Return (object, site, what it is), perhaps with a Write, of what no guard follows."""
        reads = self.reads
        opaque = [entry for entry in reads.opaque if not _is_made_of_fakes(entry[0])]
        if not reads.ends_capture:
            keeping = (write for write in reads.writes if has_numbers and write.keeps_a_number(replayed))
            return opaque + [(write.owner, write.site, write.what, write) for write in keeping]
        older = [write for write in reads.writes if id(write.owner) not in objects_of_build]
        repeated = self._repeated(older, replayed, guards_are_settled=False)
        others = (write for write in reads.writes if id(write) not in repeated)
        return opaque + [(write.owner, write.site, write.what, write) for write in others]

    def _of_lasting_objects(
        self, writes: list[Write], objects_of_build: set[int], snapshots: dict[int, Any]
    ) -> list[Write]:
        """Leave out the writes to objects that each call of build() makes anew."""
        guards = [Guard(CONTENTS, write.owner, None, None, write.site) for write in writes]
        attribute_dicts = self.reads.attribute_dicts
        guards = guards_of_lasting(guards, self._caches, objects_of_build, attribute_dicts, snapshots)
        lasting = {id(guard.owner) for guard in guards}
        return [write for write in writes if id(write.owner) in lasting]

    def _end_with_changes(
        self, result: PythonGuards, writes: list[Write], written: set[Any], replayed: Any
    ) -> None:
        """Let a program serve one call if it does not repeat what build() changes. Guard other writes."""
        caches = {id(cache) for cache in self._caches if not is_a(cache, WEAK_CONTAINERS)}
        writes = [write for write in writes if id(write.owner) not in caches]
        repeated = self._repeated(writes, replayed, guards_are_settled=True)
        result.stores, self._stores = self._stores, []
        result.pinned |= self._with_instances(id(store.owner) for store in result.stores)
        result.pinned |= self._with_instances(older for store in result.stores for older in store.older)
        writes = [write for write in writes if id(write) not in repeated]
        counted = {(id(guard.owner), guard.source.key.key) for guard in result.counters}
        followed = counted | {*replayed} | {*self._followed}
        is_followed = lambda owner, key: (owner, key) in followed
        for write in writes:
            if id(write.owner) in self.reads.complete or write.counts(counted):
                continue
            if write.changed(is_followed):
                result.unfollowed.append((write.site, write.what))
            elif not self._is_appended_to(write.owner, replayed):
                result.guards += write.guards(written, is_followed)
        result.undo_writes = functools.partial(
            undo, [write.settled() for write in writes], self.reads.caches_before
        )
        if result.unfollowed:
            site, what = result.unrepeated = result.unfollowed[0]
            result.end_for_reason(what, site)
            result.unfollowed = []

    def _is_appended_to(self, owner: Any, replayed: Iterable[tuple[int, Any]]) -> bool:
        """Whether build() only appended to a list, which each run does and which is put back already."""
        keys = [key for container, key in replayed if container == id(owner)]
        if not keys or not is_a(owner, list) or id(owner) in self.reads.rearranged:
            return False
        return all(type(key) is int and key >= len(owner) for key in keys)

    def _repeated(self, writes: Iterable[Write], replayed: Any, guards_are_settled: bool) -> set[int]:
        """Take back the changes that each run can make as build() did, and return the ids of their writes.

        The first run makes them, too. What is stored is noted before any change is taken back, because it may
        lie in another container that build() filled. The collector does not list a new dict of constants.
        """
        repeated: list[Write] = []
        is_followed = lambda owner, key: (owner, key) in replayed or (owner, key) in self._followed
        for write in writes if self._is_of_build else ():
            if id(write.owner) in self.reads.complete or not write.changed(is_followed):
                continue
            stores = write.stores(is_followed, self._is_older)
            if stores is not None and self._are_repeatable(write, stores, guards_are_settled):
                self._stores += stores
                repeated.append(write)
        for write in repeated:
            write.settled(is_followed).undo()
        return set(map(id, repeated))

    def _are_repeatable(self, write: Write, stores: list[Store], guards_are_settled: bool) -> bool:
        """Whether a later call does the same, though it finds what this one stored.

        So build() must not have read it, or return the container itself. Tensors may have been read, if their
        guard is not settled yet and will compare what was there before: the next call reads the new tensors.
        """
        reads, owner, keys_read = self.reads, id(write.owner), self._keys_read
        if owner in self.returned or owner in reads.elements_read or reads.has_filled_caches():
            return False
        if not all(store.is_possible for store in stores):
            return False
        if any(store.appends for store in stores):
            return owner not in reads.rearranged and not any(read == owner for read, _ in keys_read)
        if not guards_are_settled:
            stores = [store for store in stores if not store.is_state]
        if write.key is None:
            keys = {None, *(store.key for store in stores)}
        else:
            keys = {None if write.key is CELL else write.key for _ in stores}
        return not any((owner, key) in keys_read for key in keys)

    def _settled(
        self, guards: list[Guard], dicts_of_modules: set[int], replayed: Any, opaque: list[Any]
    ) -> tuple[list[Guard], list[Guard]]:
        """Return the guards that the program keeps, and those of sources that build() filled in.

        Add what build() reads and changes to `opaque`.
        """
        kept: list[Guard] = []
        filled: list[Guard] = []
        for guard in guards:
            if id(guard.owner) in self.reads.complete:
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
        elif is_a(guard.owner, WEAK_CONTAINERS) and id(guard.owner) not in self.reads.read_whole:
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


def _is_empty_or_flag(value: Any) -> bool:
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


def _is_equal(old: Any, new: Any) -> bool:
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


def _is_symbolic(value: Any) -> bool:
    if type(value) is tuple:
        return any(map(_is_symbolic, value))
    return is_fake(value) or is_a(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
