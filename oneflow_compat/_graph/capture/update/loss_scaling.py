"""Loss scaling inside a program.

The scale of a dynamic GradScaler is a live tensor, the scale of a static one is a number. As in OneFlow,
backward() multiplies by the scale, and gradients are unscaled before clipping. A step with inf or nan in a
gradient changes no parameter and no optimizer state.
"""

from collections.abc import Iterable
from typing import Any

import torch

from ...._active import outside_capture
from ...errors import CaptureError
from ...program.nested_state import leaves
from ..interfaces import RecordedTensor

aten = torch.ops.aten


def is_static(scaler: Any) -> bool:
    return not isinstance(scaler, torch.amp.GradScaler)


def keeps_scale(scaler: Any) -> bool:
    """Return True for flow.amp.StaticGradScaler, a GradScaler whose scale does not change on overflow."""
    return hasattr(scaler, "scale_factor")


def static_scale(scaler: Any) -> float:
    for name in ("scale_factor", "_scale_factor", "_scale"):
        value = getattr(scaler, name, None)
        if isinstance(value, (int, float)):
            return float(value)
    raise TypeError(f"set_grad_scaler takes a GradScaler or a StaticGradScaler, got {type(scaler).__name__}")


def prepare(scaler: Any, device: torch.device) -> None:
    """Create the scale and growth tensors of a GradScaler, which it otherwise creates lazily."""
    if not is_static(scaler) and scaler.is_enabled() and scaler._scale is None:
        scaler._lazy_init_scale_growth_tracker(torch.device(device))


def scaled(scaler: Any, grad: Any) -> Any:
    """A root gradient times the loss scale."""
    if is_static(scaler):
        return grad * static_scale(scaler)
    if not scaler.is_enabled():
        return grad
    if scaler._scale is None:
        with outside_capture():
            prepare(scaler, grad.device)
    return grad * scaler._scale.to(device=grad.device)


def unscale(scaler: Any, optimizers: Iterable[Any]) -> Any:
    """Divide every gradient by the scale. Returns the found-inf tensor, or None for a static scale."""
    grads: list[Any] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            grads.extend(p.grad for p in group["params"] if p.grad is not None)
    dense = [g for g in grads if not g.is_sparse]
    if is_static(scaler):
        for grad in grads:
            grad.mul_(1.0 / static_scale(scaler))
        return None
    if keeps_scale(scaler) and len(dense) < len(grads):
        for grad in grads:
            if grad.is_sparse:
                grad.mul_(1.0 / static_scale(scaler))
        grads = dense
    if not scaler.is_enabled() or not grads:
        return None
    if len(dense) < len(grads):
        raise CaptureError(
            "a dynamic GradScaler and a sparse gradient in one graph",
            "Use a StaticGradScaler, or an embedding with sparse=False.",
        )
    with torch.no_grad():
        inv = scaler._scale.double().reciprocal().float()
        found_inf = torch.zeros((), dtype=torch.float32, device=scaler._scale.device)
        torch._amp_foreach_non_finite_check_and_unscale_(dense, found_inf, inv)
    return found_inf


def keep_old(optimizers: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Copy everything the optimizers may write, before they do."""
    kept = []
    with torch.no_grad():
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        kept.append((p, p.detach().clone()))
                        kept.extend(
                            (v, v.clone())
                            for _, v in leaves(optimizer.state.get(p, {}))
                            if isinstance(v, torch.Tensor)
                        )
    return kept


def put_back(update: Any, optimizers: Any, found_inf: Any, kept: Any) -> None:
    """Restore the old values if an inf was found."""
    kept = kept + begun(update, {id(t) for t, _ in kept}, optimizers)
    with torch.no_grad():
        bad = found_inf.bool()
        for tensor, old in kept:
            tensor.copy_(torch.where(bad.to(tensor.device), old, tensor.detach()))


def update_scale(scaler: Any, found_inf: torch.Tensor) -> None:
    """Grow or shrink the scale as GradScaler.update() does."""
    if keeps_scale(scaler):
        return
    torch._amp_update_scale_(
        scaler._scale,
        scaler._growth_tracker,
        found_inf,
        scaler.get_growth_factor(),
        scaler.get_backoff_factor(),
        scaler.get_growth_interval(),
    )


def begun(update: Any, existing: Any, optimizers: Any) -> Any:
    """(state tensor that the step created, copy of its initial value) for state that did not exist before."""
    recorder, pairs = update.recorder, []
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for _, value in leaves(state):
                if isinstance(value, RecordedTensor) and id(value) not in existing:
                    node = value._of_node
                    with recorder.graph.inserting_after(node):
                        copy = recorder.graph.call_function(aten.clone.default, (node,))
                    copy.meta.update(node.meta)
                    twin: Any = torch.empty_like(value)
                    twin._of_node = copy
                    pairs.append((value, twin))
    return pairs


def resolve_scaler(scaler: Any) -> Any:
    return scaler() if callable(scaler) and not hasattr(scaler, "state_dict") else scaler
