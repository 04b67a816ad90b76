"""`oneflow.placement`: a device type and a grid of ranks."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from .. import _processes
from .._cpu_for_cuda import cpu_for_cuda
from .._errors import StateError

_TYPES = ("cpu", "cuda", "meta")


def require_device_type(device_type: str) -> None:
    """Refuse a device type that neither OneFlow nor this build of torch has; RuntimeError, as in both
    libraries.

    torch allows one rename, that of its private backend. The first program that asks for "mock", OneFlow's
    device type for tests, renames the backend to it, unless another backend uses the name.
    """
    if device_type in _TYPES or not device_type:
        return
    accelerator, private = torch.accelerator.current_accelerator(), torch._C._get_privateuse1_backend_name()
    if device_type == "mock" and private == "privateuseone":
        torch.utils.rename_privateuse1_backend("mock")
        torch._register_device_module("mock", _mock_module())
        return
    if device_type != private and (accelerator is None or device_type != accelerator.type):
        raise RuntimeError(
            f"Expected one of cpu, cuda device type, found {device_type!r}: this build of torch has no such"
            " device"
        )


def _mock_module() -> types.ModuleType:
    """Return the module that torch needs for a backend "mock", which has no device and cannot start."""

    def refuse() -> NoReturn:
        raise RuntimeError(
            "a device of type 'mock' holds no tensors: it is a name for tests; use 'cpu' or 'cuda'"
        )

    module = types.ModuleType("torch.mock", "OneFlow's device type for tests.")
    vars(module).update(
        is_available=lambda: False,
        device_count=lambda: 0,
        _is_in_bad_fork=lambda: False,
        _lazy_init=refuse,
    )
    return module


def require_device(device_type: str) -> None:
    """Raise unless this process has a device of the type of a placement."""
    if device_type == "cuda" and not torch.cuda.is_available():
        raise StateError(
            "a tensor on a placement of type 'cuda' needs a GPU, and this process sees no CUDA device; use"
            " flow.placement('cpu', ranks)"
        )


def _grid_of(ranks: Any) -> np.ndarray:
    """Return the array of ranks that a list, a grid, a range or {node: device(s)} names."""
    if isinstance(ranks, dict):
        ranks = [r for node in sorted(ranks) for r in np.atleast_1d(np.asarray(ranks[node])).ravel().tolist()]
    if ranks is None:
        raise TypeError("placement: the ranks are missing; write placement('cpu', ranks=[0])")
    try:
        grid = np.atleast_1d(list(ranks) if isinstance(ranks, range) else ranks)
    except ValueError:  # rows of different lengths
        grid = np.array([])
    is_integer = grid.size > 0 and grid.dtype.kind in "iu"
    if not is_integer or (grid < 0).any() or len(set(grid.ravel().tolist())) != grid.size:
        raise RuntimeError(
            f"placement: ranks must be different non-negative numbers, in a list or a grid, found {ranks}"
        )
    return grid.astype(np.int64)


class placement:
    """Where a global tensor lives: a device type and the ranks that hold it.

    placement(type, ranks): `ranks` is a (nested) list of ints, or OneFlow's older {node: device(s)} form,
    with `hierarchy` as the shape of the grid. The ranks fill the grid in ascending order, whatever their
    written order, as in OneFlow. A placement is compared, hashed and printed by content. Ranks beyond the
    world size are refused at use, not here.

    TypeError unless the device type is a string. RuntimeError for an unknown device type.
    """

    __slots__ = ("_type", "_ranks")

    def __init__(
        self,
        type: str | None = None,
        ranks: Any = None,
        hierarchy: Sequence[int] | None = None,
        *,
        device_type: str | None = None,
        device_ids: Any = None,
    ) -> None:
        type = device_type if type is None else type
        ranks = device_ids if ranks is None else ranks
        if not isinstance(type, str):
            raise TypeError(f"placement: the device type must be a string, found {type!r}")
        type = cpu_for_cuda(type)
        require_device_type(type or "''")
        grid = _grid_of(ranks)
        shape = grid.shape if hierarchy is None else tuple(hierarchy)
        self._type, self._ranks = type, np.sort(grid, axis=None).reshape(shape)

    type = property(lambda self: self._type, doc='"cpu" or "cuda"')
    device_type = property(lambda self: self._type, doc="older name of `type`")
    ranks = property(lambda self: self._ranks.copy(), doc="numpy int64 array, shaped as the hierarchy")
    hierarchy = property(lambda self: torch.Size(self._ranks.shape), doc="shape of the rank grid")

    @property
    def parallel_conf(self) -> str:
        """Text form of the placement, as OneFlow's protobuf message prints it."""
        names = "".join(f'device_name: "@0:{r}" ' for r in self._ranks.ravel().tolist())
        dims = "".join(f"dim: {size} " for size in map(int, self._ranks.shape))
        return f'{names}device_tag: "{self._type}" hierarchy {{ {dims}}}'

    @staticmethod
    def all(type: str) -> placement:
        """The placement of every rank in the world.

        RuntimeError for "cuda" in a process that sees no CUDA device.
        """
        type = cpu_for_cuda(type)
        if type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                "placement.all('cuda'): this process sees no CUDA device; use placement.all('cpu'), or"
                " placement('cuda', ranks) to name the ranks"
            )
        return placement(type, list(range(_processes.get_world_size())))

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, placement):
            return NotImplemented
        return (
            self._type == value._type
            and self._ranks.shape == value._ranks.shape
            and bool((self._ranks == value._ranks).all())
        )

    def __hash__(self) -> int:
        return hash((self._type, self._ranks.shape, tuple(self._ranks.ravel().tolist())))

    def __repr__(self) -> str:
        return f'oneflow.placement(type="{self._type}", ranks={self._ranks.tolist()})'

    def __reduce__(self) -> tuple[Any, ...]:
        return placement, (self._type, self._ranks.tolist())


placement.__module__ = "oneflow"
