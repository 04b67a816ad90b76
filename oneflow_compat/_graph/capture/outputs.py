"""What a captured program returns: the results of build(), then the values that the epilogue stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import is_global
from ..._global.tensor import memory_of
from ..program.captured import ArgumentChanges
from ..program.program import Output, roots
from ..program.symbolic import is_run_value
from .build import leaf_name

if TYPE_CHECKING:
    from torch.fx import Node

    from .recorder import Recorder
    from .side_effects.result_objects import Results


@dataclass(frozen=True, eq=False)
class Outputs:
    """The nodes that a program returns, and an Output for each."""

    nodes: list[Any]
    descriptions: list[Output]
    constants: tuple[tuple[int, Any], ...]  # (index of a result that is no node, the value)
    # result -> (placement, sbp, shape) of the results that are global tensors
    global_results: Mapping[int, tuple[Any, Any, tuple[int, ...]]]
    argument_changes: ArgumentChanges | None
    # (index, index of the first output that is the same object): of results and stored tensors that look like
    # another one or an argument, in its memory
    own_objects: tuple[tuple[int, int], ...]


def outputs_of(
    recorder: Recorder,
    results: Results,
    stored: Iterable[Any],
    results_stored: Mapping[int, Any],
    state: Iterable[Any],
    overflow: Node | None,
    gradients: Iterable[Node],
) -> Outputs:
    """Return the outputs: results, the values `stored` in attributes, changes of arguments, `state`, and the
    gradients that build() leaves. `results_stored`: {id of a stored tensor: the result that it is}.
    """
    values = [_node_if_computed(recorder, value) for value in results.leaves]
    nodes = [value for value in values if isinstance(value, torch.fx.Node)]
    descriptions = [
        _description(leaf_name(results.spec, i), value, node)
        for i, (value, node) in enumerate(zip(results.leaves, values))
        if isinstance(node, torch.fx.Node)
    ]
    changed = [_node_if_computed(recorder, value) for value in results.changed_leaves]
    stored = [value for value in stored if is_run_value(value)]
    objects = [results_stored.get(id(value), value) for value in stored]
    stored_nodes = [_node_of(recorder, value) for value in stored]
    groups: dict[str, Iterable[Any]] = {
        "attribute": stored_nodes,
        "argument": [value for value in changed if isinstance(value, torch.fx.Node)],
        "state": state,
        "overflow": [] if overflow is None else [overflow],
        "gradient": gradients,
    }
    for name, group in groups.items():
        for node in group:
            nodes.append(node)
            descriptions.append(Output(name))
    changes = None
    if results.changes:
        assert results.changed_spec is not None, "changes have values"
        changes = ArgumentChanges(results.changes, results.changed_spec, _constants(changed))
    return Outputs(
        nodes,
        descriptions,
        _constants(values),
        _global_results(results.leaves, values),
        changes,
        _own_objects([*results.leaves, *objects], [*values, *stored_nodes]),
    )


def _description(name: str, value: Any, node: Node) -> Output:
    info = node.meta["tensor"] if isinstance(value, torch.Tensor) else None
    return Output(name) if info is None else Output(name, info.shape, info.dtype, info.device)


def _constants(values: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """Return (index, value) of the values that no node computes."""
    return tuple((i, value) for i, value in enumerate(values) if not isinstance(value, torch.fx.Node))


def _global_results(leaves: Sequence[Any], values: Sequence[Any]) -> dict[int, tuple[Any, Any, Any]]:
    """Return {index among the nodes: (placement, sbp, shape)} of the results that are global tensors."""
    computed = [leaf for leaf, value in zip(leaves, values) if isinstance(value, torch.fx.Node)]
    return {
        i: (leaf._of_placement, leaf._of_sbp, leaf.shape)
        for i, leaf in enumerate(computed)
        if isinstance(leaf, torch.Tensor) and is_global(leaf)
    }


def _own_objects(leaves: Sequence[Any], values: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Return the tensors among the nodes that views make of others without a change of layout.

        y = x * 2
        return y, y.detach()

    Passes give both the same node, and build() returns two tensors. `leaves` are results and stored tensors.
    Views of inputs that require a gradient are among them, because detach() in build() made them.
    """
    first_like: dict[Any, Any] = {}  # (root of the views, layout) -> the first tensor
    own: dict[int, int] = {}  # id of such a tensor -> its index
    pairs = []
    computed = [(leaf, node) for leaf, node in zip(leaves, values) if isinstance(node, torch.fx.Node)]
    for index, (leaf, node) in enumerate(computed):
        info = node.meta["tensor"] if isinstance(leaf, torch.Tensor) else None
        if info is None:
            continue
        *views, root = roots([node])
        is_of_input = bool(views) and root.op == "placeholder"
        # a view that a run makes of a leaf, without a gradient, takes no writes in place
        is_of_input = is_of_input and (root.meta["tensor"] == info or _requires_grad(root))
        if first_like.setdefault((root, info), leaf) is not leaf or is_of_input:
            pairs.append((index, own.setdefault(id(leaf), index)))
    return tuple(pairs)


def _requires_grad(placeholder: Node) -> bool:
    value = placeholder.meta.get("value")
    return isinstance(value, torch.Tensor) and value.requires_grad


def _node_if_computed(recorder: Recorder, value: Any) -> Any:
    return _node_of(recorder, value) if is_run_value(value) else value


def _node_of(recorder: Recorder, value: Any) -> Any:
    """Return the node of a tensor, or of a scalar computed from sizes; its number if it is known."""
    return recorder._convert(memory_of(value) if isinstance(value, torch.Tensor) else value)[0]
