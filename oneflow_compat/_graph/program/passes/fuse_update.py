"""Operators around torch's fused optimizer operators move into them.

These are the check for overflow and the last scaling of the gradients.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from ..program import written_args
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


def _argument(node, name):
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name)
    return None


def skip_overflow(program):
    """Let the fused operators themselves skip a step with overflowed gradients. EXACT.

    Then no copy of the weights and the state is needed.
    """
    editor = Editor(program)
    fused = editor.nodes(*_FUSED)
    back = _restored(editor) if fused else None
    if not back or any(_argument(node, "found_inf") is not None for node in fused):
        return program
    found_inf = next(iter(back.values()))[1]
    steps = {step for node in fused for step in _argument(node, "state_steps") or ()}
    counts = [n for n in editor.nodes(aten._foreach_add_.Scalar) if not steps.isdisjoint(n.args[0])]
    counted = [step for n in counts for step in n.args[0]]
    if set(counted) != steps or len(counted) != len(steps) or any(n.args[1] != 1 for n in counts):
        return program
    grads = {g for node in fused for g in _argument(node, "grads")}
    if {t for node in fused for t in written_args(node)} - grads | steps != set(back):
        return program  # something else is written and put back, or something is not put back
    if not all(_only_these(editor, t, {*fused, *counts}, back) for t in back):
        return program
    for node in fused:
        node.kwargs = {**node.kwargs, "found_inf": found_inf}
    last = max(fused, key=editor.order.__getitem__)
    for count in counts:
        editor.insert(
            last.next,
            aten._foreach_sub_.List,
            (list(count.args[0]), [found_inf] * len(count.args[0])),
            info=None,
        ).meta.update(phase="update")
    for copy, _, _ in back.values():
        chosen = copy.args[1]
        editor.graph.erase_node(copy)
        editor.erase(chosen)
    return program


def _restored(editor):
    """{tensor: (copy_, found, clone)} of copy_(t, where(found as bool, clone of t before the update, t))."""
    back = {}
    for copy in editor.nodes(aten.copy_.default):
        target, chosen = copy.args[:2]
        if (
            not isinstance(chosen, Node)
            or chosen.target is not aten.where.self
            or only_user(chosen) is not copy
            or copy.users
        ):
            continue
        bad, old, new = chosen.args
        if (
            new is not target
            or target in back
            or old.target is not aten.clone.default
            or old.args[0] is not target
            or only_user(old) is not chosen
        ):
            continue
        if (
            bad.target is aten._to_copy.default
            and bad.meta["tensor"].dtype is torch.bool
            and bad.meta["tensor"].shape == ()
        ):
            back[target] = copy, bad.args[0], old
    flags = {found_inf for _, found_inf, _ in back.values()}
    return back if len(flags) == 1 and flags.pop().meta["tensor"].dtype is torch.float32 else None


def _only_these(editor, target, update, back):
    """Whether only the update uses the tensor between its copy and its restoring."""
    copy, _, old = back[target]
    begin, end = editor.order[old], editor.order[copy]
    allowed = {*update, copy, old, copy.args[1]}
    return all(
        user in allowed for user in users_of_memory(base_of(target)) if begin <= editor.order[user] <= end
    )


def scale_in_update(program):
    """Do the last scaling of all gradients inside the fused update. ROUNDING.

    The factor is the clipping factor or a static loss scale.
    """
    editor = Editor(program)
    for node in editor.nodes(*_FUSED):
        grads = _argument(node, "grads")
        if (
            not grads
            or _argument(node, "grad_scale") is not None
            or any(g.meta["tensor"].dtype is not torch.float32 for g in grads)
        ):
            continue
        calls = {_last_scaling(editor, g, node) for g in grads}
        if None in calls or len({n.args[1] for n in calls}) != 1:
            continue
        if any(isinstance(n.args[0], (list, tuple)) and set(n.args[0]) - set(grads) for n in calls):
            continue
        factor, device = next(iter(calls)).args[1], grads[0].meta["tensor"].device
        if isinstance(factor, Node):
            info = factor.meta["tensor"]
            if info.shape != () or info.dtype is not torch.float32 or info.device != device:
                continue
            if not editor.constant_between(factor, min(editor.order[n] for n in calls), editor.order[node]):
                continue
            scale = editor.insert(node, aten.reciprocal.default, (factor,))
        else:
            scale = editor.insert(
                node, aten.full.default, ([], 1.0 / factor), {"dtype": torch.float32, "device": device}
            )
        node.kwargs = {**node.kwargs, "grad_scale": scale}
        for call in calls:
            editor.graph.erase_node(call)
    return program


def _last_scaling(editor, grad, node):
    """The in-place multiplication that is the last use of a gradient before the update.

    The update must be the very last use; otherwise the result is None.
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
