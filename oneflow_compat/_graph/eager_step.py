"""One call of a graph in eager mode: build(), then the update, with the rules of a graph.

Options that only decide how a program is compiled have no meaning here. These have their meaning: micro
batches, autocast, loss scaling, clipping, schedules, the modes of the first call, and arguments that keep
their values.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch.nn.parameter import is_lazy

from .._active import building_eagerly
from .._global.zero import splitting
from .._signals import held
from .call.epilogue import step_schedulers
from .capture.build import autocast_of, join_batches, loss_factor, split_batch
from .capture.patches.patching import everything_undone, patched
from .capture.patches.stages import inputs_on_stages
from .capture.side_effects.set_aside import GradientsAside, ModesOfFirstCapture
from .capture.state_map import StateMap, resolve
from .capture.update.kept_gradients import KeptGradients
from .capture.update.loss_scaling import resolve_scaler, unscale, update_scale
from .capture.update.step import clip, fill_packed_gradients, refuse_class
from .compile.copies import CallState
from .errors import CaptureError
from .guards.modes import ModeNotice
from .program.memory import memory_id

if TYPE_CHECKING:
    from .assumptions import Assumptions
    from .capture.interfaces import LossFactor
    from .config import Config
    from .definition import GraphDefinition


class EagerStep:
    """Runs build() and the update of one graph in eager mode, as a program of them would."""

    def __init__(self, definition: GraphDefinition, config: Config, assumptions: Assumptions) -> None:
        self.definition, self.config, self.assumptions = definition, config, assumptions
        self._mode_notice: ModeNotice | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        definition = self.definition
        definition.store_shards(self.config)
        if definition.steps_in_build:  # eager mode steps inside build()
            with autocast_of(self.config, pytree.tree_leaves((args, kwargs))):
                return (definition.unrecorded or definition.build)(*args, **kwargs)
        self._tell_modes()
        trains = definition.updates_after_build
        modules, tensors = self._state()
        attributes = _Attributes(modules, definition.owner)
        kept = None
        if not definition.writes_through():
            kept = {memory_id(tensor) for tensor in (*tensors, *attributes.tensors)}
        with (
            everything_undone(),
            GradientsAside(tensors if trains else ()) as aside,
            building_eagerly(),
            inputs_on_stages(definition.stages()),
            ModesOfFirstCapture(self.assumptions, (("", module) for module in modules)),
            contextlib.ExitStack() as modes,
        ):
            if trains:
                modes.enter_context(torch.inference_mode(False))
                modes.enter_context(torch.enable_grad())
            arguments = _Arguments(args, kwargs, kept)
            results = self._build(arguments, tensors, self.config.accumulation if trains else 1)
            late = StateMap({}, {}, resolve(definition.optimizers))
            if late.optimizers:
                with held():  # the update is one step, whatever signal arrives
                    self._update(late, KeptGradients(late, aside.hidden()))
            attributes.drop_new_histories()
            return arguments.results(results)

    @contextlib.contextmanager
    def restored_on_error(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        """Restore state, arguments and random generators if an error leaves this context.

        A step of eager mode keeps what it wrote before the error.
        """
        if self.definition.steps_in_build:
            yield
            return
        _, tensors = self._state()
        state = CallState(list(filter(_has_memory, (*tensors, *pytree.tree_leaves((args, kwargs))))))
        try:
            yield
        except BaseException:
            with torch.no_grad():
                state.restore()
            raise

    def _state(self) -> tuple[list[torch.nn.Module], list[torch.Tensor]]:
        """Return the modules of the graph, and the tensors of its state before build()."""
        definition = self.definition
        optimizers = () if callable(definition.optimizers) else definition.optimizers
        modules = [m for module in resolve(definition.modules).values() for m in module.modules()]
        return modules, _tensors_of_state(modules, resolve(definition.tensors), optimizers)

    def _tell_modes(self) -> None:
        if self._mode_notice is None and self.assumptions.modes is not None:
            self._mode_notice = ModeNotice(self.assumptions.modes.values())
        if self._mode_notice is not None and self._mode_notice.changed():
            if self.assumptions.is_first_report("mode"):
                self._mode_notice.tell(self.definition)

    def _build(self, arguments: _Arguments, tensors: Sequence[torch.Tensor], parts: int) -> Any:
        """Run build(), once or once per micro batch."""
        config, values = self.config, (*arguments.leaves, *tensors)
        build = self.definition.unrecorded or self.definition.build
        with self._backward(loss_factor(self.definition, parts), values):
            results = []
            for args, kwargs in arguments.batches(parts):
                with autocast_of(config, values):
                    results.append(build(*args, **kwargs))
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

    def _update(self, state: StateMap, kept_gradients: KeptGradients) -> None:
        """Unscale and clip the gradients, step the optimizers, then their schedules."""
        scaler = resolve_scaler(self.definition.grad_scaler)
        stepped = [optimizer for optimizer, _ in state.optimizers]
        for optimizer, scheduler in state.optimizers:
            refuse_class(optimizer, scheduler)
        with torch.no_grad(), splitting(self.config.zero):
            fill_packed_gradients(stepped)
            kept_gradients.fill_in()
            found_inf = unscale(scaler, stepped) if scaler is not None else None
            clip(stepped, found_inf)
            if found_inf is None or not found_inf:
                for optimizer in stepped:
                    optimizer.step()
            if found_inf is not None:
                update_scale(scaler, found_inf)
        kept_gradients.note()
        step_schedulers(scheduler for _, scheduler in state.optimizers if scheduler is not None)


class _Arguments:
    """The arguments of a call, which build() gets as tensors of its own: gradients stay inside the call.

    If `state` is not None, writes of build() to them stay inside as well, apart from arguments in the memory
    of the state.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: set[int] | None) -> None:
        self._callers, self._spec = pytree.tree_flatten((args, kwargs))
        tensors = {id(value): value for value in self._callers if isinstance(value, torch.Tensor)}
        copies: dict[int, torch.UntypedStorage] = {}  # {pointer: copy of the memory of an argument}
        twins: dict[int, Any] = {}
        for key, value in tensors.items():
            if torch._C._are_functorch_transforms_active():  # torch.func.grad of a graph
                break
            if state is not None and memory_id(value) not in state:
                twins[key] = _copy_of(value, copies)
            elif value.requires_grad:
                twins[key] = value.detach().requires_grad_()
            if key in twins and value.is_leaf and value.grad is not None:
                twins[key].grad = value.grad.clone()
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
        if torch._C._are_functorch_transforms_active():  # torch.func.grad of a graph
            return results
        leaves, spec = pytree.tree_flatten(results)
        changed = [self._result(leaf) for leaf in leaves]
        if all(old is new for old, new in zip(leaves, changed)):
            return results
        return pytree.tree_unflatten(changed, spec)

    def _result(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        caller, version = self._caller_of.get(id(value), (None, 0))
        if caller is not None and _version(value) == version:
            value = caller
        return value.detach() if value.requires_grad else value


def _has_memory(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _copy_of(tensor: torch.Tensor, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """Return a copy with the same place in its memory. Arguments that share memory share its copy."""
    source = tensor.detach()
    if source.layout is not torch.strided or source.is_nested or type(source) is not torch.Tensor:
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


def _tensors_of_state(
    modules: Sequence[torch.nn.Module],
    named: Mapping[str, torch.Tensor],
    optimizers: Sequence[tuple[torch.optim.Optimizer, Any]],
) -> list[torch.Tensor]:
    """Return the tensors of modules and optimizers, and those that have a name of their own, each once."""
    containers = [held for module in modules for held in (module._parameters, module._buffers)]
    groups = [group["params"] for optimizer, _ in optimizers for group in optimizer.param_groups]
    of_modules = (tensor for container in containers for tensor in container.values())
    all_tensors = (*of_modules, *named.values(), *itertools.chain.from_iterable(groups))
    tensors = {id(tensor): tensor for tensor in all_tensors if tensor is not None}
    return [tensor for tensor in tensors.values() if not is_lazy(tensor)]


class _Attributes:
    """The tensors in attributes of modules and of the graph lose the history that build() gives them.

    The next call would otherwise go back through this one.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], owner: object) -> None:
        containers = [held for module in modules for held in (vars(module), module._buffers)]
        self._containers = [*containers, vars(owner)] if hasattr(owner, "__dict__") else containers
        self.tensors = [tensor for _, _, tensor in self._entries()]
        self._before = {id(tensor) for tensor in self.tensors}

    def _entries(self) -> list[tuple[dict[str, Any], str, torch.Tensor]]:
        """Return the container, the key and the tensor of each attribute that is a tensor."""
        return [
            (container, key, value)
            for container in self._containers
            for key, value in container.items()
            if isinstance(value, torch.Tensor) and not is_lazy(value)
        ]

    def drop_new_histories(self) -> None:
        for container, key, tensor in self._entries():
            if tensor.grad_fn is not None and id(tensor) not in self._before:
                container[key] = tensor.detach()
