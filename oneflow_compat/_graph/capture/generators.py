"""A torch.Generator made in build() begins anew at every call, as it does in eager mode; one made outside
keeps drawing.
"""

from __future__ import annotations

import contextlib

import torch

from ..program.random_functions import seed_generator
from .function_aliases import everywhere


@contextlib.contextmanager
def generators_of_build(recorder, active):
    """While build() is captured, torch.Generator(...) and its seeds are recorded."""
    original = torch.Generator

    def record(generator, seed):
        recorder._annotate(recorder.graph.call_function(seed_generator, (generator, int(seed))))

    class Kind(type(original)):
        def __instancecheck__(cls, value):
            return isinstance(value, original)

    class Generator(original, metaclass=Kind):
        def __init__(self, device="cpu"):
            if active():
                record(self, self.initial_seed())

        def manual_seed(self, seed):
            if active():
                record(self, seed)
            return original.manual_seed(self, seed)

    with everywhere({"Generator": (original, Generator)}):
        yield
