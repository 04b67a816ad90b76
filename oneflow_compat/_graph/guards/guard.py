"""Guards, the sources that they look at, and the groups in which they are tested.

A source is an attribute of an object, a key of a dict, an index of a list: a location that holds a value. The
word is torch's (`torch._guards.Source`). A guard assumes that a source of an object, its owner, still holds
the value of the capture.

**Add a sort of source.** Write a frozen subclass of `Source` in `sources.py` with `read()`, add a case to
`CASES` in tests/graph/guards/test_sources.py, and call `Notes.add()` in the collaborator of `Reads` whose
noun it is (`observe/hooks/reads.py`). Everything else is inherited, and each of these can be overridden:

- `is_same()` says which two values are one: the same object, unless a read makes its value anew.
- `policy` says what a change leads to. By default the program goes on with an equal value (`adoption.py`).
- `python` and `native()` are faster tests for the loops that run before each call. They may be false though
  the source holds its value: then `is_same()` decides. They must be false if `is_same()` is.
- `group()` lets one test answer the guards of many sources, such as all keys of a dict.

Two traps. `read()` runs before each call that finds a change, so it must run no code of the user.
A guard keeps its owner alive, so an owner that only build() holds must not get one (`observe/outliving.py`).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..program.python_values import MISSING
from .native import Features, NativeTest

Owner = TypeVar("Owner", contravariant=True)


class Policy(Enum):
    """What a graph does when a guarded source holds another value."""

    FAIL = "fail"  # another program has to serve the call
    ADOPT = "adopt"  # the program goes on with an equal value, or reads a tensor of the same metadata
    REBIND = "rebind"  # the program reads new state of optimizers, if that is laid out as the old one
    NOTICE = "notice"  # the program goes on with any value, and the user is told


class Site(Protocol):
    """The code that reads a source, for labels and messages: an instruction of the user's program."""

    code: types.CodeType
    is_user: bool  # whether the code is the user's own, and not that of an installed package
    counts: bool  # whether the instruction belongs to `variable += number`

    @property
    def code_location(self) -> tuple[str, int, str]:
        """(file, line, function)."""

    @property
    def expression(self) -> str:
        """The source text of the instruction."""


class Group:
    """The guards that one test answers: those of one source."""

    is_tested_at_once = False  # whether check() is faster than a test of each guard
    shared = 3  # how much of (class of the group, owner, source) its guards have in common

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.guards: list[Guard] = []

    def holds(self) -> bool:
        return all(guard.holds() for guard in self.guards)

    def check(self) -> Callable[[], bool]:
        """Return a test of all guards, with their values of now. It may be false though they hold."""
        return self.holds

    def native(self, features: Features) -> NativeTest | None:
        """Return the test of the compiled loop, or None if it has none."""
        guard = self.guards[0]
        return guard.source.native(self.owner, guard.value, features)


@dataclass(frozen=True, eq=False)
class Source(Generic[Owner]):
    """A location in an object, its owner, that holds a value.

    A new sort of source is a subclass with `read()`. It inherits that a guard compares by identity, in a call
    of Python. `python` and `native()` give faster tests. They must be false if `is_same()` is.
    """

    key: Any = None

    is_same: ClassVar[staticmethod[[Any, Any], bool]] = staticmethod(operator.is_)
    python: ClassVar[str] = ""  # an expression of {owner}, {key} and {value} for the loop in Python
    group_class: ClassVar[type[Group]] = Group
    policy: ClassVar[Policy] = Policy.ADOPT

    def __eq__(self, other: object) -> bool:
        """Whether both are of one sort, with one key. A tuple does not ask a tensor whether it is itself."""
        return type(other) is type(self) and (self.key,) == (other.key,)

    def __hash__(self) -> int:
        return hash((self.key,))

    def read(self, owner: Owner) -> Any:
        """Return the value that the source holds. Raise if there is no such source."""
        raise NotImplementedError

    def native(self, owner: Owner, value: object, features: Features) -> NativeTest | None:
        """Return the test of the compiled loop, or None if it has none."""
        return None

    def label(self, owner: str) -> str:
        """Return a name of the source, from the name of the owner's class."""
        return f"{owner}[{self.key!r:.40}]"

    def group(self, owner: Owner, value: object) -> type[Group]:
        """Return the class of the group in which a guard is tested."""
        return self.group_class


class Writable(Source[Owner]):
    """A source that an assignment sets."""

    def write(self, owner: Any, value: object) -> None:
        owner[self.key] = value


class Guard:
    """A source of an owner, and the value that the program assumes it to hold."""

    __slots__ = ("_policy", "name", "owner", "site", "source", "value")

    def __init__(
        self,
        source: Source[Any],
        owner: object,
        value: object,
        label: str | None = None,
        site: Site | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`policy`: what a change leads to, if it is not the policy of the source."""
        self.source: Source[Any] = source
        self.owner: Any = owner
        self.value: Any = value
        self.name, self.site = label, site
        self._policy = policy

    @property
    def policy(self) -> Policy:
        """What a change of the source leads to."""
        return self._policy or self.source.policy

    @property
    def label(self) -> str:
        """The name of the source: `Linear.bias`, `TABLE['k']`."""
        if self.name is not None:
            return self.name
        if self.site is not None and self.site.is_user:
            return self.site.expression
        return self.source.label(type(self.owner).__name__)

    def current(self) -> Any:
        """Return the value that the source holds now, or MISSING."""
        return self.read(self.owner)

    def read(self, owner: object) -> Any:
        """Return the value of the same source of another object."""
        try:
            return self.source.read(owner)
        except (KeyError, IndexError, AttributeError, ValueError, TypeError):
            return MISSING

    def holds(self) -> bool:
        """Whether the source holds the same value; an equal one that was made anew is another one."""
        return self.source.is_same(self.value, self.read(self.owner))

    @property
    def code_location(self) -> tuple[str, int, str] | None:
        """(file, line, function) of the first read, or None."""
        return self.site.code_location if self.site is not None else None


def grouped(guards: Iterable[Guard]) -> list[Group]:
    """Return the groups of guards that one test answers each."""
    groups: dict[Hashable, Group] = {}
    for guard in guards:
        group_class = guard.source.group(guard.owner, guard.value)
        identity = (group_class, id(guard.owner), guard.source)[: group_class.shared]
        groups.setdefault(identity, group_class(guard.owner)).guards.append(guard)
    return [*groups.values()]
