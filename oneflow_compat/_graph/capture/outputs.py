"""What a captured program returns: the results of build(), then the values that the epilogue stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..._global.marks import is_global
from ..._global.tensor import memory_of
from ..program.captured import ArgumentChanges
from ..program.program import Output
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


def outputs_of(
    recorder: Recorder, results: Results, stored: Iterable[Any], state: Iterable[Any], overflow: Node | None
) -> Outputs:
    """Return the outputs: results, the values `stored` in attributes, changes of arguments, `state`."""
    nodes: list[Any] = []
    descriptions: list[Output] = []
    constants: list[tuple[int, Any]] = []
    global_results = {}
    for i, value in enumerate(results.leaves):
        if isinstance(value, torch.Tensor) and is_global(value):
            global_results[len(nodes)] = value._of_placement, value._of_sbp, value.shape
        node = _node_of(recorder, value) if is_run_value(value) else value
        if not isinstance(node, torch.fx.Node):
            constants.append((i, node))
            continue
        info = node.meta["tensor"] if isinstance(value, torch.Tensor) else None
        layout = () if info is None else (info.shape, info.dtype, info.device)
        nodes.append(node)
        descriptions.append(Output(leaf_name(results.spec, i), *layout))
    changed, changed_constants = [], []
    for i, value in enumerate(results.changed_leaves):
        node = _node_of(recorder, value) if is_run_value(value) else value
        if isinstance(node, torch.fx.Node):
            changed.append(node)
        else:
            changed_constants.append((i, node))
    attributes = [_node_of(recorder, value) for value in stored if is_run_value(value)]
    groups = ("attribute", attributes), ("argument", changed), ("state", state)
    for name, group in (*groups, ("overflow", [] if overflow is None else [overflow])):
        for node in group:
            nodes.append(node)
            descriptions.append(Output(name))
    changes = None
    if results.changes:
        assert results.changed_spec is not None, "changes have values"
        changes = ArgumentChanges(results.changes, results.changed_spec, tuple(changed_constants))
    return Outputs(nodes, descriptions, tuple(constants), global_results, changes)


def _node_of(recorder: Recorder, value: Any) -> Any:
    """Return the node of a tensor, or of a scalar computed from sizes; its number if it is known."""
    return recorder._convert(memory_of(value) if isinstance(value, torch.Tensor) else value)[0]
