"""Global tensors in tests: the scope that `globaltest` opens, and how sampled tensors become global."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .source import agree_over_ranks

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
