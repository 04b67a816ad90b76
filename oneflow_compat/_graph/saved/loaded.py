"""A graph read from disk (package.py), which runs without the class it was captured from."""

from __future__ import annotations

import functools
import threading

import torch
import torch.utils._pytree as pytree
from torch._C import _increment_version as increment_version

from ..compile import compiler_for
from ..program.writes import silent_writes, written_before_the_last_check
from ..config import Config
from ..errors import ProgramError
from ..explanations import list_text
from ..program.scalar_guards import compile_guard
from ..program.dimension_guards import example_shape
from ..program.locations import SavedValue
from ..program.program import Program
from .operators import has_unchecked_index
from ..call.branches import run_or_undo
from ..program.symbolic import BRANCH_TAKEN_OTHERWISE, checks_branches
from ..program.pytree import keys_of, plain_spec, tree_flatten, with_sizes

_making = threading.Lock()


class _Text(str):
    __repr__ = str.__str__


def _form(spec, texts):
    """Return the arguments of a call with each leaf replaced by its text."""
    args, kwargs = pytree.tree_unflatten([_Text(t) for t in texts], spec)
    return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def _kind(leaf):
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def _has_shape(tensor, shape) -> bool:
    """Whether a tensor has this shape, in which a symbol stands for any size."""
    return len(shape) == tensor.dim() and all(
        type(size) is str or size == mine for size, mine in zip(shape, tensor.shape)
    )


def _laid_out(value, stride):
    """Return the tensor with these strides (None: any), in a fresh buffer if its own strides differ."""
    if stride is None or value.layout is not torch.strided or value.stride() == stride:
        return value
    return value.new_empty_strided(value.shape, stride).copy_(value.detach())


class LoadedProgram:
    """One program of a loaded graph, compiled at its first run."""

    def __init__(self, program: Program, backend, source, binaries=None):
        self.program, self._run, self._source, self._binaries = program, None, source, binaries
        self.keys = {
            i: s.location.key for i, s in enumerate(program.slots) if isinstance(s.location, SavedValue)
        }
        self.backend = "aten" if has_unchecked_index(program.graph) else backend
        self.args = [i for i, s in enumerate(program.slots) if s.role == "arg"]
        dimensions = program.dimensions
        self._serves_sizes = dimensions and dimensions.compile(with_strides=False)
        self._strides = dimensions and dimensions.compile_strides()
        self._written, self._guard = (
            silent_writes(program),
            compile_guard(program) if program.guard is not None else None,
        )
        self._kept = written_before_the_last_check(program) if checks_branches(program) else None
        keywords = program.in_spec.children()[1]
        self.keywords = keys_of(keywords.context) if keywords.children() else ()

    def form(self):
        """Return the text of the call that the program was saved for."""
        fixed = {i: text for i, _, text in self.program.in_constants}
        tensors = (f"{s.dtype}{list_text(s.shape)}" for s in self.program.slots if s.role == "arg")
        call = _form(
            self.program.in_spec,
            (
                fixed[i] if i in fixed else next(tensors, "tensor")
                for i in range(self.program.in_spec.num_leaves)
            ),
        )
        return call if self.program.dimensions is None else f"{call} where {self.program.dimensions}"

    def tensors_of(self, leaves, spec):
        """Return the tensors among the arguments. Raise an error that explains the difference if this is not
        the saved call.
        """
        program = self.program
        if plain_spec(spec) != program.in_spec:
            raise TypeError(
                f"graph {program.name} was saved for the call {self.form()}, found"
                f" {_form(spec, map(_kind, leaves))}"
            )
        for i, name, text in program.in_constants:
            if repr(leaves[i]) != text:
                raise ValueError(
                    f"argument {name!r} of graph {program.name} was {text} when it was saved, found"
                    f" {leaves[i]!r}; values of Python are fixed in a saved program, call the graph with"
                    " others before it is saved"
                )
        fixed = {i for i, _, _ in program.in_constants}
        tensors = [v for i, v in enumerate(leaves) if i not in fixed]
        for index, value in zip(self.args, tensors, strict=True):
            slot = program.slots[index]
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"argument {slot.name!r} of graph {program.name} must be a tensor, found"
                    f" {type(value).__name__}"
                )
            if value.dtype != slot.dtype or not _has_shape(value, slot.shape):
                raise TypeError(
                    f"argument {slot.name!r} of graph {program.name} must be {slot.dtype}{list_text(slot.shape)},"
                    f" found {value.dtype}{list(value.shape)}; a saved program holds for one shape, call the"
                    " graph with others before it is saved"
                )
        if self._serves_sizes and not self._serves_sizes(leaves):
            raise TypeError(
                f"graph {program.name} was saved for the call {self.form()}, found"
                f" {_form(spec, map(_kind, leaves))}; call the graph with such sizes before it is saved"
            )
        return tensors

    def values(self, state, tensors):
        """Return the values of the slots."""
        values = [None] * len(self.program.slots)
        for index, key in self.keys.items():
            values[index] = state[key]
        slots = [self.program.slots[index] for index in self.args]
        by_argument = {slot.location.index: value for slot, value in zip(slots, tensors)}
        strides = self._strides(by_argument) if self._strides and by_argument else {}
        for index, slot, value in zip(self.args, slots, tensors):
            stride = strides.get(slot.location.index, slot.stride)
            values[index] = _laid_out(value.to(slot.device), stride)
        return values

    def holds(self, values):
        """Return True if the values that build() branched on match this program."""
        return self._guard is None or self._guard(*values)

    def run(self, values):
        """Return the result of build()."""
        if self._run is None:
            with _making, torch._C._DisableAutocast():
                self._run = self._run or self._compiled()
        program = self.program
        run = (
            self._run
            if self._kept is None
            else functools.partial(run_or_undo, self._run, self._kept, program)
        )
        with (
            torch._C._DisableAutocast(),
            torch.set_grad_enabled(program.training or torch.is_grad_enabled()),
        ):  # oneDNN's LSTM keeps the values for backward only then
            keep = torch._C._AutoDispatchBelowAutograd()
            try:
                out = iter(run(*values))
            finally:
                del keep  # the traceback of an error would keep it alive
            increment_version([values[i] for i in self._written])
        fixed = dict(program.out_constants)
        flat = [fixed[i] if i in fixed else next(out) for i in range(program.out_spec.num_leaves)]
        return pytree.tree_unflatten(flat, with_sizes(program.out_spec))

    def _compiled(self):
        try:
            if self._binaries is not None and not has_unchecked_index(self.program.graph):
                run = self._binaries.function_for(self.program, self.backend)
                if run is not None:
                    return run
            return compiler_for(self.backend)(self.program, Config(backend=self.backend))
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            AssertionError,
            SyntaxError,
        ) as error:  # marks or shapes that do not match the nodes
            raise ProgramError(
                f"{self._source}: its program cannot be compiled for the backend {self.backend!r}"
                f" ({type(error).__name__}: {error}); save the graph again"
            ) from error

    def read(self, key, tensor):
        """Use this tensor for the key from now on."""
        strides = {self.program.slots[i].stride for i, k in self.keys.items() if k == key}
        if strides - {None, tensor.stride()}:  # compiled code reads the old memory
            self.backend, self._run = "aten", compiler_for("aten")(self.program, Config(skip=("in_blocks",)))


class LoadedGraph:
    """A graph read from disk; call it with the arguments of build().

    The state (weights, optimizer slots) lives in the loaded graph, by name. It has one program for each call
    signature that the graph had been called with. The first program is the last one that ran before saving.
    """

    def __init__(self, programs, state, backend, schedules=()):
        self.programs = programs
        self.backend = backend
        self._state = state
        self._schedules = list(schedules)

    program = property(lambda self: self.programs[0].program)
    name = property(lambda self: self.program.name)
    training = property(lambda self: self.program.training)

    def __call__(self, *args, **kwargs):
        error, fitting = None, False
        for loaded in self.programs:
            ordered = (
                {k: kwargs[k] for k in loaded.keywords} if kwargs.keys() == set(loaded.keywords) else kwargs
            )
            try:
                tensors = loaded.tensors_of(*tree_flatten((args, ordered)))
            except (TypeError, ValueError) as mismatch:
                error = error or mismatch
                continue
            fitting, values = True, loaded.values(self._state, tensors)
            if not loaded.holds(values):
                continue
            try:
                return self._ran(loaded, values, tensors)
            except RuntimeError as mismatch:
                if BRANCH_TAKEN_OTHERWISE not in str(mismatch) or len(self.programs) == 1:
                    raise
                error = mismatch
        if fitting and not isinstance(error, RuntimeError):
            raise ValueError(
                f"build() of graph {self.name} decides by values, and no saved program is of these; call the"
                " graph with such values before it is saved"
            )
        if isinstance(error, RuntimeError) or len(self.programs) == 1:
            raise error
        leaves, spec = tree_flatten((args, kwargs))
        raise TypeError(
            f"graph {self.name} was saved for the calls"
            f" {', '.join(dict.fromkeys(loaded.form() for loaded in self.programs))}, found"
            f" {_form(spec, map(_kind, leaves))}; call the graph so before it is saved"
        )

    def _ran(self, loaded, values, tensors):
        out = loaded.run(values)
        for index, value in zip(loaded.args, tensors):
            if loaded.program.slots[index].written and values[index] is not value:
                value.detach().copy_(values[index])
        for schedule in self._schedules:
            self._state.update(schedule.next())
        return out

    def warm_up(self):
        """Run the first program once on zeros."""
        loaded = self.programs[0]
        zeros = [
            torch.zeros(example_shape(loaded.program, slot), dtype=slot.dtype, device=slot.device)
            for slot in (loaded.program.slots[i] for i in loaded.args)
        ]
        self._ran(loaded, loaded.values(self._state, zeros), zeros)

    def take(self, tensors):
        """Replace parameters and buffers read from disk by live ones of the same name, shape and dtype.
        Return {name: the tensor read from disk}.
        """
        places = {
            s.name: loaded.keys[i]
            for loaded in self.programs
            for i, s in enumerate(loaded.program.slots)
            if s.role in ("param", "buffer") and s.name in tensors
        }
        before = {name: self._state[key] for name, key in places.items()}
        for name, saved in before.items():
            if (tensors[name].shape, tensors[name].dtype) != (saved.shape, saved.dtype):
                raise RuntimeError(
                    f"graph {self.name}: {name!r} of the module is"
                    f" {tensors[name].dtype}{list(tensors[name].shape)}, the saved program needs"
                    f" {saved.dtype}{list(saved.shape)}; save the graph of this module"
                )
        for name, key in places.items():
            self._state[key] = tensors[name]
            for loaded in self.programs:
                loaded.read(key, tensors[name])
        return before

    def state_dict(self):
        """Return {name: live tensor or scalar} of everything that the programs read besides arguments."""
        return self._state | {
            f"schedule{i}.step": schedule.step for i, schedule in enumerate(self._schedules)
        }

    def load_state_dict(self, state):
        """Copy tensors and scalars in. Names and shapes must match state_dict()."""
        steps = [f"schedule{i}.step" for i in range(len(self._schedules))]
        if self._state.keys() | set(steps) != state.keys() | set(steps):
            raise RuntimeError(
                f"graph {self.name}: names differ: {sorted(self._state.keys() ^ (state.keys() - set(steps)))}"
            )
        for name, mine in self._state.items():
            if isinstance(mine, torch.Tensor) and mine.shape != state[name].shape:
                raise RuntimeError(
                    f"graph {self.name}: {name!r} has the shape {list(state[name].shape)}, needed"
                    f" {list(mine.shape)}"
                )
        for name, mine in self._state.items():
            if isinstance(mine, torch.Tensor):
                mine.copy_(state[name])
            else:
                self._state[name] = state[name]
        for schedule, name in zip(self._schedules, steps):
            schedule.step = state.get(name, schedule.step)

    @property
    def lr(self):
        """The learning rates, {name: value}. A schedule of oneflow.optim.lr_scheduler updates them; set_lr()
        changes them and ends the schedule.
        """
        return {
            s.name: self._state[one.keys[i]]
            for one in self.programs
            for i, s in enumerate(one.program.slots)
            if s.role == "lr"
        }

    def set_lr(self, value, name=None):
        """Set one learning rate, or all of them."""
        names = list(self.lr) if name is None else [name]
        for wanted in names:
            if wanted not in self.lr:
                raise KeyError(
                    f"graph {self.name} has no learning rate {wanted!r}; there are {list(self.lr)}"
                )
        self._state.update(dict.fromkeys(names, float(value)))
        for schedule in self._schedules:
            schedule.rates = [None if name in names else name for name in schedule.rates]

    def save(self, folder, compiled=False):
        """Write the graph with its current state; with `compiled`, also the machine code of its programs."""
        from .writer import save

        save(
            [(one.program, one.values(self._state, ())) for one in self.programs],
            folder,
            self.backend,
            [s.record() for s in self._schedules],
            compiled,
        )

    def __repr__(self):
        more = f", {len(self.programs)} programs" if len(self.programs) > 1 else ""
        return (
            f"LoadedGraph({self.name}, {'training' if self.training else 'inference'}, {self.program.count()}"
            f" operators{more})"
        )
