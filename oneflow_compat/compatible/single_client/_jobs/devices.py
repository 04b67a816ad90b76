"""Which device a job runs on: `scope.placement("gpu"|"cpu", "0:0-3")` on the one device of this process."""

from dataclasses import dataclass
from typing import Any

import torch

from .... import _env
from . import session as _session
from .context import innermost


@dataclass(frozen=True)
class Placement:
    """The arguments of `scope.placement`: device kind ("cpu", "gpu") and the machine:device ids."""

    device_tag: str
    machine_device_ids: tuple[Any, ...]
    hierarchy: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.device_tag not in ("cpu", "gpu", "cuda"):
            raise ValueError(f'scope.placement: the device must be "cpu" or "gpu", found {self.device_tag!r}')
        count = 0
        for device_ids in self.machine_device_ids:
            machine, _, ids = str(device_ids).partition(":")
            first_id, _, last_id = ids.partition("-")
            if not (
                machine.lstrip("@").isdigit() and first_id.isdigit() and (not last_id or last_id.isdigit())
            ):
                raise ValueError(
                    f'scope.placement: machine and devices must look like "0:0-3", found {device_ids!r}'
                )
            count += int(last_id or first_id) - int(first_id) + 1
        object.__setattr__(self, "parallel_num", count)

    @property
    def kind(self) -> str:
        return "cpu" if self.device_tag == "cpu" else "gpu"


def may_use_cpu_for_gpu() -> bool:
    names = "ONEFLOW_CPU_FOR_CUDA", "ONEFLOW_LEGACY_CPU"
    return any(map(_env.is_set, names)) or bool(_session.default().settings.get("cpu_for_gpu"))


def torch_device(device_kind: str) -> torch.device:
    """Return the torch device of "cpu" or "gpu".

    A missing GPU is an error unless the user allowed the CPU.
    """
    if device_kind == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", _env.get_int("LOCAL_RANK") % torch.cuda.device_count())
    if may_use_cpu_for_gpu():
        return torch.device("cpu")
    raise RuntimeError(
        'a job asked for placement "gpu", but there is no CUDA device (torch.cuda.is_available() is False). '
        "To run it on the CPU instead, set the environment variable ONEFLOW_CPU_FOR_CUDA=1, "
        "or call flow.config.use_cpu_when_no_gpu() before the first job."
    )


def default_kind(job: Any) -> str:
    """The device kind outside any placement scope.

    It is that of the job's default placement, else "gpu" if there is a GPU.
    """
    placement = job.config.default_placement if job is not None else None
    if placement is not None:
        return placement.kind
    return "gpu" if torch.cuda.is_available() else "cpu"


def default(job: Any) -> torch.device:
    return torch_device(default_kind(job))


def current(job: Any) -> torch.device:
    """The device of the innermost placement scope."""
    placement = innermost("placement")
    return default(job) if placement is None else torch_device(placement.kind)
