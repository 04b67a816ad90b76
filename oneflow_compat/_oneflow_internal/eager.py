"""Waiting for the device."""

from __future__ import annotations

import types

import torch

from ..comm import barrier as _barrier


def Sync() -> None:
    """Wait until every operator issued has run."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ClusterSync() -> None:
    """Wait for this device, then for every rank."""
    Sync()
    _barrier()


multi_client = types.SimpleNamespace(Sync=Sync)
