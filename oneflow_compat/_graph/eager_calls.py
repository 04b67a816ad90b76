"""Calls where what build() reads cannot be observed: build() and the update run in eager mode, every time.

A program would miss changes of what build() read, so no program is captured. Options that only decide how a
program is compiled have no meaning here. These have their meaning: micro batches, autocast, loss scaling,
clipping, schedules, the modes of the first call, and arguments that keep their values.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from .._signals import held
from .call.epilogue import step_schedulers
from .call.module_modes import ModeNotice
from .capture.build import autocast_of, join_batches, loss_factor, split_batch
from .capture.patches.patching import everything_undone, patched
from .capture.side_effects.set_aside import GradientsAside, ModesOfFirstCapture
from .capture.state_map import StateMap, memory_id, resolve
from .capture.update import sparse_rows
from .capture.update.loss_scaling import resolve_scaler, unscale, update_scale
from .capture.update.step import clip, fill_packed_gradients, refuse_class
from .errors import CaptureError
from .observe.support import INSTALL, why_unobserved

if TYPE_CHECKING:
    from .assumptions import Assumptions
    from .capture.interfaces import LossFactor
    from .config import Config
    from .definition import GraphDefinition


@functools.lru_cache(None)
def warn_of_eager_calls(reason: str) -> None:
    """Warn once in a process that no program is captured."""
    warnings.warn(
        f"nn.Graph runs build() in eager mode on every call: {reason}. For compiled programs, {INSTALL}.",
        stacklevel=5,
    )


class EagerCalls:
    """The calls of one graph. `has_begun` tells whether there was one."""

    def __init__(self, definition: GraphDefinition, config: Config, assumptions: Assumptions) -> None:
        self.definition, self.config, self.assumptions = definition, config, assumptions
        self.has_begun = False
        self._mode_notice: ModeNotice | None = None

    @property
    def reason(self) -> str:
        """Why this graph has no programs."""
        return f"graph {self.definition.name} runs build() in eager mode on every call: {why_unobserved()}"

    def begin(self) -> None:
        """Warn once in a process that graphs run in eager mode; raise CaptureError if the graph is strict."""
        if self.config.strict:
            raise self.no_program("graph.config.strict(True)")
        self.has_begun = True
        warn_of_eager_calls(why_unobserved() or "")

    def no_program(self, purpose: str) -> CaptureError:
        """Return the error of a request that needs a program."""
        return CaptureError(f"{purpose} needs a program, but {self.reason}", f"For programs, {INSTALL}.")

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.begin()
        self._tell_modes()
        definition = self.definition
        trains = bool(callable(definition.optimizers) or definition.optimizers)
        optimizers = () if callable(definition.optimizers) else definition.optimizers
        state = StateMap(resolve(definition.modules), resolve(definition.tensors), optimizers)
        tensors = [entry.tensor for entry in state.by_id.values()]
        histories = _Histories([module for _, module in state.all_modules()], definition.owner)
        kept = None
        if not definition.writes_through():
            kept = {memory_id(tensor) for tensor in (*tensors, *histories.tensors())}
        with (
            everything_undone(),
            GradientsAside(tensors),
            ModesOfFirstCapture(self.assumptions, state.all_modules()),
            contextlib.ExitStack() as modes,
        ):
            if trains:
                modes.enter_context(torch.inference_mode(False))
                modes.enter_context(torch.enable_grad())
            arguments = _Arguments(args, kwargs, kept)
            results = self._build(arguments, tensors, self.config.accumulation if trains else 1)
            optimizers = resolve(definition.optimizers)
            if optimizers:
                with held():  # the update is one step, whatever signal arrives
                    self._update(optimizers)
            histories.drop()
            return arguments.results(results)

    def _tell_modes(self) -> None:
        if self._mode_notice is None and self.assumptions.modes is not None:
            self._mode_notice = ModeNotice(self.assumptions.modes.values())
        if self._mode_notice is not None and self._mode_notice.changed():
            if self.assumptions.is_first_report("mode"):
                self._mode_notice.tell(self.definition.name)

    def _build(self, arguments: _Arguments, tensors: Sequence[torch.Tensor], parts: int) -> Any:
        """Run build(), once or once per micro batch."""
        config, values = self.config, (*arguments.leaves, *tensors)
        with self._backward(loss_factor(self.definition, parts), values):
            results = []
            for args, kwargs in arguments.batches(parts):
                with autocast_of(config, values):
                    results.append(self.definition.build(*args, **kwargs))
        if parts == 1:
            return results[0]
        flat = [pytree.tree_flatten(result) for result in results]
        spec = flat[0][1]
        if any(other != spec for _, other in flat):
            raise CaptureError(
                "build() returned different structures for different micro batches",
                "Return the same structure in each call.",
            )
        joined = [join_batches(list(leaves)) for leaves in zip(*(leaves for leaves, _ in flat))]
        return pytree.tree_unflatten(joined, spec)

    @contextlib.contextmanager
    def _backward(self, factor: LossFactor, values: Sequence[object]) -> Iterator[None]:
        """Scale the root gradients of backward() by the loss scale and the micro batches."""
        config, thread = self.config, threading.get_ident()

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def run(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != thread:
                    return original(tensors, grad_tensors, *args, **kwargs)
                # gradients have the types of the forward operators
                with autocast_of(config, values, enabled=False):
                    if kwargs.get("accumulate_grad"):
                        grad_tensors = tuple(factor(t, g) for t, g in zip(tensors, grad_tensors))
                    return original(tensors, grad_tensors, *args, **kwargs)

            return run

        with patched(torch.autograd, "_engine_run_backward", make):
            yield

    def _update(self, optimizers: Sequence[tuple[torch.optim.Optimizer, Any]]) -> None:
        """Unscale and clip the gradients, step the optimizers, then their schedules."""
        scaler = resolve_scaler(self.definition.grad_scaler)
        stepped = [optimizer for optimizer, _ in optimizers]
        for optimizer, scheduler in optimizers:
            refuse_class(optimizer, scheduler)
            if optimizer in sparse_rows.lazy:
                raise self.no_program("add_optimizer(is_sparse=True)")
        with torch.no_grad():
            fill_packed_gradients(stepped)
            found_inf = unscale(scaler, stepped) if scaler is not None else None
            clip(stepped, found_inf)
            if found_inf is None or not found_inf:
                for optimizer in stepped:
                    optimizer.step()
            if found_inf is not None:
                update_scale(scaler, found_inf)
        step_schedulers(scheduler for _, scheduler in optimizers if scheduler is not None)


class _Arguments:
    """The arguments of a call, which build() gets as tensors of its own: gradients stay inside the call.

    If `state` is not None, writes of build() to them stay inside as well, apart from arguments in the memory
    of the state.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: set[int] | None) -> None:
        self._callers, self._spec = pytree.tree_flatten((args, kwargs))
        tensors = {id(value): value for value in self._callers if isinstance(value, torch.Tensor)}
        copies: dict[int, torch.UntypedStorage] = {}  # of the memory of arguments
        twins: dict[int, Any] = {}
        for key, value in tensors.items():
            if state is not None and memory_id(value) not in state:
                twins[key] = _copy_of(value, copies)
            elif value.requires_grad:
                twins[key] = value.detach().requires_grad_()
        self.leaves = [twins.get(id(value), value) for value in self._callers]
        self._tree = pytree.tree_unflatten(self.leaves, self._spec) if twins else (args, kwargs)
        self._caller_of = {id(twins[key]): (tensors[key], _version(twins[key])) for key in twins}

    def batches(self, parts: int) -> Iterator[Any]:
        """Yield (args, kwargs) of each micro batch."""
        if parts == 1:
            yield self._tree
            return
        splits = [
            split_batch(value, parts) if isinstance(value, torch.Tensor) else [value] * parts
            for value in self.leaves
        ]
        for k in range(parts):
            yield pytree.tree_unflatten([split[k] for split in splits], self._spec)

    def results(self, results: Any) -> Any:
        """Return the results of build() without histories; an argument among them is the caller's tensor."""
        return pytree.tree_map(self._result, results)

    def _result(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        caller, version = self._caller_of.get(id(value), (None, 0))
        if caller is not None and _version(value) == version:
            value = caller
        return value.detach() if value.requires_grad else value


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _copy_of(tensor: torch.Tensor, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """Return a copy with the same place in its memory. Arguments that share memory share its copy."""
    source = tensor.detach()
    if source.layout is not torch.strided or type(source) is not torch.Tensor:
        return source.clone().requires_grad_(tensor.requires_grad)
    is_conjugate = source.is_conj()
    source = source.conj() if is_conjugate else source
    memory = source.untyped_storage()
    if memory._cdata not in copies:
        copies[memory._cdata] = torch.UntypedStorage(memory.nbytes(), device=source.device)
    copy = torch.empty(0, dtype=source.dtype, device=source.device)
    copy.set_(copies[memory._cdata], source.storage_offset(), source.shape, source.stride())
    if torch._debug_has_internal_overlap(source):
        copy.untyped_storage().copy_(memory)
    else:
        copy.copy_(source)
    return (copy.conj() if is_conjugate else copy).requires_grad_(tensor.requires_grad)


class _Histories:
    """Tensors in attributes of modules and of the graph lose the history that build() gave them.

    The next call would otherwise go back through this one.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], owner: object) -> None:
        containers = [c for module in modules for c in (vars(module), module._buffers)]
        self._containers = [*containers, vars(owner)] if hasattr(owner, "__dict__") else containers
        self._before = {id(value) for container in self._containers for value in _with_history(container)}

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors in attributes, which are state."""
        for container in self._containers:
            yield from (value for value in container.values() if isinstance(value, torch.Tensor))

    def drop(self) -> None:
        for container in self._containers:
            for value in _with_history(container):
                if id(value) not in self._before:
                    key = next(key for key, other in container.items() if other is value)
                    container[key] = value.detach()


def _with_history(container: dict[str, Any]) -> list[torch.Tensor]:
    values = [value for value in container.values() if isinstance(value, torch.Tensor)]
    return [value for value in values if value.grad_fn is not None]
