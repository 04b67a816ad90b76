"""Calls of build() in eager mode: the net for what no program can hold.

A program has no place for a branch on the value of a loss, for a NumPy array among the arguments, or for a
list that grows with each call. Such a call runs as Python runs it, with the rules of a graph: the optimizers
step at its end, p.grad and the mode of modules are those of the graph, results have no history.

What made one call impossible may be gone at the next one: a cache is full then, a lazy layer has its shape.
So a capture is tried again, each time after four times as many calls in eager mode.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from .._active import building_eagerly
from .._global.marks import several
from .call.epilogue import step_schedulers
from .capture.build import autocast, join, loss_factor, split
from .capture.patches.patching import patched
from .capture.side_effects.set_aside import GradientsAside, ModesOfFirstCapture
from .capture.state_map import StateMap, memory_id, resolve
from .capture.update import sparse_rows
from .capture.update.loss_scaling import resolve_scaler, unscale, update_scale
from .capture.update.step import clip_gradients
from .explanations import of_eager_calls, of_repeated_change

if TYPE_CHECKING:
    from .assumptions import Assumptions
    from .call.entry import Entry
    from .config import Config
    from .definition import GraphDefinition
    from .errors import CaptureError

_MOST_SKIPPED = 1 << 10  # calls in eager mode between two captures that give no program for later calls


class EagerCalls:
    """Which calls of one graph run in eager mode, and how."""

    def __init__(self, definition: GraphDefinition, assumptions: Assumptions) -> None:
        self.definition, self.assumptions = definition, assumptions
        self._failures = 0  # captures in a row that gave no program for later calls
        self._skipped = 0  # calls to run in eager mode before the next capture

    def are_possible(self, config: Config) -> bool:
        """Whether calls may run in eager mode: not on several ranks, which would have to agree on it, and not
        in a graph whose optimizer changes gathered rows only.
        """
        if not config.eager_calls or config.strict or several():
            return False
        return not any(optimizer in sparse_rows.lazy for optimizer, _ in resolve(self.definition.optimizers))

    def take_this_call(self) -> bool:
        """Whether a call without a program runs in eager mode before a capture is tried again."""
        if not self._skipped:
            return False
        self._skipped -= 1
        return True

    def note_program(self, entry: Entry) -> None:
        """Note a capture, whose program may serve one call only."""
        if entry.serves_later_calls:
            self._failures = 0
            return
        self._fail()
        if self._failures > 1:
            change = entry.python_guards.change
            self._tell(str(of_repeated_change(entry.python_guards.changed, change)))

    def note_refusal(self, error: CaptureError) -> None:
        """Note a capture that raised, and warn of each reason once."""
        self._fail()
        self._tell(str(error))

    def _fail(self) -> None:
        self._skipped = min(4**self._failures - 1, _MOST_SKIPPED)
        self._failures += 1

    def _tell(self, reason: str) -> None:
        """Warn of each reason once, and keep it for explain()."""
        if self.assumptions.is_first_report(reason):
            self.assumptions.explain(of_eager_calls(reason))
            warnings.warn(
                f"graph {self.definition.name}: no program can hold this call, so it runs in eager mode, with"
                f" the same result: {reason}\n  graph.config.strict(True) makes this an error.",
                stacklevel=5,
            )

    def run(self, config: Config, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run build() and the update as a program of it would."""
        definition = self.definition
        state = StateMap(*map(resolve, (definition.modules, definition.tensors, definition.optimizers)))
        trains = bool(state.optimizers)
        scaler = resolve_scaler(definition.grad_scaler)
        parts = config.accumulation if trains else 1
        tensors = [entry.tensor for entry in state.by_id.values()]
        values = _ValuesOfCaller(args, kwargs) if not definition.writes_through() else None
        args, kwargs = (args, kwargs) if values is None else values.arguments
        with (
            torch.inference_mode(torch.is_inference_mode_enabled() and not trains),
            torch.set_grad_enabled(trains or torch.is_grad_enabled()),
            GradientsAside(tensors),
            ModesOfFirstCapture(self.assumptions, state.all_modules()),
        ):
            with building_eagerly(), _backward(config, scaler, parts, (args, kwargs, tensors)):
                result = self._build(config, parts, args, kwargs)
            if trains:
                _update([optimizer for optimizer, _ in state.optimizers], scaler)
        step_schedulers(schedule for _, schedule in state.optimizers if schedule is not None)
        result = _without_history(result)
        return result if values is None else values.given_back(result)

    def _build(self, config: Config, parts: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        build = self.definition.unrecorded or self.definition.build
        flat, spec = pytree.tree_flatten((args, kwargs))
        if parts <= 1:
            with autocast(config, flat):
                return build(*args, **kwargs)
        batches = [split(v, parts) if isinstance(v, torch.Tensor) else [v] * parts for v in flat]
        results = []
        for k in range(parts):
            args, kwargs = pytree.tree_unflatten([batch[k] for batch in batches], spec)
            with autocast(config, flat):
                results.append(pytree.tree_flatten(build(*args, **kwargs)))
        joined = [join(values) for values in zip(*(leaves for leaves, _ in results))]
        return pytree.tree_unflatten(joined, results[0][1])


def _update(optimizers: list[Any], scaler: Any) -> None:
    """Unscale and clip the gradients, and step the optimizers, unless the gradients overflowed."""
    found_inf = unscale(scaler, optimizers) if scaler is not None else None
    clip_gradients(optimizers, found_inf)
    if found_inf is None or not found_inf.item():
        for optimizer in optimizers:
            optimizer.step()
    if found_inf is not None:
        update_scale(scaler, found_inf)


@contextlib.contextmanager
def _backward(config: Config, scaler: Any, parts: int, values: Any) -> Iterator[None]:
    """Let backward() in this thread multiply losses as the graph does, and run without its autocast."""
    if scaler is None and parts <= 1 and not config.amp:
        yield
        return
    factor, thread = loss_factor(scaler, parts), threading.get_ident()
    leaves = pytree.tree_leaves(values)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return original(tensors, grad_tensors, *args, **kwargs)
            if kwargs.get("accumulate_grad"):
                grad_tensors = tuple(factor(t, g) for t, g in zip(tensors, grad_tensors))
            with autocast(config, leaves, enabled=False):
                return original(tensors, grad_tensors, *args, **kwargs)

        return run

    with patched(torch.autograd, "_engine_run_backward", make):
        yield


def _without_history(result: Any) -> Any:
    """Detach the tensors of a result."""
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(result)):
        return result
    if torch._C._are_functorch_transforms_active():  # torch.func.grad of a graph
        return result
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach() if t.requires_grad else t, result)


class _ValuesOfCaller:
    """The tensors, lists and dicts that a caller passes, and that keep their values, as in OneFlow."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        flat, spec = pytree.tree_flatten((args, kwargs))
        self.arguments = pytree.tree_unflatten(flat, spec)
        self._kept = [
            (leaf, leaf._version, leaf.detach().clone())
            for leaf in flat
            if isinstance(leaf, torch.Tensor) and not leaf.is_inference() and not leaf.is_nested
        ]

    def given_back(self, result: Any) -> Any:
        """Give the caller's tensors their values again. Return the result, with the values of build()."""
        written = [(tensor, value) for tensor, version, value in self._kept if tensor._version != version]
        if not written:
            return result
        memories = {memory_id(tensor) for tensor, _ in written}
        result = pytree.tree_map_only(
            torch.Tensor, lambda t: t.clone() if memory_id(t) in memories else t, result
        )
        with torch.no_grad():
            for tensor, value in written:
                tensor.copy_(value)
        return result
