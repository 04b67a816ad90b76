"""The record of one case: what was created, called and returned, in order.

The record serves three readers: the comparison at the end, the graph leg that replays it, and the
report that prints it as a script.
"""
from __future__ import annotations


class Step:
    """One action of the program. `out` is the dual object it made (None for a pure effect).

    kind: "input" (value: torch tensor as it was drawn), "call" (target called), "op" (a Python operator),
    "get" (attribute args[0] of the target), "set" (attribute args[0] of the target becomes args[1]).
    """

    __slots__ = ("kind", "target", "args", "kwargs", "out", "value", "number")

    def __init__(self, kind, target, args=(), kwargs=None, out=None, value=None):
        self.kind, self.target, self.args, self.kwargs = kind, target, args, kwargs or {}
        self.out, self.value, self.number = out, value, -1


class Case:
    """The running case; `with case:` makes it current."""

    def __init__(self, pair, options, seed=0):
        self.pair, self.options, self.seed = pair, options, seed
        self.steps: list[Step] = []
        self.modules = []  # dual modules made in this case
        self.known_modules = set()
        self.outputs = []
        self.escaped = False  # the test took one side of a dual tensor out and may have changed it
        self.backward_done = False

    def add(self, step: Step):
        step.number = len(self.steps)
        self.steps.append(step)
        if step.out is not None:
            object.__setattr__(step.out, "_step", step)
        if self.options.verbose:
            from .script import step_text

            print(f"[autotest] {step_text(self, step)}", flush=True)
        return step

    def __enter__(self):
        _stack.append(self)
        return self

    def __exit__(self, *exc):
        _stack.pop()


_stack: list[Case] = []


def current():
    return _stack[-1] if _stack else None
