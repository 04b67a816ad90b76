"""A graph read from disk (package.py), which runs without the class it was captured from."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..._signals import held
from ..call.branches import BranchTaken, with_branches
from ..call.checks import with_checks
from ..call.epilogue import Epilogue
from ..call.prologue import Prologue, Scope, Stage, Test, gather
from ..compile import compiler_for
from ..config import Config
from ..errors import ProgramError
from ..explanations import list_text
from ..guards.conditions import compile_guard
from ..guards.tensors import TensorSlot
from ..program.captured import Effects
from ..program.locations import Argument, LiveState, SavedValue
from ..program.program import CompiledFunction, Program
from ..program.pytree import keys_of, plain_spec, tree_flatten
from ..program.symbolic import checks_branches
from . import writer
from .binaries import SavedBinaries
from .operators import has_unchecked_index
from .schedules import SavedSchedule

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec

    from ..program.program import Slot
    from ..program.tensor_info import Shape


_compiling = threading.Lock()


class _Unquoted(str):
    __repr__ = str.__str__


def _form(spec: TreeSpec, descriptions: Iterable[str]) -> str:
    """Return the arguments of a call, as text, with each leaf replaced by its description."""
    args, kwargs = pytree.tree_unflatten([_Unquoted(d) for d in descriptions], plain_spec(spec))
    return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def _description(leaf: object) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def _has_shape(tensor: torch.Tensor, shape: Shape) -> bool:
    """Whether a tensor has this shape, in which a symbol stands for any size."""
    return len(shape) == tensor.dim() and all(
        type(size) is str or size == mine for size, mine in zip(shape, tensor.shape)
    )


def _laid_out(value: torch.Tensor, stride: Shape | None) -> torch.Tensor:
    """Return the tensor with these strides (None: any), in a fresh buffer if its own strides differ."""
    if stride is None or value.layout is not torch.strided or value.stride() == stride:
        return value
    steps: Any = stride  # numbers: this is a slot without symbols, or the strides of this call
    return value.new_empty_strided(value.shape, steps).copy_(value.detach())


class LoadedProgram:
    """One program of a loaded graph, compiled at its first run."""

    def __init__(
        self,
        program: Program,
        state: dict[str, Any],
        backend: str,
        file_name: str,
        binaries: SavedBinaries | None = None,
    ) -> None:
        self.program, self._file_name, self._binaries = program, file_name, binaries
        self._run: CompiledFunction | None = None
        self.keys = {
            i: s.location.key for i, s in enumerate(program.slots) if isinstance(s.location, SavedValue)
        }
        self.backend = "aten" if has_unchecked_index(program.graph) else backend
        # (index among the flattened arguments, slot) of each argument
        self.args = [(s.location.index, s) for s in program.slots if isinstance(s.location, Argument)]
        self.writes_arguments = any(slot.written for _, slot in self.args)
        dimensions = program.dimensions
        self._serves_sizes = dimensions and dimensions.compile(with_strides=False)
        self._strides = dimensions and dimensions.compile_strides()
        self._live = LiveState(saved=state)
        self._prologue = Prologue(program, self._live, self._tests)
        self._epilogue = Epilogue(program, Effects(), self._live)
        keywords = program.in_spec.children()[1]
        self.keywords = keys_of(keywords.context) if keywords.children() else ()

    def _tests(self, scope: Scope, tensors: tuple[TensorSlot, ...]) -> tuple[Test, ...]:
        """Return the one test that a loaded program needs: nothing else of it can change."""
        if self.program.guard is None:
            return ()
        guard = scope.bind(compile_guard(self.program))
        return (Test("values that build() read", f"{guard}(*values)", Stage.VALUES),)

    def form(self) -> str:
        """Return the text of the call that the program was saved for."""
        spec = self.program.in_spec
        fixed = {i: value for i, _, value in self.program.in_constants}
        tensors = (f"{s.dtype}{list_text(s.shape)}" for _, s in self.args)
        leaves = range(spec.num_leaves)
        call = _form(spec, (fixed[i] if i in fixed else next(tensors, "tensor") for i in leaves))
        return call if self.program.dimensions is None else f"{call} where {self.program.dimensions}"

    def in_saved_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments in the order of the saved call, if they are the same."""
        return {k: kwargs[k] for k in self.keywords} if kwargs.keys() == set(self.keywords) else kwargs

    def check_call(self, leaves: list[Any], spec: pytree.TreeSpec) -> None:
        """Raise an error that explains the difference if this is not the saved call."""
        program = self.program
        if plain_spec(spec) != program.in_spec:
            raise TypeError(self._mismatch(leaves, spec))
        for i, name, value in program.in_constants:
            if repr(leaves[i]) != value:
                raise ValueError(
                    f"argument {name!r} of graph {program.name} was {value} when it was saved, found"
                    f" {leaves[i]!r}; values of Python are fixed in a saved program, call the graph with"
                    " others before it is saved"
                )
        for index, slot in self.args:
            self._check_argument(slot, leaves[index])
        if self._serves_sizes and not self._serves_sizes(leaves):
            raise TypeError(
                f"{self._mismatch(leaves, spec)}; call the graph with such sizes before it is saved"
            )

    def _mismatch(self, leaves: list[Any], spec: TreeSpec) -> str:
        call = _form(spec, map(_description, leaves))
        return f"graph {self.program.name} was saved for the call {self.form()}, found {call}"

    def _check_argument(self, slot: Slot, value: object) -> None:
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"argument {slot.name!r} of graph {self.program.name} must be a tensor, found"
                f" {type(value).__name__}"
            )
        if slot.shape is None or value.dtype != slot.dtype or not _has_shape(value, slot.shape):
            raise TypeError(
                f"argument {slot.name!r} of graph {self.program.name} must be"
                f" {slot.dtype}{list_text(slot.shape)}, found {value.dtype}{list(value.shape)}; a saved"
                " program holds for one shape, call the graph with others before it is saved"
            )

    def placed(self, leaves: list[Any]) -> list[Any]:
        """Return the arguments with the devices and strides that the program needs."""
        strides = self._strides(leaves) if self._strides else {}
        leaves = list(leaves)
        for index, slot in self.args:
            leaves[index] = _laid_out(leaves[index].to(slot.device), strides.get(index, slot.stride))
        return leaves

    def values(self, leaves: list[Any]) -> tuple[Any, ...] | None:
        """Return the values of the slots, or None if build() branched on other values."""
        return self._prologue.run(leaves)

    def untested_values(self, leaves: list[Any] | None = None) -> tuple[Any, ...]:
        """Return the values of the slots, with None for arguments if there are no leaves."""
        return gather(self.program, self._live, leaves or [None] * self.program.in_spec.num_leaves)

    def run(self, values: Sequence[Any]) -> Any:
        """Return the result of build()."""
        run = self._run
        if run is None:
            with _compiling, torch._C._DisableAutocast():
                run = self._run = self._run or self._compiled()
        # oneDNN's LSTM keeps the values for backward only if gradients are enabled
        has_gradients = self.program.training or torch.is_grad_enabled()
        with torch._C._DisableAutocast(), torch.set_grad_enabled(has_gradients):
            below_autograd = torch._C._AutoDispatchBelowAutograd()
            try:
                outputs = run(*values)
            finally:
                del below_autograd  # the traceback of an error would keep it alive
            return self._epilogue(values, outputs, (), {})

    def _compiled(self) -> CompiledFunction:
        try:
            run = None
            if self._binaries is not None and not has_unchecked_index(self.program.graph):
                run = self._binaries.function_for(self.program, self.backend)
            return self._compile(Config(backend=self.backend)) if run is None else self._with_branches(run)
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            AssertionError,
            SyntaxError,
        ) as error:  # marks or shapes that do not match the nodes
            raise ProgramError(
                f"{self._file_name}: its program cannot be compiled for the backend {self.backend!r}"
                f" ({type(error).__name__}: {error}); save the graph again"
            ) from error

    def _compile(self, config: Config) -> CompiledFunction:
        return self._with_branches(compiler_for(self.backend)(self.program, config))

    def _with_branches(self, run: CompiledFunction) -> CompiledFunction:
        run = with_checks(self.program, run)
        return with_branches(run) if checks_branches(self.program.graph) else run

    def read(self, key: str, tensor: torch.Tensor) -> None:
        """Use this tensor for the key from now on."""
        strides = {self.program.slots[i].stride for i, k in self.keys.items() if k == key}
        if strides - {None, tensor.stride()}:  # compiled code reads the old memory
            self.backend = "aten"
            self._run = self._compile(Config(skipped_passes=frozenset({"in_blocks"})))


class LoadedGraph:
    """A graph read from disk; call it with the arguments of build().

    The state (weights, optimizer slots) lives in the loaded graph, by name. It has one program for each call
    signature that the graph had been called with. The first program is the last one that ran before saving.
    """

    def __init__(
        self,
        programs: list[LoadedProgram],
        state: dict[str, Any],
        backend: str,
        schedules: Sequence[SavedSchedule] = (),
    ) -> None:
        self.programs = programs
        self.backend = backend
        self._state = state
        self._schedules = list(schedules)

    @property
    def program(self) -> Program:
        return self.programs[0].program

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def training(self) -> bool:
        return self.program.training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the first program that serves the call, or raise an error that says why none does."""
        refusal: Exception | None = None  # refusal of the first program
        takes_arguments = False  # whether some program does, if not their values
        branch: BranchTaken | None = None
        for loaded in self.programs:
            leaves, spec = tree_flatten((args, loaded.in_saved_order(kwargs)))
            try:
                loaded.check_call(leaves, spec)
            except (TypeError, ValueError) as error:
                refusal = refusal or error
                continue
            takes_arguments, placed = True, loaded.placed(leaves)
            values = loaded.values(placed)
            if values is None:
                continue
            try:
                return self._ran(loaded, values, leaves, placed)
            except BranchTaken as taken:
                if len(self.programs) == 1:
                    raise
                branch = taken
        if branch is not None:
            raise branch
        if takes_arguments:
            raise ValueError(
                f"build() of graph {self.name} decides by values, and no saved program is of these; call the"
                " graph with such values before it is saved"
            )
        if refusal is not None and len(self.programs) == 1:
            raise refusal
        leaves, spec = tree_flatten((args, kwargs))
        raise TypeError(
            f"graph {self.name} was saved for the calls"
            f" {', '.join(dict.fromkeys(loaded.form() for loaded in self.programs))}, found"
            f" {_form(spec, map(_description, leaves))}; call the graph so before it is saved"
        )

    def _ran(
        self, loaded: LoadedProgram, values: tuple[Any, ...], leaves: Sequence[Any], placed: Sequence[Any]
    ) -> Any:
        if not loaded.writes_arguments and not self._schedules:
            return loaded.run(values)
        with held():  # no signal comes between the run and what belongs to it
            out = loaded.run(values)
            for index, slot in loaded.args:
                argument, used = leaves[index], placed[index]
                if slot.written and used is not argument:
                    argument.detach().copy_(used)
            for schedule in self._schedules:
                self._state.update(schedule.next())
            return out

    def warm_up(self) -> None:
        """Run the first program once on zeros."""
        loaded = self.programs[0]
        leaves: list[Any] = [None] * loaded.program.in_spec.num_leaves
        for index, slot in loaded.args:
            shape = loaded.program.example_shape(slot)
            leaves[index] = torch.zeros(shape, dtype=slot.dtype, device=slot.device)
        placed = loaded.placed(leaves)
        self._ran(loaded, loaded.untested_values(placed), leaves, placed)

    def take(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Replace parameters and buffers read from disk by live ones of the same name, shape and dtype.
        Return {name: the tensor read from disk}.
        """
        keys = {
            s.name: loaded.keys[i]
            for loaded in self.programs
            for i, s in enumerate(loaded.program.slots)
            if s.role in ("param", "buffer") and s.name in tensors
        }
        before = {name: self._state[key] for name, key in keys.items()}
        for name, saved in before.items():
            if (tensors[name].shape, tensors[name].dtype) != (saved.shape, saved.dtype):
                raise RuntimeError(
                    f"graph {self.name}: {name!r} of the module is"
                    f" {tensors[name].dtype}{list(tensors[name].shape)}, the saved program needs"
                    f" {saved.dtype}{list(saved.shape)}; save the graph of this module"
                )
        for name, key in keys.items():
            self._state[key] = tensors[name]
            for loaded in self.programs:
                loaded.read(key, tensors[name])
        return before

    def state_dict(self) -> dict[str, Any]:
        """Return {name: live tensor or scalar} of everything that the programs read besides arguments."""
        return self._state | {
            f"schedule{i}.step": schedule.step for i, schedule in enumerate(self._schedules)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
    def lr(self) -> dict[str, float]:
        """The learning rates, {name: value}. A schedule of oneflow.optim.lr_scheduler updates them; set_lr()
        changes them and ends the schedule.
        """
        return {
            s.name: self._state[loaded.keys[i]]
            for loaded in self.programs
            for i, s in enumerate(loaded.program.slots)
            if s.role == "lr"
        }

    def set_lr(self, value: float, name: str | None = None) -> None:
        """Set one learning rate, or all of them."""
        names = list(self.lr) if name is None else [name]
        for unknown in set(names) - self.lr.keys():
            raise KeyError(f"graph {self.name} has no learning rate {unknown!r}; there are {list(self.lr)}")
        self._state.update(dict.fromkeys(names, float(value)))
        for schedule in self._schedules:
            schedule.rates = [None if name in names else name for name in schedule.rates]

    def save(self, folder: str, compiled: bool = False) -> None:
        """Write the graph with its current state; with `compiled`, also the machine code of its programs."""
        writer.save(
            [(loaded.program, loaded.untested_values()) for loaded in self.programs],
            folder,
            self.backend,
            [s.record() for s in self._schedules],
            compiled,
        )

    def __repr__(self) -> str:
        mode = "training" if self.training else "inference"
        programs = f", {len(self.programs)} programs" if len(self.programs) > 1 else ""
        return f"LoadedGraph({self.name}, {mode}, {self.program.count()} operators{programs})"
