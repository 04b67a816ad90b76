"""oneflow.env: ranks, devices, and the knobs of OneFlow's runtime."""
from __future__ import annotations

from . import _env


def get_rank() -> int:
    """Number of this process among all (0 without a launcher and a process group)."""
    group = _group_without_launcher()
    return group.get_rank() if group else _env.get_int("RANK")


def get_local_rank() -> int:
    """Number of this process on its node."""
    return _env.get_int("LOCAL_RANK")


def get_world_size() -> int:
    """How many processes take part (1 without a launcher and a process group)."""
    group = _group_without_launcher()
    return group.get_world_size() if group else _env.get_int("WORLD_SIZE")


def _group_without_launcher():
    """torch.distributed where a program has made the process group with numbers of its own (multiprocessing.spawn), else None."""
    if _env.get("WORLD_SIZE") != "1":
        return None
    from torch import distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None


def get_node_size() -> int:
    """How many nodes take part."""
    local = _env.get("LOCAL_WORLD_SIZE")
    return max(1, get_world_size() // int(local)) if local else 1


def all_device_placement(device_type: str):
    """The placement holding every rank, on `device_type` ("cpu", "cuda")."""
    from ._global.placement import placement

    return placement.all(device_type)


def is_multi_client() -> bool:
    return True


def init_rdma():
    """OneFlow's RDMA transport; torch's backends choose their transport themselves, so nothing is switched."""
    from ._errors import unsupported

    raise unsupported("env.init_rdma()", "rdma", "NCCL and Gloo use RDMA by themselves where the network has it.")


def rdma_is_initialized() -> bool:
    """Always False: OneFlow's own RDMA transport does not exist here."""
    return False


def destory_rdma():
    """Nothing to end: OneFlow's own RDMA transport is never started (the name is OneFlow's spelling)."""


def __getattr__(name):
    """Names of the job-function API's flow.env (ctrl_port, machine, log_dir, ...)."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .compatible.single_client import env as legacy

    return getattr(legacy, name)
