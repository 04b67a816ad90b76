"""oneflow.utils.tensor: between torch tensors and OneFlow tensors, which are the same objects here."""

from __future__ import annotations

import torch

__path__: list[str] = []  # a package: `import oneflow.utils.tensor.from_or_to_torch_tensor`


def print_error_msg() -> None:
    """Say that torch is missing; it never is here, since this package stands on it."""
    print("torch is missing: install it to exchange tensors with it")


def from_torch(torch_tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as OneFlow's: the same storage, without autograd history.

    TypeError for anything but a tensor.
    """
    return _check("from_torch", torch_tensor).detach()


def to_torch(flow_tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as torch's: the same storage, without autograd history."""
    flow_tensor = _check("to_torch", flow_tensor)
    return (flow_tensor.to_local() if flow_tensor.is_global else flow_tensor).detach()


def _check(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} takes a tensor, found {type(value).__name__}")
    return value
