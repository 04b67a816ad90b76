"""State that an optimizer creates in its first step, during the capture: the program takes it as an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx import Node

    from ...program.captured import Captured
    from ..interfaces import CaptureInterface, RecorderInterface
    from .optimizer_state import AdoptedState
    from .step import Update

aten = torch.ops.aten


def adopt_new_state(capture: CaptureInterface, update: Update) -> None:
    """Make real tensors of the symbolic state that step() created, and note the options that it added."""
    capture.new_state = update.adopt_new_state()
    for index, keys in update.created_live_options.items():
        capture.assumptions.add_live_options(index, keys)


def take_as_inputs(
    recorder: RecorderInterface, new_state: Sequence[AdoptedState], outputs: list[Any]
) -> None:
    """Replace each node that creates state by a placeholder, among the outputs too.

    A fused update takes hundreds of them, so the arguments of a user are replaced all at once.
    """
    holders: dict[Node, Node] = {}
    for created in new_state:
        node: Any = created.twin._of_node
        while node.target in (aten.detach.default, aten.alias.default):
            node = node.args[0]
        if node.op == "placeholder" or node in holders:
            continue
        holder = holders[node] = recorder.placeholder("state", created.tensor)
        holder.meta["tensor"] = node.meta["tensor"]
        recorder.lifted[id(created.tensor)] = (created.tensor, holder, created.twin)
    for user in dict.fromkeys(user for node in holders for user in node.users):
        user.args, user.kwargs = torch.fx.map_arg(
            (user.args, user.kwargs), lambda node: holders.get(node, node)
        )
    outputs[:] = [holders.get(node, node) for node in outputs]
    for node in holders:
        recorder.graph.erase_node(node)


def install(update: Update, new_state: Sequence[AdoptedState], captured: Captured) -> None:
    """Put the new state into its optimizers, whose own state the capture has put back."""
    live = captured.live
    for location, value in update.structures.items():
        container, keys = location.resolve(live)
        if keys[0] in container:
            captured.effects.replaced_state.append((location, container[keys[0]]))
        location.write(live, value)
    for created in (*update.created, *new_state):
        created.location.write(live, created.tensor)
