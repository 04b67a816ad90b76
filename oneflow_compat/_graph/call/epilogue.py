"""The epilogue of a program: what happens after each run, and the results of build()."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._C import _increment_version as increment_version

from ..._global.program_results import make_results_global
from ..guards.counters import count
from ..program.captured import Effects, StoredAttribute
from ..program.locations import LiveState
from ..program.program import Program, roots
from ..program.pytree import tree_unflatten, with_sizes
from ..program.shared_containers import share
from ..program.symbolic import is_run_value
from ..program.writes import silent_writes
from .object_results import ObjectResults, uses_objects


class Epilogue:
    """Called with the values of the slots and the outputs of the program; returns the results of build()."""

    def __init__(
        self, program: Program, effects: Effects, live: LiveState, serves_one_call: bool = False
    ) -> None:
        self.effects, self.live, self._serves_one_call = effects, live, serves_one_call
        self._result_count = program.out_spec.num_leaves - len(program.out_constants)
        self._stores_state = bool(effects.state_values) or effects.reports_overflow
        self._leaves_gradients = bool(effects.gradients or effects.cleared_gradients)
        self._written = _slots_of_raised_versions(program)
        self._objects = ObjectResults(program, effects) if uses_objects(program, effects) else None
        results = results_of(program) if self._objects is None else list
        # whether the state of a call is more than what the program writes
        self.has_effects = self._stores_state or bool(
            effects.attributes
            or effects.counters
            or effects.schedulers
            or effects.argument_changes
            or effects.schedulers_of_build
            or self._leaves_gradients
        )
        inputs = frozenset() if effects.keeps_histories else _inputs_among_results(program)
        self._results = _without_history(results, inputs)
        if effects.global_results:
            self._results = make_results_global(self._results, dict(effects.global_results))

    def __call__(
        self, values: Sequence[Any], outputs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._written is not None:
            increment_version(self._written(values))
        if self.effects.own_objects:
            outputs = _as_own_objects(outputs, self.effects.own_objects)
        if self._leaves_gradients:
            outputs = self._leave_gradients(outputs)
        if self._stores_state:
            outputs = self._store_state(outputs)
        changed: Sequence[Any] = ()
        if self._objects is not None:
            outputs, changed = self._objects.split(outputs)
        if self.effects.shared_containers:
            return self._share(outputs, changed, args, kwargs)
        if self.effects.attributes:
            outputs = self._store_attributes(outputs)
        self._count_and_step()
        return self._results_of(outputs, changed, args, kwargs)

    def _count_and_step(self) -> None:
        if self.effects.counters:
            count(self.effects.counters)
        if self.effects.schedulers:
            step_schedulers(self.effects.schedulers)
        for scheduler in self.effects.schedulers_of_build:
            scheduler.step()

    def _results_of(
        self, outputs: Sequence[Any], changed: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._objects is not None:
            return self._objects.results(self._results(outputs), changed, args, kwargs)
        return self._results(outputs)

    def _share(
        self, outputs: Sequence[Any], changed: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Store what build() stored, and return its results: a list that lies in several of them is one."""
        attributes = self.effects.attributes
        trees: list[Any] = list(self._stored_values(outputs))
        trees.append(self._results_of(outputs[: self._result_count], changed, args, kwargs))
        share(trees, self.effects.shared_containers)
        for attribute, value in zip(attributes, trees):
            _bind(attribute, value)
        self._count_and_step()
        return trees[-1]

    def undo(self) -> None:
        """Remove the state that a program for one call begins with, after a run that changed nothing."""
        if self._serves_one_call:
            self.effects.remove_created_state(self.live)

    def _leave_gradients(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Bind the gradients of this run to their tensors, as backward() does."""
        parameters = self.effects.gradients
        split = len(outputs) - len(parameters)
        for parameter, gradient in zip(parameters, outputs[split:]):
            parameter.grad = gradient
        for parameter in self.effects.cleared_gradients:
            parameter.grad = None
        return outputs[:split]

    def _store_state(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Store the values in optimizer state and options, unless the gradients overflowed."""
        locations = self.effects.state_values
        if self.effects.reports_overflow:
            *outputs, overflow = outputs
            if overflow:
                self.undo()
                return outputs[: len(outputs) - len(locations)]
        split = len(outputs) - len(locations)
        for location, value in zip(locations, outputs[split:]):
            location.write(self.live, value)
        return outputs[:split]

    def _store_attributes(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Bind the tensors of this run to the buffers and attributes that build() assigned."""
        for attribute, value in zip(self.effects.attributes, self._stored_values(outputs)):
            _bind(attribute, value)
        return outputs[: self._result_count]

    def _stored_values(self, outputs: Sequence[Any]) -> Iterator[Any]:
        """Yield the value of this run for each attribute that build() assigned."""
        # a view of a parameter requires a gradient
        detaches = not self.effects.keeps_histories
        values = (
            v.detach() if detaches and isinstance(v, torch.Tensor) and v.requires_grad else v
            for v in outputs[self._result_count :]
        )
        for attribute in self.effects.attributes:
            leaves = [next(values) if is_run_value(leaf) else leaf for leaf in attribute.leaves]
            yield tree_unflatten(leaves, attribute.spec)


def _bind(attribute: StoredAttribute, value: Any) -> None:
    if attribute.appends:
        attribute.container.append(value)
    else:
        attribute.container[attribute.key] = value


def step_schedulers(schedulers: Iterable[Any]) -> None:
    """Step the schedules of a graph, whose own step() is an error otherwise."""
    for scheduler in schedulers:
        optimizer = getattr(scheduler, "optimizer", scheduler)
        optimizer._schedule_of_graph = None
        scheduler.step()
        optimizer._schedule_of_graph, optimizer._opt_called = scheduler, False  # see LRScheduler.step


def _slots_of_raised_versions(program: Program) -> Callable[[Sequence[Any]], tuple[Any, ...]] | None:
    """Return a function that picks the values whose writes autograd must see, or None if there are none.

    Autograd sees the writes of an eager update by itself.
    """
    written = silent_writes(program)
    if not written:
        return None
    return operator.itemgetter(*written) if len(written) > 1 else (lambda values: (values[written[0]],))


def _inputs_among_results(program: Program) -> frozenset[int]:
    """Return the positions of the outputs that are tensors among the inputs, or views of them."""
    (returned,) = next(node for node in program.graph.nodes if node.op == "output").args
    count = program.out_spec.num_leaves - len(program.out_constants)
    return frozenset(
        index
        for index, node in enumerate(returned[:count])
        if isinstance(node, torch.fx.Node) and any(_is_tensor_input(root) for root in roots([node]))
    )


def _is_tensor_input(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and node.meta.get("tensor") is not None


def _without_history(results: Callable[[Sequence[Any]], Any], inputs: frozenset[int]) -> Callable[..., Any]:
    """Detach the results that are inputs, such as a returned parameter, because results have no history."""
    if not inputs:
        return results

    def detached(outputs: Sequence[Any]) -> Any:
        return results(
            [
                value.detach() if index in inputs and value.requires_grad else value
                for index, value in enumerate(outputs)
            ]
        )

    return detached


def _as_own_objects(outputs: Sequence[Any], own_objects: Sequence[tuple[int, int]]) -> list[Any]:
    """Make an object of its own of each of these outputs, in the memory that it has."""
    changed = list(outputs)
    for index, first in own_objects:
        value = changed[first]
        changed[index] = torch.ops.aten.alias.default(value.detach()) if first == index else value
    return changed


def results_of(program: Program) -> Callable[[Sequence[Any]], Any]:
    """Return the function from the tensors that a program returns to the results of build()."""
    spec, constants = with_sizes(program.out_spec), program.out_constants
    if spec.is_leaf():
        if constants:
            value = constants[0][1]
            return lambda outputs: value
        return lambda outputs: outputs[0]
    count = spec.num_leaves
    if not constants and spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return lambda outputs: tuple(outputs[:count])
    fixed = dict(constants)

    def results(outputs: Sequence[Any]) -> Any:
        tensors = iter(outputs)
        leaves = [fixed[i] if i in fixed else next(tensors) for i in range(count)]
        return pytree.tree_unflatten(leaves, spec)

    return results
