"""Helpers of optimizer steps that torch does not have: collecting one group, and 0-d step counters.

`lr` may be a float or a 0-d tensor; nothing here reads a tensor's value, so the steps trace with make_fx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Entry = tuple[torch.Tensor, torch.Tensor, dict[str, Any]]  # (parameter, gradient, state)


def gather(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], slots: Mapping[str, float], optimizer_name: str
) -> list[Entry]:
    """Return [(parameter, gradient, state)] of the parameters with a gradient; state is created on first use.

    `slots`: {name: initial value}. A step counter is a 0-d float32 tensor on the CPU, on the parameter's
    device with `capturable`.
    """
    entries = []
    for p in group["params"]:
        grad = p.grad
        if grad is None:
            continue
        if grad.is_sparse:
            raise RuntimeError(
                f"{optimizer_name} does not support sparse gradients (parameter of shape {tuple(p.shape)});"
                " use SGD or SparseAdam"
            )
        if grad.is_complex():
            raise RuntimeError(f"{optimizer_name} does not support complex parameters (got {p.dtype})")
        state = optimizer.state[p]
        if not state:
            device = p.device if group.get("capturable") else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=device)
        for name, value in slots.items():
            if name not in state:
                state[name] = torch.full_like(p, value, memory_format=torch.preserve_format)
        if not torch.is_tensor(state["step"]):
            state["step"] = torch.tensor(float(state["step"]), dtype=torch.float32)
        entries.append((p, -grad if group.get("maximize") else grad, state))
    return entries


def correction(beta: float, step: torch.Tensor) -> torch.Tensor:
    """1 - beta**step in float64, 0-d."""
    return 1.0 - beta ** step.to(torch.float64)


def run_closure(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def use_foreach(group: dict[str, Any], entries: Sequence[Entry]) -> bool:
    """Whether to use multi-tensor kernels; as in torch, by default if all parameters are on a GPU."""
    if group.get("differentiable"):
        return False
    if group.get("foreach") is not None:
        return bool(group["foreach"])
    return bool(entries) and all(p.is_cuda for p, _, _ in entries)
