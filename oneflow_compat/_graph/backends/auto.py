"""The default: run the captured operators at once, and compile with inductor when that pays.

A program first runs on the aten backend, so the first result comes without waiting for a compiler.
From its third call on it is compiled when a call takes over LONG seconds (a real model: fusion pays at
once), or when its calls have taken over ENOUGH seconds together (a small one that runs for long). A short
program that is called a few times, as in tests and notebooks, never waits for a compiler. A long program of
short operators, a loop over time steps say, is compiled once its calls have taken as long as the compiler will.
The numbers change by rounding at the switch; set_backend() fixes one backend from the first call.
"""
from __future__ import annotations

import time
import warnings

from ..random_state import draws_again
from . import aten, inductor
from .decompositions import talks

LONG = 2e-3
ENOUGH = 2.0
MANY, SHORT, COMPILED = 1000, 1e-5, 0.015  # operators; seconds: of a short one, to compile one (2,178 of a loop over time steps took 76 s on a core in use by others: half of that)


def compile(program, config, name="auto"):
    """A function over the slot values that changes from aten to inductor by itself; aten alone where ranks talk (they would change at different calls) or random numbers are drawn again."""
    if talks(program.graph) or draws_again(program.graph):
        return aten.compile(program, config)
    return Tiered(program, config)


class Tiered:
    """Calls `current`, which is a timed aten run until the switch and the chosen backend's function after it."""

    def __init__(self, program, config):
        self.program, self.config = program, config
        self.backend = "aten"
        self.calls, self.spent, self.least = 0, 0.0, float("inf")
        self.aten = aten.compile(program, config)
        self.operators = _operators(program.graph)
        self.on_cuda = any(getattr(s.device, "type", "cpu") != "cpu" for s in program.slots)
        self.current = self._timed

    def __call__(self, *values):
        return self.current(*values)

    def _timed(self, *values):
        if self.calls == 2 and self.operators > MANY:
            self.operators = _operators(inductor.region_of(self.program)[0].graph)
        if self.calls >= 2 and (self.on_cuda or self._pays()):
            return self._switch()(*values)
        begin = time.perf_counter()
        out = self.aten(*values)
        seconds = time.perf_counter() - begin
        self.calls += 1
        self.spent += seconds
        self.least = min(self.least, seconds)
        return out

    def _pays(self):
        if self.operators > MANY and self.least < SHORT * self.operators:
            return self.spent > COMPILED * self.operators
        return self.least > LONG or self.spent > ENOUGH

    def _switch(self):
        begin = time.perf_counter()
        try:
            self.current = inductor.compile(self.program, self.config)
            self.backend = "inductor"
        except Exception as error:
            self.current = self.aten
            text = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            warnings.warn(f"graph {self.program.name}: inductor could not compile it ({text}); it stays on the aten backend", stacklevel=6)
        if self.config.on_stage is not None:
            self.config.on_stage(f"compile {self.backend}", time.perf_counter() - begin, self.program)
        return self.current


def _operators(graph):
    return sum(n.op == "call_function" for n in graph.nodes)
