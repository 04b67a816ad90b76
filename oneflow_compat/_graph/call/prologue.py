"""The prologue of a program: one generated function with all validity tests and the live values of the slots.

For a linear layer that trains with SGD, the function reads

    def prologue(args):
        if not (v0.first_change() is None): return failed(args, 0)
        ...
        values = (args[0], v3, v6['lr'], )
        return values

The tests include that each named tensor (here v3) still lies where it lay, so that it is not looked up again.

It returns None if the program does not serve the call. Live graphs (entry.py) and graphs read from disk
(saved/loaded.py) are called through it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..._global.marks import OfSeveralRanks
from ..guards.tensors import TensorSlot
from ..program.locations import (
    Argument,
    Container,
    Gradient,
    LiveState,
    Location,
    ModuleTensor,
    OptimizerParameter,
)
from ..program.program import Program


class Stage(enum.Enum):
    """When a test runs, and what its condition may use besides the names of the scope."""

    ARGUMENTS = 0  # `args`, the flattened arguments
    STATE = 1  # nothing else, so that the test can run without a call
    TENSORS = 2  # nothing else; the tests of named tensors
    VALUES = 3  # `values`, the values of all slots


class Scope:
    """The names that the generated function uses besides its local variables.

    `names` are the globals of the function. They are a plain dict, because lookups in a subclass are slow.
    """

    def __init__(self, **names: object) -> None:
        self.names: dict[str, Any] = names

    def bind(self, value: object) -> str:
        """Return a new name of a value."""
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name


@dataclass(frozen=True, eq=False)
class Test:
    """A condition that must hold for the program to serve a call: an expression over names of the scope.

        Test("optimizer state", f"{scope.bind(adam)}.state is {scope.bind(adam.state)}")

    An empty condition holds. `on_failure` runs if the condition is false. It returns True if it adapted the
    prologue to the call, and then all tests run again.
    """

    __test__ = False  # pytest would collect the class

    name: str
    condition: str
    stage: Stage = Stage.STATE
    on_failure: Callable[[], bool] | None = None


def gather(program: Program, live: LiveState, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the live values of the slots, untested."""
    return tuple(_live_value(slot.location, live, args) for slot in program.slots)


def _live_value(location: Location, live: LiveState, args: Sequence[Any]) -> Any:
    if isinstance(location, Argument):
        return args[location.index]._local_tensor if location.is_shard else args[location.index]
    value: Any = location.read(live)
    is_shard = isinstance(value, OfSeveralRanks)
    return value._local_tensor if is_shard else value


class Prologue:
    """The prologue of one program. `run(args)` returns the values of the slots, or None."""

    run: Callable[[Sequence[Any]], tuple[Any, ...] | None]

    def __init__(
        self,
        program: Program,
        live: LiveState,
        tests_of: Callable[[Scope, tuple[TensorSlot, ...]], Sequence[Test]],
    ) -> None:
        """`tests_of(scope, named tensors)` gives the tests in their order, for each `bind`."""
        self.program, self.live = program, live
        self._tests_of = tests_of
        self.bind()

    def bind(self) -> None:
        """Generate the function for the objects that are live now.

        Raise KeyError or IndexError if a value is missing.
        """
        self.scope = Scope(failed=self._failed)
        self._containers: dict[int, str] = {}
        items = self._reads()
        self.tests = tuple(self._tests_of(self.scope, self.tensors))
        lines = ["def prologue(args):"]
        lines += self._lines(Stage.ARGUMENTS) + self._lines(Stage.STATE)
        lines += self._lines(Stage.TENSORS)
        lines += ["  try:", f"    values = ({''.join(items)})"]
        lines += ["  except (KeyError, IndexError):", "    return None"]  # a value is missing
        lines += self._lines(Stage.VALUES)
        lines += ["  return values"]
        code = "\n".join(lines)
        exec(compile(code, f"<{self.program.name} prologue>", "exec"), self.scope.names)
        self.run = self.scope.names["prologue"]

    def _reads(self) -> list[str]:
        """Return an expression for each slot; a named tensor is a name of the scope."""
        tensors, items = [], []
        for slot in self.program.slots:
            location = slot.location
            if isinstance(location, Argument):
                shard = "._local_tensor" if location.is_shard else ""
                items.append(f"args[{location.index}]{shard}, ")
                continue
            if isinstance(location, Gradient):
                items.append(f"{self.scope.bind(self.live.entries[location.name].tensor)}.grad, ")
                continue
            container, keys = location.resolve(self.live)
            shard = "._local_tensor" if isinstance(location.read(self.live), OfSeveralRanks) else ""
            expression = self._container_name(container) + "".join(f"[{key!r}]" for key in keys)
            if isinstance(location, (ModuleTensor, OptimizerParameter)):
                expression = self.scope.bind(container[keys[0]])
                tensors.append(TensorSlot(expression, container, keys[0], slot))
            items.append(f"{expression}{shard}, ")
        self.tensors = tuple(tensors)
        return items

    def _container_name(self, container: Container) -> str:
        name = self._containers.get(id(container))
        if name is None:
            name = self._containers[id(container)] = self.scope.bind(container)
        return name

    def _lines(self, stage: Stage) -> list[str]:
        """Return one line for each test of a stage."""
        return [
            f"  if not ({test.condition}): return failed(args, {index})"
            for index, test in enumerate(self.tests)
            if test.stage is stage and test.condition
        ]

    def _failed(self, args: Sequence[Any], index: int) -> tuple[Any, ...] | None:
        on_failure = self.tests[index].on_failure
        if on_failure is not None and on_failure():
            return self.run(args)
        return None

    def holds_without_arguments(self, stages: Sequence[Stage] = (Stage.STATE, Stage.TENSORS)) -> bool:
        """Whether the tests of these stages hold now; a failed test may adapt the prologue."""
        for test in self.tests:
            if test.stage in stages and test.condition:
                if not eval(test.condition, self.scope.names):
                    if test.on_failure is None or not test.on_failure():
                        return False
                    return self.holds_without_arguments(stages)
        return True
