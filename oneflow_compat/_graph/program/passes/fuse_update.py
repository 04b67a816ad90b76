"""Operators around torch's fused optimizer operators move into them.

These are the check for overflow and the last scaling of the gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch.fx import Node

from ..program import Program, node_argument, written_args
from .patterns import Editor, base_of, only_user, users_of_memory

aten = torch.ops.aten
_FUSED = {
    getattr(getattr(aten, name), overload)
    for name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
    if hasattr(aten, name)
    for overload in getattr(aten, name).overloads()
    if not overload.endswith("out")
}
_SCALINGS = {aten.mul_.Tensor, aten.mul_.Scalar, aten._foreach_mul_.Tensor, aten._foreach_mul_.Scalar}


def _argument(node: Node, name: str) -> Any:
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name)
    return None


class Restored(NamedTuple):
    """One `copy_(tensor, where(overflowed, clone of the tensor before the update, tensor))`."""

    copy: Node
    found_inf: Node
    clone: Node

    @property
    def choice(self) -> Node:
        return cast(Node, self.copy.args[1])


def skip_overflow(program: Program) -> Program:
    """Let the fused operators themselves skip a step with overflowed gradients. EXACT.

    Then no copy of the weights and the state is needed.
    """
    editor = Editor(program)
    fused = editor.nodes(*_FUSED)
    restored = _restored(editor) if fused else {}
    if not restored or any(_argument(node, "found_inf") is not None for node in fused):
        return program
    steps = {step for node in fused for step in _argument(node, "state_steps") or ()}
    counts = _step_counts(editor, steps)
    if counts is None or _written_by(fused) | steps != set(restored):
        return program  # another tensor is restored, or a written tensor is not
    if not all(_only_these(editor, t, {*fused, *counts}, r) for t, r in restored.items()):
        return program
    _skip_in_kernels(editor, fused, counts, next(iter(restored.values())).found_inf)
    for entry in restored.values():
        choice = entry.choice
        editor.graph.erase_node(entry.copy)
        editor.erase(choice)
    return program


def _step_counts(editor: Editor, steps: set[Node]) -> list[Node] | None:
    """Return the operators that add 1 to the step counters, or None if they do not count each step once."""
    counts = [n for n in editor.nodes(aten._foreach_add_.Scalar) if not steps.isdisjoint(_listed(n))]
    counted = [step for n in counts for step in _listed(n)]
    if set(counted) != steps or len(counted) != len(steps) or any(n.args[1] != 1 for n in counts):
        return None
    return counts


def _listed(node: Node) -> list[Node]:
    """Return the tensors of the list that is the first argument."""
    return cast("list[Node]", node.args[0])


def _written_by(fused: list[Node]) -> set[Node]:
    """Return the tensors that the fused operators write, without the gradients."""
    gradients = {g for node in fused for g in _argument(node, "grads")}
    return {t for node in fused for t in written_args(node)} - gradients


def _skip_in_kernels(editor: Editor, fused: list[Node], counts: list[Node], found_inf: Node) -> None:
    """Pass the overflow flag to the fused operators, and take a skipped step off the counters."""
    for node in fused:
        node.kwargs = {**node.kwargs, "found_inf": found_inf}
    last = max(fused, key=editor.order.__getitem__)
    for count in counts:
        steps = list(_listed(count))
        skipped = editor.insert(
            last.next, aten._foreach_sub_.List, (steps, [found_inf] * len(steps)), info=None
        )
        skipped.meta.update(phase="update")


def _restored(editor: Editor) -> dict[Node, Restored]:
    """Return {tensor: how it is restored after an overflow}; empty if the copies ask different flags."""
    restored: dict[Node, Restored] = {}
    for copy in editor.nodes(aten.copy_.default):
        entry = _as_restored(copy)
        target = node_argument(copy, 0)
        if entry is not None and target not in restored:
            restored[target] = entry
    flags = {entry.found_inf for entry in restored.values()}
    return restored if len(flags) == 1 and flags.pop().meta["tensor"].dtype is torch.float32 else {}


def _as_restored(copy: Node) -> Restored | None:
    target, choice = copy.args[:2]
    if copy.users or not isinstance(choice, Node) or choice.target is not aten.where.self:
        return None
    clone: Any
    overflowed: Any
    overflowed, clone, new = choice.args
    if only_user(choice) is not copy or only_user(clone) is not choice or new is not target:
        return None
    if clone.target is not aten.clone.default or clone.args[0] is not target:
        return None
    if overflowed.target is not aten._to_copy.default or overflowed.meta["tensor"][:2] != ((), torch.bool):
        return None
    return Restored(copy, overflowed.args[0], clone)


def _only_these(editor: Editor, target: Node, update: set[Node], restored: Restored) -> bool:
    """Whether only the update uses the tensor between its clone and its restoring copy."""
    begin, end = editor.order[restored.clone], editor.order[restored.copy]
    allowed = {*update, restored.copy, restored.clone, restored.choice}
    return all(
        user in allowed for user in users_of_memory(base_of(target)) if begin <= editor.order[user] <= end
    )


def scale_in_update(program: Program) -> Program:
    """Do the last scaling of all gradients inside the fused update. ROUNDING.

    The factor is the clipping factor or a static loss scale.
    """
    editor = Editor(program)
    for node in editor.nodes(*_FUSED):
        if _argument(node, "grad_scale") is not None:
            continue
        scalings = _last_scalings(editor, node)
        scale = _divisor(editor, node, scalings) if scalings else None
        if scale is None:
            continue
        node.kwargs = {**node.kwargs, "grad_scale": scale}
        for scaling in scalings:
            editor.graph.erase_node(scaling)
    return program


def _last_scalings(editor: Editor, node: Node) -> set[Node]:
    """Return the operators that scale exactly the gradients of an update, all by one factor; else an empty
    set.
    """
    gradients = _argument(node, "grads")
    if any(g.meta["tensor"].dtype is not torch.float32 for g in gradients):
        return set()
    scalings: set[Node] = set()
    for gradient in gradients:
        scaling = _last_scaling(editor, gradient, node)
        if scaling is None:
            return set()
        scalings.add(scaling)
    if len({n.args[1] for n in scalings}) != 1:
        return set()
    scaled = {t for n in scalings if isinstance(n.args[0], (list, tuple)) for t in n.args[0]}
    return set() if scaled - set(gradients) else scalings


def _divisor(editor: Editor, node: Node, scalings: set[Node]) -> Node | None:
    """Insert the reciprocal of the factor, by which the fused update divides; None if it cannot be used."""
    factor: Any = next(iter(scalings)).args[1]
    device = _argument(node, "grads")[0].meta["tensor"].device
    if not isinstance(factor, Node):
        options = {"dtype": torch.float32, "device": device}
        return editor.insert(node, aten.full.default, ([], 1.0 / factor), options)
    info, begin = factor.meta["tensor"], min(editor.order[n] for n in scalings)
    if info.shape != () or info.dtype is not torch.float32 or info.device != device:
        return None
    if not editor.constant_between(factor, begin, editor.order[node]):
        return None
    return editor.insert(node, aten.reciprocal.default, (factor,))


def _last_scaling(editor: Editor, grad: Node, node: Node) -> Node | None:
    """Return the in-place multiplication that is the last use of a gradient before the update.

    Return None if the update is not the very last use.
    """
    base = base_of(grad)
    uses = [n for n in users_of_memory(base) if n is not node and base_of(n) is not base]
    last = max(uses, key=editor.order.__getitem__, default=None)
    if (
        base.op != "call_function"
        or last is None
        or last.target not in _SCALINGS
        or last.users
        or editor.order[last] > editor.order[node]
    ):
        return None
    scaled, factor = last.args[:2]
    if grad not in (scaled if isinstance(scaled, (list, tuple)) else (scaled,)):
        return None
    return last if isinstance(factor, Node) or type(factor) in (int, float) and factor else None


# ------------------------------------ Increment the step counters of a fused optimizer in one call. EXACT
# `_foreach_add_(steps, 1)` runs one operator per parameter on the CPU, several microseconds each. The fused
# SGD operator visits a tensor in well under one microsecond. It computes step - (-1) * 1, which rounds as
# step + 1 does.


def count_together(program: Program) -> Program:
    """Replace _foreach_add_ of 1 to float32 scalars on the CPU by one fused operator."""
    graph, editor = program.graph, Editor(program)
    for node in editor.nodes(aten._foreach_add_.Scalar, aten._foreach_add_.Tensor):
        counters: Any = node.args[0]
        if editor.number(node.args[1]) != 1 or node.kwargs.get("alpha", 1) != 1 or node.users:
            continue
        if any(not _is_counter(n) for n in counters):
            continue
        increment = node.args[1]
        if not isinstance(increment, Node) or increment.meta["tensor"].dtype is not torch.float32:
            program = program.with_(
                constants={**program.constants, "one": torch.ones((), dtype=torch.float32)}
            )
            with graph.inserting_before(node):
                increment = graph.get_attr("one")
        with graph.inserting_before(node):
            new = graph.call_function(
                aten._fused_sgd_.default,
                (list(counters), [increment] * len(counters), []),
                dict(
                    weight_decay=0.0,
                    momentum=0.0,
                    lr=-1.0,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                ),
            )
        new.meta.update(node.meta)
        graph.erase_node(node)
    return program


def _is_counter(node: Node) -> bool:
    info = node.meta.get("tensor")
    return (
        node.op == "placeholder"
        and info is not None
        and info.shape == ()
        and info.dtype is torch.float32
        and info.device.type == "cpu"
    )
