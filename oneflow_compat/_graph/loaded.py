"""A program read from disk (package.py), which runs without the class it was captured from."""
from __future__ import annotations

import torch
import torch.utils._pytree as pytree
from torch._C import _increment_version as increment_version

from .backends import compiler_for
from .backends.regions import silent_writes
from .config import Config
from .program import Program
from .tree import keys_of, plain_spec, tree_flatten


class _Text(str):
    __repr__ = str.__str__


def _form(spec, texts):
    """A call's arguments, each leaf as its text."""
    args, kwargs = pytree.tree_unflatten([_Text(t) for t in texts], spec)
    return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def _kind(leaf):
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def _laid_out(value, stride):
    """The tensor with these strides (None: any), in new memory where it has others."""
    if stride is None or value.layout is not torch.strided or value.stride() == stride:
        return value
    return value.new_empty_strided(value.shape, stride).copy_(value.detach())


class LoadedProgram:
    """A program read from disk: call it with the arguments build() took. State (weights, optimizer slots) lives in it."""

    def __init__(self, program: Program, values, backend, schedules=()):
        self.program = program
        self.backend = backend
        self._values = values
        self._schedules = list(schedules)
        self._args = [i for i, s in enumerate(program.slots) if s.role == "arg"]
        with torch._C._DisableAutocast():
            self._run = compiler_for(backend)(program, Config(backend=backend))
        self._written = silent_writes(program)
        keywords = program.in_spec.children()[1]
        self._keywords = keys_of(keywords.context) if keywords.children() else ()

    def take(self, index, tensor):
        """A live tensor in the place of the one read from disk, of its shape and dtype."""
        stride = self.program.slots[index].stride
        if stride is not None and tensor.stride() != stride:  # what is compiled reads memory as it was
            self._run = compiler_for("aten")(self.program, Config(skip=("in_blocks",)))
        self._values[index] = tensor

    def _form(self):
        fixed = {i: text for i, _, text in self.program.in_constants}
        tensors = (f"{s.dtype}{list(s.shape)}" for s in self.program.slots if s.role == "arg")
        return _form(self.program.in_spec, (fixed[i] if i in fixed else next(tensors, "tensor") for i in range(self.program.in_spec.num_leaves)))

    name = property(lambda self: self.program.name)
    training = property(lambda self: self.program.training)

    def __call__(self, *args, **kwargs):
        if kwargs.keys() == set(self._keywords):
            kwargs = {k: kwargs[k] for k in self._keywords}
        leaves, spec = tree_flatten((args, kwargs))
        if plain_spec(spec) != self.program.in_spec:
            raise TypeError(f"graph {self.name} was saved for the call {self._form()}, found {_form(spec, map(_kind, leaves))}")
        for i, name, text in self.program.in_constants:
            if repr(leaves[i]) != text:
                raise ValueError(f"argument {name!r} of graph {self.name} was {text} when it was saved, found {leaves[i]!r}; "
                                 "values of Python are fixed in a saved program, save another one for others")
        fixed = {i for i, _, _ in self.program.in_constants}
        return self.run([v for i, v in enumerate(leaves) if i not in fixed])

    def warm_up(self):
        """One run on zeros."""
        slots = [self.program.slots[i] for i in self._args]
        self.run([torch.zeros(s.shape, dtype=s.dtype, device=s.device) for s in slots])

    def run(self, given):
        """What build() returned, of the tensors among its arguments."""
        values = list(self._values)
        for index, value in zip(self._args, given, strict=True):
            slot = self.program.slots[index]
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"argument {slot.name!r} of graph {self.name} must be a tensor, found {type(value).__name__}")
            if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
                raise TypeError(f"argument {slot.name!r} of graph {self.name} must be {slot.dtype}{list(slot.shape)}, found {value.dtype}{list(value.shape)}; "
                                "a saved program holds for one shape, save another one for others")
            values[index] = _laid_out(value.to(slot.device), slot.stride)
        with torch._C._DisableAutocast(), torch.set_grad_enabled(self.program.training or torch.is_grad_enabled()):  # oneDNN's LSTM keeps what backward needs only then
            keep = torch._C._AutoDispatchBelowAutograd()
            try:
                out = iter(self._run(*values))
            finally:
                del keep  # a traceback of an error would keep it
            increment_version([values[i] for i in self._written])
        for index, value in zip(self._args, given):
            if self.program.slots[index].written and values[index] is not value:
                value.detach().copy_(values[index])
        for schedule in self._schedules:
            self._put(schedule.next())
        fixed = dict(self.program.out_constants)
        flat = [fixed[i] if i in fixed else next(out) for i in range(self.program.out_spec.num_leaves)]
        return pytree.tree_unflatten(flat, self.program.out_spec)

    def state_dict(self):
        """{slot name: tensor or number} of everything the program reads besides its arguments, the live objects."""
        steps = {f"schedule{i}.step": schedule.step for i, schedule in enumerate(self._schedules)}
        return {s.name: v for s, v in zip(self.program.slots, self._values) if s.role != "arg"} | steps

    def load_state_dict(self, state):
        """Copy tensors and numbers in; names and shapes must be those of state_dict()."""
        mine = self.state_dict()
        steps = [f"schedule{i}.step" for i in range(len(self._schedules))]
        if mine.keys() != state.keys() | set(steps):
            raise RuntimeError(f"graph {self.name}: names differ: {sorted(mine.keys() ^ state.keys())}")
        for name, value in state.items():
            if isinstance(mine[name], torch.Tensor) and mine[name].shape != value.shape:
                raise RuntimeError(f"graph {self.name}: {name!r} has the shape {list(value.shape)}, needed {list(mine[name].shape)}")
        for i, slot in enumerate(self.program.slots):
            if slot.name in state and slot.role != "arg":
                if isinstance(self._values[i], torch.Tensor):
                    self._values[i].copy_(state[slot.name])
                else:
                    self._values[i] = state[slot.name]
        for schedule, name in zip(self._schedules, steps):
            schedule.step = state.get(name, schedule.step)

    @property
    def lr(self):
        """The learning rates, {slot name: number}; a schedule of oneflow.optim.lr_scheduler moves them, set_lr() changes them and ends it."""
        return {s.name: v for s, v in zip(self.program.slots, self._values) if s.role == "lr"}

    def set_lr(self, value, name=None):
        """Set one learning rate, or all of them."""
        names = list(self.lr) if name is None else [name]
        for wanted in names:
            if wanted not in self.lr:
                raise KeyError(f"graph {self.name} has no learning rate {wanted!r}; there are {list(self.lr)}")
        self._put(dict.fromkeys(names, float(value)))
        for schedule in self._schedules:
            schedule.rates = [None if name in names else name for name in schedule.rates]

    def _put(self, numbers):
        for i, slot in enumerate(self.program.slots):
            if slot.role == "lr" and slot.name in numbers:
                self._values[i] = numbers[slot.name]

    def save(self, folder):
        """Write the program with its state as it is now."""
        from .package import save

        save(self.program, self._values, folder, self.backend, [s.record() for s in self._schedules])

    def __repr__(self):
        return f"LoadedProgram({self.name}, {'training' if self.training else 'inference'}, {self.program.count()} operators)"
