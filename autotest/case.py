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

    __slots__ = ("kind", "target", "args", "kwargs", "out", "value", "number", "random", "requires_grad")

    def __init__(self, kind, target, args=(), kwargs=None, out=None, value=None, random=None):
        self.kind, self.target, self.args, self.kwargs = kind, target, args, kwargs or {}
        self.out, self.value, self.number = out, value, -1
        self.random = random  # state of the random stream before the step, if it draws from it
        self.requires_grad = kind == "input" and out._ref.requires_grad


class Case:
    """The running case; `with case:` makes it current."""

    def __init__(self, pair, options, seed=0):
        self.pair, self.options, self.seed = pair, options, seed
        self.steps: list[Step] = []
        self.modules = []  # dual modules made in this case
        self.known_modules = set()
        self.module_start = {}  # id of a candidate module: (step, state, training flags) at its first forward
        self.outputs = []
        self.output_gradients = []

    def add(self, step: Step):
        step.number = len(self.steps)
        self.steps.append(step)
        if step.out is not None:
            object.__setattr__(step.out, "_step", step)
        if self.options.verbose:
            from .script import step_text

            print(f"[autotest] {step_text(self, step)}", flush=True)
        return step

    def note_forward(self, dual):
        """A module is about to run: keep its state as it is now, once, for the graph's own copy and the script."""
        while dual._step is None and dual._owner is not None:
            dual = dual._owner
        module = dual._cand
        if id(module) in self.known_modules and id(module) not in self.module_start:
            state = {k: v.detach().clone() for k, v in (*module.named_parameters(), *module.named_buffers())}
            self.module_start[id(module)] = (len(self.steps), state, {n: m.training for n, m in module.named_modules()})

    def __enter__(self):
        _stack.append(self)
        return self

    def __exit__(self, *exc):
        _stack.pop()


_stack: list[Case] = []


def current():
    return _stack[-1] if _stack else None
