"""Generators of placements and SBP.

`placement`, `sbp` and `env` of the tested library are looked up when a value is sampled, never at import.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .generators import generator
from .tensors import devices

if TYPE_CHECKING:
    from .pair import Library


def make(candidate_of: Callable[[], Library]) -> dict[str, type]:
    """Return {name: class} of these generators for the library that `candidate_of()` returns."""
    return {
        cls.__name__: type(
            cls.__name__, (cls,), {"candidate_of": staticmethod(candidate_of), "__doc__": cls.__doc__}
        )
        for cls in _GENERATORS
    }


class _Listed(generator):
    """A generator whose value is a list. It can be iterated over, too."""

    @staticmethod
    def candidate_of() -> Library:
        """Return the tested library; `make` defines it."""
        raise NotImplementedError

    def _all(self) -> list[Any]:
        raise NotImplementedError

    def _calc_value(self) -> Any:
        return self._all()

    def __len__(self) -> int:
        return len(self.value())

    def __getitem__(self, key: int) -> Any:
        return self.value()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value())


class all_placement(_Listed):
    """Every placement of all ranks: each device type, flat and as (nodes, ranks per node)."""

    device_types: ClassVar[tuple[str, ...]] = ("cuda", "cpu")

    def __init__(self) -> None:
        super().__init__([])

    def _all(self) -> list[Any]:
        flow, available = self.candidate_of(), devices()
        world, nodes = flow.env.get_world_size(), flow.env.get_node_size()
        shapes = [(world,), (nodes, world // nodes)]
        return [
            flow.placement(device, np.arange(world).reshape(shape))
            for device, shape in product(self.device_types, shapes)
            if device in available
        ]


class all_cpu_placement(all_placement):
    """Every placement of all ranks on the CPU."""

    device_types = ("cpu",)


class all_cuda_placement(all_placement):
    """Every placement of all ranks on GPUs."""

    device_types = ("cuda",)


class random_placement(all_placement):
    """One of all_placement. The test is skipped if there is none."""

    def _calc_value(self) -> Any:
        choices = self._all()
        if not choices:
            raise unittest.SkipTest(f"{type(self).__name__}(): no such device here")
        return choices[self.choose.integer(0, len(choices))]


class random_cpu_placement(random_placement):
    """One of all_cpu_placement."""

    device_types = ("cpu",)


class random_gpu_placement(random_placement):
    """One of all_cuda_placement. The test is skipped if there is no GPU."""

    device_types = ("cuda",)


class all_sbp(_Listed):
    """Every SBP of a tensor of `max_dim` dimensions, with one entry per dimension of the placement.

    RuntimeError unless the first argument is a placement.
    """

    def __init__(
        self,
        placement: Any = None,
        dim: int = 1,
        max_dim: int = 0,
        except_split: bool = False,
        except_broadcast: bool = False,
        except_partial_sum: bool = False,
        valid_split_axis: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__([])
        self.dim = dim if placement is None else len(_ranks_of(placement).shape)
        self.max_dim, self.except_split = max_dim, except_split
        self.except_broadcast, self.except_partial_sum = except_broadcast, except_partial_sum
        if isinstance(valid_split_axis, int):
            valid_split_axis = [valid_split_axis]
        self.valid_split_axis = list(range(max_dim) if valid_split_axis is None else valid_split_axis)

    def _all(self) -> list[Any]:
        sbp = self.candidate_of().sbp
        if self.max_dim == 0:
            return [[sbp.broadcast] * self.dim]
        split_dims = () if self.except_split else range(self.max_dim)
        choices = [sbp.split(dim) for dim in split_dims if dim in self.valid_split_axis]
        choices += [] if self.except_broadcast else [sbp.broadcast]
        choices += [] if self.except_partial_sum else [sbp.partial_sum]
        return list(product(choices, repeat=self.dim))


class random_sbp(all_sbp):
    """One of all_sbp.

    RuntimeError unless the first argument is a placement.
    """

    def _calc_value(self) -> Any:
        choices = self._all()
        return choices[self.choose.integer(0, len(choices))]


def _ranks_of(placement: Any) -> Any:
    """Return the ranks of a placement, or of the placement that a generator samples."""
    if isinstance(placement, random_placement):
        placement = placement.value()
    if not hasattr(placement, "ranks"):
        raise RuntimeError(f"placement must be a random_placement() or a placement, found {placement!r}")
    return placement.ranks


_GENERATORS = (
    all_placement,
    all_cpu_placement,
    all_cuda_placement,
    random_placement,
    random_cpu_placement,
    random_gpu_placement,
    all_sbp,
    random_sbp,
)
