"""oneflow.env: ranks, devices, and the knobs of OneFlow's runtime."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _errors
from ._global import placement as _placement
from ._processes import get_local_rank, get_node_size, get_rank, get_world_size

__all__ = ["get_local_rank", "get_node_size", "get_rank", "get_world_size"]


def all_device_placement(device_type: str) -> _placement.placement:
    """The placement holding every rank, on `device_type` ("cpu", "cuda")."""
    return _placement.placement.all(device_type)


def is_multi_client() -> bool:
    return True


def init_rdma() -> NoReturn:
    """OneFlow's RDMA transport; torch's backends choose their transport themselves, so nothing is
    switched.
    """
    raise _errors.unsupported(
        "env.init_rdma()", "rdma", "NCCL and Gloo use RDMA by themselves where the network has it."
    )


def rdma_is_initialized() -> bool:
    """Always False: OneFlow's own RDMA transport does not exist here."""
    return False


def destory_rdma() -> None:
    """Nothing to end: OneFlow's own RDMA transport is never started (the name is OneFlow's spelling)."""


def __getattr__(name: str) -> Any:
    """Names of the job-function API's flow.env (ctrl_port, machine, log_dir, ...)."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .compatible.single_client import env as legacy  # the job-function API loads on demand

    return getattr(legacy, name)
