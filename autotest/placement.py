"""Generators of placements and SBP for global tensors, and the scope that `globaltest` opens.

The candidate's `placement`, `sbp` and `env` are looked up when a value is sampled, never at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from .generators import generator
from .source import agree_over_ranks
from .tensors import devices

if TYPE_CHECKING:
    from .pair import CandidateTensor, Library, Module, Pair

_scope = {"global": False}


class GlobalScope:
    """with GlobalScope(): sampled tensors are global tensors."""

    def __enter__(self) -> None:
        self._before = _scope["global"]
        _scope["global"] = True

    def __exit__(self, *exc: object) -> None:
        _scope["global"] = self._before


def in_global_scope() -> bool:
    return _scope["global"]


is_global = in_global_scope


def globaltest(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make the sampled tensors of a test global tensors, the same on every rank."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        agree_over_ranks(f"{f.__module__}.{f.__qualname__}")
        with GlobalScope():
            return f(*args, **kwargs)

    return run


def initial_placement(candidate: Library) -> tuple[Any, Any]:
    """Return the placement and SBP of a sampled global tensor: all CPU ranks, broadcast."""
    return candidate.placement.all("cpu"), candidate.sbp.broadcast


def tensor_to_global(pair: Pair, tensor: CandidateTensor) -> CandidateTensor:
    """Return the tensor as a global leaf tensor."""
    placement, sbp = initial_placement(pair.candidate)
    needs = tensor.requires_grad
    global_tensor = tensor.detach().to_global(placement=placement, sbp=sbp).detach()
    return global_tensor.requires_grad_(True) if needs else global_tensor


def module_to_global(pair: Pair, module: Module) -> Module:
    """Return the module with global parameters."""
    placement, sbp = initial_placement(pair.candidate)
    state = module.state_dict().values()
    if any(getattr(v, "is_global", False) for v in state):
        return module
    return module.to_global(placement=placement, sbp=[sbp])


class _Listed(generator):
    """A generator that can also be iterated over."""

    def __len__(self) -> int:
        return len(self.value())

    def __getitem__(self, key: int) -> Any:
        return self.value()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value())


def make(candidate_of: Callable[[], Library]) -> dict[str, type]:
    """Return {name: class} of the placement and SBP generators of the namespace that `candidate_of()`
    returns.
    """
    placements = {c.__name__: c for c in _placement_generators(candidate_of)}
    return placements | {c.__name__: c for c in _sbp_generators(candidate_of, placements["random_placement"])}


def _placement_generators(candidate_of: Callable[[], Library]) -> tuple[type[generator], ...]:
    class all_placement(_Listed):
        """Every placement of all ranks: each device type, flat and as (nodes, ranks per node)."""

        def __init__(self) -> None:
            super().__init__([])

        def _calc_device(self) -> list[str]:
            return list(reversed(devices()))

        def _all(self) -> list[Any]:
            import numpy as np

            flow = candidate_of()
            world, nodes = flow.env.get_world_size(), flow.env.get_node_size()
            shapes = [(world,), (nodes, world // nodes)]
            return [
                flow.placement(d, np.arange(world).reshape(s))
                for d, s in product(self._calc_device(), shapes)
            ]

        def _calc_value(self) -> Any:
            return self._all()

    class all_cpu_placement(all_placement):
        def _calc_device(self) -> list[str]:
            return ["cpu"]

    class all_cuda_placement(all_placement):
        def _calc_device(self) -> list[str]:
            return [d for d in devices() if d == "cuda"]

    class random_placement(all_placement):
        def _calc_value(self) -> Any:
            choices = self._all()
            if not choices:
                import unittest

                raise unittest.SkipTest(f"{type(self).__name__}(): no such device here")
            return choices[self.choose.integer(0, len(choices))]

    class random_cpu_placement(random_placement):
        def _calc_device(self) -> list[str]:
            return ["cpu"]

    class random_gpu_placement(random_placement):
        def _calc_device(self) -> list[str]:
            return [d for d in devices() if d == "cuda"]

    return (
        all_placement,
        all_cpu_placement,
        all_cuda_placement,
        random_placement,
        random_cpu_placement,
        random_gpu_placement,
    )


def _sbp_generators(
    candidate_of: Callable[[], Library], random_placement: type[generator]
) -> tuple[type[generator], ...]:
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
            if placement is None:
                self.dim = dim
            elif isinstance(placement, random_placement):
                self.dim = len(placement.value().ranks.shape)
            elif hasattr(placement, "ranks"):
                self.dim = len(placement.ranks.shape)
            else:
                raise RuntimeError(
                    f"placement must be a random_placement() or a placement, found {placement!r}"
                )
            self.max_dim, self.except_split = max_dim, except_split
            self.except_broadcast, self.except_partial_sum = except_broadcast, except_partial_sum
            if isinstance(valid_split_axis, int):
                valid_split_axis = [valid_split_axis]
            self.valid_split_axis = list(range(max_dim) if valid_split_axis is None else valid_split_axis)

        def _all(self) -> list[Any]:
            sbp = candidate_of().sbp
            if self.max_dim == 0:
                return [[sbp.broadcast] * self.dim]
            choices = (
                []
                if self.except_split
                else [sbp.split(i) for i in range(self.max_dim) if i in self.valid_split_axis]
            )
            choices += [] if self.except_broadcast else [sbp.broadcast]
            choices += [] if self.except_partial_sum else [sbp.partial_sum]
            return list(product(choices, repeat=self.dim))

        def _calc_value(self) -> Any:
            return self._all()

    class random_sbp(all_sbp):
        """One of all_sbp.

        RuntimeError unless the first argument is a placement.
        """

        def _calc_value(self) -> Any:
            choices = self._all()
            return choices[self.choose.integer(0, len(choices))]

    return all_sbp, random_sbp
