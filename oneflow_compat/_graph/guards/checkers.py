"""The test before each call that no guarded source was written, in C by versions or in Python by identity."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..program.python_values import MISSING
from .guard import Group, Guard, grouped
from .native import PRESENT, Features, NativeTest, Operation, library, probed_features
from .values import contents, is_same_picture


class PythonChecker:
    """One generated function that compares every guarded source by identity."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.scope: dict[str, Any] = {"MISSING": MISSING, "get": dict.get, "slow": self._slow}
        self.scope |= {"contents": contents, "same": is_same_picture}
        lines = []
        for index, group in enumerate(groups):
            self.update(index)
            tests = [self._test(f"{index}_{n}", f"o{index}", guard) for n, guard in enumerate(group.guards)]
            test = f"holds{index}()" if group.is_tested_at_once else " and ".join(tests)
            lines.append(f"    if {index} >= start and not ({test}): return {index}\n")
        code = f"def first_change_from(start):\n  try:\n{''.join(lines) or '    pass'}\n"
        code += "  except (KeyError, IndexError, ValueError, AttributeError):\n    return slow(start)\n"
        exec(compile(code, "<guards>", "exec"), self.scope)
        first_change_from: Callable[[int], int | None] = self.scope["first_change_from"]
        # the index of the first group with a source that holds another object, or None
        self.first_change: Callable[[], int | None] = functools.partial(first_change_from, 0)
        self.first_change_after = lambda index: first_change_from(index + 1)

    def update(self, index: int) -> None:
        """Take the owner and the values of the guards of a group for those to expect."""
        group = self.groups[index]
        self.scope[f"o{index}"] = group.owner
        if group.is_tested_at_once:
            self.scope[f"holds{index}"] = group.check()
        for n, guard in enumerate(group.guards):
            self.scope[f"v{index}_{n}"] = guard.value

    def _test(self, name: str, owner: str, guard: Guard) -> str:
        self.scope[f"k{name}"], self.scope[f"g{name}"] = guard.source.key, guard
        test = guard.source.python or f"g{name}.holds()"
        return test.format(owner=owner, key=f"k{name}", value=f"v{name}")

    def _slow(self, start: int) -> int | None:
        """A source that vanished raised an error in the generated function."""
        indices = range(start, len(self.groups))
        return next((index for index in indices if not self.groups[index].holds()), None)


class CompiledChecker:
    """The loop of csrc/guards.cpp: versions of dicts and classes, identities of the rest."""

    def __init__(self, groups: Sequence[Group], features: Features) -> None:
        self.groups, self.features = groups, features
        self.tests = [self._test(group) for group in groups]  # the loop borrows references from these
        self.first_change, self.first_change_after, self._update = library().build(
            self.tests, features.dict_versions, features.code, MISSING, PRESENT
        )

    def update(self, index: int) -> None:
        """Take the owner and the values of the guards of a group for those to expect."""
        test = self._test(self.groups[index])
        self._update(index, test)
        self.tests[index] = test

    def _test(self, group: Group) -> NativeTest:
        return group.native(self.features) or (Operation.CALL, group.owner, group.check())


def new_checker(groups: Sequence[Group]) -> PythonChecker | CompiledChecker:
    """Return a checker of the groups: compiled if the library was built."""
    features = probed_features()
    return PythonChecker(groups) if features is None else CompiledChecker(groups, features)


def checker_of(guards: Iterable[Guard]) -> PythonChecker | CompiledChecker:
    """Return a checker of guards that nothing adapts.

    `first_change()` is None while every source holds what it held.
    """
    return new_checker(grouped(guards))
