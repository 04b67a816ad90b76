"""Numbers among the arguments of a compiled step that change from call to call: inputs of one program.

    for epoch in range(100):
        train_step(x, y, epoch, weight=0.9**epoch)

A number that has changed lies in a dict from then on, and the step finds it there. So it is like any Python
number that build() reads and that others change (capture/values/number_inputs.py). The signature of the call
has its type in its place. A number that build() needs itself, as an index, is part of the signature again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .program.locations import NumberSource
from .program.python_values import MISSING

if TYPE_CHECKING:
    from .varying_numbers import VaryingNumbers

_MARK = "\0a number of the type "


class ArgumentNumbers:
    """The numbers among the arguments of one step, by position or name."""

    def __init__(self) -> None:
        self.places: dict[int | str, int | float] = {}
        self.lock = threading.RLock()  # held until the program of a call has read the call's numbers
        self._seen: dict[int | str, Any] = {}
        self._sources: dict[int | str, NumberSource] = {}

    def moved(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: VaryingNumbers
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the numbers that change into their places. Return the arguments without them.

        The caller holds the lock until the call has ended.
        """
        positions = [key for key, value in enumerate(args) if self._changes(key, value, numbers)]
        named = [key for key, value in kwargs.items() if self._changes(key, value, numbers)]
        positional = list(args)
        for key in positions:
            self.places[key], positional[key] = args[key], _MARK + type(args[key]).__name__
        self.places.update((name, kwargs[name]) for name in named)
        marked = {name: _MARK + type(kwargs[name]).__name__ for name in named}
        return tuple(positional), {**kwargs, **marked}

    def _changes(self, key: int | str, value: Any, numbers: VaryingNumbers) -> bool:
        number_type = type(value)
        if number_type is not int and number_type is not float:
            return False
        source = self._sources.get(key)
        if source is None:
            seen = self._seen.setdefault(key, value)
            if type(seen) is number_type and seen == value:
                return False
            source = NumberSource(self.places, key, f"the argument {key!r}", (id(self.places), key))
            self._sources[key] = source
            numbers.add([source])
        return numbers.is_input(source.identity)

    def finding(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return the step, called with what `moved` returns."""

        @functools.wraps(step)
        def build(*args: Any, **kwargs: Any) -> Any:
            positional = (self._value(key, value) for key, value in enumerate(args))
            return step(*positional, **{name: self._value(name, value) for name, value in kwargs.items()})

        return build

    def _value(self, key: int | str, value: Any) -> Any:
        return self.places[key] if type(value) is str and value.startswith(_MARK) else value

    def constants(self, inputs: Any) -> Iterator[tuple[int | str, int | float]]:
        """Yield key and value of each number that is no input of a capture. `inputs`: identities of those."""
        for key in self._sources:
            value = self.places.get(key, MISSING)
            if value is not MISSING and (id(self.places), key) not in inputs:
                yield key, value
