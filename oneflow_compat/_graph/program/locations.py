"""Where the live value of each input of a program lies.

A location is plain data, so that a program can be printed, compared and saved. `LiveState` has the objects
that the locations name. The same location is read and written through it:

    OptimizerState(0, "model.fc.weight", ("exp_avg",)).read(live)
    == live.optimizers[0].state[<the parameter model.fc.weight>]["exp_avg"]
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

Container = dict[Any, Any] | list[Any]
Keys = tuple[Any, ...]  # the keys to follow in nested containers


@dataclass(frozen=True, eq=False)
class StateEntry:
    """One named tensor of the engine, and the container that holds the live tensor.

    The weight of `self.model.fc` is StateEntry("param", "model.fc.weight", ModuleTensor("model.fc.weight"),
    fc._parameters, "weight", fc.weight).
    """

    role: str
    name: str
    location: Location
    container: Container
    key: Any
    tensor: torch.Tensor

    @property
    def in_module(self) -> bool:
        """Whether the tensor belongs to the modules or tensors of the graph, not only to an optimizer."""
        return isinstance(self.location, ModuleTensor)


@dataclass(frozen=True, eq=False)
class NumberSource:
    """Where a Python number lies that is an input of a program: `self.temperature`, a variable of a closure.

    The container is a dict, or an object that reads and writes the number like one (see hooks/writes.py).
    """

    container: Any
    key: Any
    label: str
    identity: tuple[int, Any]  # (id of the owner, key or None for a variable)

    def read(self) -> Any:
        """Return what lies there. Raise KeyError if there is nothing."""
        return self.container[self.key]

    def write(self, value: object) -> None:
        """Put a value there."""
        self.container[self.key] = value


@dataclass(frozen=True, eq=False)
class LiveState:
    """The objects that locations name."""

    entries: Mapping[str, StateEntry] = field(default_factory=dict)
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    # tensors of closures and globals; replaced if they are rebound
    free: list[torch.Tensor] = field(default_factory=list)
    saved: dict[str, Any] = field(default_factory=dict)  # values of a graph that was read from disk
    # (tensor, container, key) of each further name of a tensor of a module
    aliases: tuple[tuple[torch.Tensor, Container, Any], ...] = ()
    numbers: tuple[NumberSource, ...] = ()  # Python numbers that are inputs

    def state_of(self, optimizer: int, parameter: str) -> dict[str, Any] | None:
        """Return the optimizer's state of a parameter, or None if there is none yet."""
        return self.optimizers[optimizer].state.get(self.entries[parameter].tensor)


class _InContainer:
    """A location that is an item of a container, maybe of nested ones."""

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        """Return the container, and the keys to follow in it."""
        raise NotImplementedError

    def read(self, live: LiveState) -> Any:
        """Return the live value. Raise KeyError or IndexError if there is none."""
        container, keys = self.resolve(live)
        return functools.reduce(operator.getitem, keys, container)

    def write(self, live: LiveState, value: object) -> None:
        """Store a value."""
        container, keys = self.resolve(live)
        functools.reduce(operator.getitem, keys[:-1], container)[keys[-1]] = value


@dataclass(frozen=True)
class Argument:
    """A tensor among the flattened arguments of a call.

    In `graph(x, 3, y)`, the locations of x and y are Argument(0) and Argument(2).
    """

    index: int
    is_shard: bool = False  # a global tensor of several ranks, of which the program reads the local tensor


@dataclass(frozen=True)
class ModuleTensor(_InContainer):
    """A parameter or buffer of a module, or a tensor of the graph: ModuleTensor("model.fc.weight")."""

    name: str

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        entry = live.entries[self.name]
        return entry.container, (entry.key,)


@dataclass(frozen=True)
class OptimizerParameter(_InContainer):
    """A parameter that only an optimizer has: optimizer.param_groups[group]["params"][index]."""

    optimizer: int
    group: int
    index: int

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        return live.optimizers[self.optimizer].param_groups[self.group]["params"], (self.index,)


@dataclass(frozen=True)
class OptimizerState(_InContainer):
    """A tensor or number in the state of an optimizer.

    The first moment of Adam is OptimizerState(0, "model.fc.weight", ("exp_avg",)).
    """

    optimizer: int
    parameter: str
    keys: Keys

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        # Do not index optimizer.state, which would create a default: a missing state must stay missing.
        return live.state_of(self.optimizer, self.parameter) or {}, self.keys

    def write(self, live: LiveState, value: object) -> None:
        """Store a value, in a new state of the parameter if there is none."""
        state = live.optimizers[self.optimizer].state[live.entries[self.parameter].tensor]
        functools.reduce(operator.getitem, self.keys[:-1], state)[self.keys[-1]] = value

    def remove(self, live: LiveState) -> None:
        """Remove the state's item that contains this value; remove a state that is empty then."""
        state = live.state_of(self.optimizer, self.parameter)
        if state is not None:
            state.pop(self.keys[0], None)
            if not state:
                del live.optimizers[self.optimizer].state[live.entries[self.parameter].tensor]

    def item(self, key: Hashable) -> OptimizerState:
        """Return the location of an item of this value."""
        return replace(self, keys=(*self.keys, key))


@dataclass(frozen=True)
class GroupOption(_InContainer):
    """An option of a parameter group: the second beta of Adam is GroupOption(0, 0, ("betas", 1))."""

    optimizer: int
    group: int
    keys: Keys

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        return live.optimizers[self.optimizer].param_groups[self.group], self.keys

    def remove(self, live: LiveState) -> None:
        """Remove the option."""
        live.optimizers[self.optimizer].param_groups[self.group].pop(self.keys[0], None)

    def item(self, key: Hashable) -> GroupOption:
        """Return the location of an item of this value."""
        return replace(self, keys=(*self.keys, key))


@dataclass(frozen=True)
class Gradient:
    """The gradient that a named tensor has before the call: Gradient("model.fc.weight") is its `.grad`."""

    name: str

    def read(self, live: LiveState) -> torch.Tensor:
        """Return the gradient. Raise KeyError if there is none."""
        gradient = live.entries[self.name].tensor.grad
        if gradient is None:
            raise KeyError(f"{self.name}.grad")
        return gradient


@dataclass(frozen=True)
class FreeTensor(_InContainer):
    """A tensor that is in no module and no optimizer, such as one of a closure."""

    index: int

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        return live.free, (self.index,)


@dataclass(frozen=True)
class PythonNumber(_InContainer):
    """A Python number that build() reads from an attribute, a dict or a variable, and that changes."""

    index: int

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        source = live.numbers[self.index]
        return source.container, (source.key,)


@dataclass(frozen=True)
class SavedValue(_InContainer):
    """A value of a graph that was read from disk, by its name in the graph's state dict."""

    key: str

    def resolve(self, live: LiveState) -> tuple[Container, Keys]:
        return live.saved, (self.key,)


Location = (
    Argument
    | ModuleTensor
    | OptimizerParameter
    | OptimizerState
    | GroupOption
    | Gradient
    | FreeTensor
    | PythonNumber
    | SavedValue
)
