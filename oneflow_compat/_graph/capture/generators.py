"""A torch.Generator made in build() begins anew at every call, as it does in eager mode; one made outside
keeps drawing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..program.random_functions import seed_generator
from .function_aliases import everywhere

if TYPE_CHECKING:
    from .recorder import Recorder


@contextlib.contextmanager
def generators_of_build(recorder: Recorder, active: Callable[..., Any]) -> Iterator[None]:
    """While build() is captured, torch.Generator(...) and its seeds are recorded."""
    original = torch.Generator

    def record(generator: Any, seed: Any) -> None:
        recorder._annotate(recorder.graph.call_function(seed_generator, (generator, int(seed))))

    class Kind(type(original)):
        def __instancecheck__(cls, value: Any) -> Any:
            return isinstance(value, original)

    class Generator(original, metaclass=Kind):
        def __init__(self, device: Any = "cpu") -> None:
            if active():
                record(self, self.initial_seed())

        def manual_seed(self, seed: Any) -> Any:
            if active():
                record(self, seed)
            return original.manual_seed(self, seed)

    with everywhere({"Generator": (original, Generator)}):
        yield
