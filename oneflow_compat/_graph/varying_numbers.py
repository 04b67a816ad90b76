"""Which Python numbers that build() reads are inputs of the programs of a graph, and which are constants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .program.locations import NumberSource

_MOST = 64  # inputs of one graph; more of them are objects that come and go

Identity = tuple[int, Any]


class VaryingNumbers:
    """The numbers of one graph that were seen to change. Those that build() needs itself are constants."""

    def __init__(self) -> None:
        self._inputs: dict[Identity, NumberSource] = {}
        self._constants: dict[Identity, NumberSource] = {}  # held, so that no other object gets the identity
        self._are_suspended = False

    @property
    def inputs(self) -> Sequence[NumberSource]:
        """The numbers that the next capture has as inputs."""
        return [] if self._are_suspended else [*self._inputs.values()]

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Capture without such inputs: a file has no objects to read them from."""
        self._are_suspended = True
        try:
            yield
        finally:
            self._are_suspended = False

    def add(self, sources: Iterable[NumberSource]) -> bool:
        """Note numbers that change. Return whether the next capture differs by that."""
        new = [s for s in sources if s.identity not in self._inputs and s.identity not in self._constants]
        if self._are_suspended or not new or len(self._inputs) + len(self._constants) + len(new) > _MOST:
            return False
        self._inputs.update((source.identity, source) for source in new)
        return True

    def is_input(self, identity: Identity) -> bool:
        """Whether the next capture has a number as an input."""
        return identity in self._inputs and not self._are_suspended

    def fix(self, identities: Iterable[Identity]) -> None:
        """Make constants of these inputs."""
        for identity in identities:
            self._constants[identity] = self._inputs.pop(identity)

    def fix_all(self) -> dict[Identity, NumberSource]:
        """Make constants of all inputs, and return them for `unfix`."""
        inputs, self._inputs = self._inputs, {}
        self._constants.update(inputs)
        return inputs

    def unfix(self, inputs: dict[Identity, NumberSource]) -> None:
        """Make inputs of them again."""
        for identity in inputs:
            self._constants.pop(identity, None)
        self._inputs.update(inputs)
