"""The inputs of a module with a pipeline stage move to the stage's placement, as in OneFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch.utils._pytree as pytree

from ...._global.marks import OfSeveralRanks, several
from ...._global.tensor import to_global
from .patching import patched_attributes

if TYPE_CHECKING:
    from ...pipeline_plan import StagedModule


@contextlib.contextmanager
def inputs_on_stages(modules: Iterable[StagedModule]) -> Iterator[None]:
    """In the block, forward() of each module gets its global tensors on the placement of its stage."""
    changes = [(m.module, "forward", _forward(m)) for m in modules if m.placement is not None]
    with patched_attributes(changes) if changes and several() else contextlib.nullcontext():
        yield


def _forward(staged: StagedModule) -> Callable[..., Any]:
    original, placement = staged.module.forward, staged.placement

    def on_stage(value: object) -> object:
        if isinstance(value, OfSeveralRanks) and value._of_placement != placement:
            return to_global(value, placement)
        return value

    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(on_stage, (args, kwargs))
        return original(*args, **kwargs)

    return forward
