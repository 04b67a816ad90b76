"""Observe what Python reads while build() runs, and turn it into guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CAPTURED_AGAIN
from ..guards.counters import become_counter
from ..guards.observed import Observed
from ..guards.sources import CONTENTS, OF_CAPTURE, SPECIAL_METHODS, Item
from ..guards.values import contents, is_input
from .hooks.answers import active_function_modes
from .hooks.entry_points import HOOKS, NOTHING, current
from .hooks.reads import Reads
from .hooks.unfollowed import TEXT, calling_site, is_at, is_logging, reads_objects
from .instrumentation.frames import observed_frames
from .instrumentation.policy import (
    Policy,
    policy_of,
)
from .outliving import MadeByBuild
from .settling import Settling

if TYPE_CHECKING:
    from torch.nn import Module


def _global_hooks(module: object) -> dict[str, dict[Any, Any]]:
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
        # the numbers that are inputs of the program, by (id(owner), key or None for a variable)
        self.numbers: dict[tuple[int, Any], int | float] = {}
        self.returned: set[int] = set()  # ids of the containers that build() returns
        # before the capture adds hooks of its own
        for name, hooks in (item for owner in owners for item in _global_hooks(owner).items()):
            self.reads.notes.add(CONTENTS, hooks, contents(hooks), name, None)
            self.reads.notes.complete.add(id(hooks))
        self.reads.notes.add(SPECIAL_METHODS, torch.Tensor, OF_CAPTURE, "the operators of torch.Tensor", None)
        self.reads.answers.function_modes(active_function_modes(), None)

    def __enter__(self) -> Any:
        if self.made_by_build is None:  # step() of each optimizer enters again
            self.made_by_build = MadeByBuild()
        self.made_by_build.__enter__()
        self.frames = observed_frames(HOOKS, self._unobserved)
        self.reads.values.frames = self.frames
        self.frames.__enter__()
        current.reads, current.seen = self.reads, self.reads.notes.seen
        return self

    def __exit__(self, *exc: Any) -> None:
        current.reads, current.seen = None, NOTHING
        self.frames.__exit__(*exc)
        self.made_by_build.__exit__(*exc)
        self._keep_counters()
        # no cycle: an error of build() holds this object, and the reads hold weights
        del self.frames
        self.reads.values.frames = None
        if exc[0] is not None:
            if self.takes_back or isinstance(exc[1], CAPTURED_AGAIN):
                self.reads.writes.undo()
            del self.reads

    def undo_writes(self) -> None:
        """Take back what was written in this context, unless finish() has been called or an error left it."""
        if hasattr(self, "reads"):
            self.reads.writes.undo()

    def _keep_counters(self) -> None:
        """Set counters back to what they were before build(), because each call counts, the first one too."""
        counters = list(self.reads.notes.counters()) if self._is_of_build else []
        # a number in a container that build() returns is a result as well
        fixed = self.ids_made_by_build() | self.reads.notes.made | self.returned if counters else frozenset()
        for guard, counting in counters:
            instance = self.reads.notes.attribute_dicts.get(id(guard.owner))
            if fixed.isdisjoint([id(guard.owner), instance]):
                become_counter(guard, counting)

    def note_hash(self, tensor: torch.Tensor) -> None:
        """Note that the user's code asks for the hash of a tensor, which may be an argument."""
        if is_input(tensor) and current.reads is self.reads:
            site = calling_site(through_torch=False)
            if site is not None:
                self.reads.tensors.hash_of_argument(tensor, site)

    def note_arguments(self, arguments: Any) -> Any:
        """Note the arguments of build(), and return (None, text) for what it does not see of them."""
        return self.reads.tensors.note_arguments(arguments)

    def note_twins(self, twins: dict[int, Any]) -> None:
        """Note which objects stand for arguments in build(): {id(object): the argument}."""
        self.reads.notes.twins = twins

    def ids_made_by_build(self) -> set[int]:
        """Return the ids of the objects that build() made."""
        created: set[int] = self.made_by_build.ids(self.reads.notes.attribute_dicts)
        return created

    def is_text_for_output(self, frame: Any) -> bool:
        """Whether the text that a frame asks for goes to print() or to a log, and decides nothing."""
        if self.reads.notes.ends_capture:
            return False
        site = self.reads.calls.printing_site
        return site is not None and is_at(frame, site) or is_logging(frame)

    def warn_of_text(self) -> None:
        """Note that build() makes a text of a tensor whose values are not known."""
        site = calling_site()
        if site is not None:
            self.reads.notes.warn(site, TEXT)

    def _unobserved(self, code: CodeType, scope: Any) -> None:
        """Names of a class body, or of an asynchronous function, are guarded whether they are read or not."""
        if policy_of(code, scope) is not Policy.USER:
            return
        for name in code.co_names:
            if name in scope:
                self.reads.notes.add(Item(name), scope, scope[name], name, None)
        imports = code.co_name == "<module>" and getattr(scope.get("__spec__"), "_initializing", False)
        site = None if imports or not reads_objects(code) else calling_site()
        if site is not None:
            self.reads.notes.warn(
                site, f"the code of {code.co_name}, whose reads of objects are not observed"
            )

    def finish(
        self,
        replayed: Iterable[tuple[int, Any]],
        modes: Iterable[int],
        has_numbers: bool = False,
    ) -> Observed:
        """Return the guards.

        `replayed` are the (id(container), key) that the program assigns at each call, and `modes` the ids of
        the modules whose train() or eval() the graph keeps. `has_numbers`: whether the program has numbers
        that only a run knows, which build() may have kept.
        """
        made = self.ids_made_by_build
        settling = Settling(self.reads, self.numbers, self.returned, made, self._is_of_build)
        return settling.observed(replayed, modes, has_numbers)
