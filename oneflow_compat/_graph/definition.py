"""What one graph is made of: its build function and the live objects that the function works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _processes
from .._global.marks import OfSeveralRanks, several
from .._global.tensor import of_several_ranks
from .errors import UsageError
from .pipeline_plan import plan_of
from .program.pytree import positional_names, tree_leaves

if TYPE_CHECKING:
    import torch

    from .argument_numbers import ArgumentNumbers
    from .config import Config
    from .cut_step import CutStep
    from .pipeline_plan import PipelinePlan, StagedModule


@dataclass(frozen=True)
class GraphDefinition:
    """The build function of an engine, and its state. The package docstring describes the fields.

    `modules`, `tensors`, `optimizers`, `grad_scaler` and `recompute` are values, or functions that return
    them. `resolve` in capture/state_map.py reads both forms.
    """

    build: Callable[..., Any]
    modules: Mapping[str, torch.nn.Module] | Callable[[], Any] = field(default_factory=dict)
    tensors: Mapping[str, torch.Tensor] | Callable[[], Any] = field(default_factory=dict)
    optimizers: Sequence[Any] | Callable[[], Any] = ()
    grad_scaler: Any = None
    recompute: Sequence[torch.nn.Module] | Callable[[], Any] = ()
    stages: Callable[[], Sequence[StagedModule]] = tuple  # the modules with a pipeline stage
    name: str = "graph"
    unrecorded: Callable[..., Any] | None = None  # build(), without what a front end notes for its listings
    owner: object = None  # the object whose method build() is; its attributes are state
    # whether the caller sees the writes of build() to arguments and captured tensors
    writes_through: Callable[[], bool] = lambda: True
    # build() is a whole training step of eager mode: it steps its optimizers, and owns the gradients of
    # parameters. `optimizers` is a list then, which gets each optimizer that a capture finds
    steps_in_build: bool = False
    cut: CutStep | None = None  # head and tail of a compiled step that was cut in two
    # numbers of a compiled step that change from call to call
    argument_numbers: ArgumentNumbers | None = None

    @property
    def argument_names(self) -> list[str]:
        """The names of the positional parameters of build()."""
        return positional_names(self.build)

    @property
    def updates_after_build(self) -> bool:
        """Whether the optimizers step when build() has returned: then gradients stay inside the call."""
        return not self.steps_in_build and bool(callable(self.optimizers) or self.optimizers)

    def involves_ranks(self, *values: Any) -> bool:
        """Whether the values or the modules have global tensors of several ranks, or are data parallel."""
        modules = self.modules() if callable(self.modules) else self.modules
        parts = [part for module in modules.values() for part in module.modules()]
        state = [[*part._parameters.values(), *part._buffers.values()] for part in parts]
        return any(getattr(part, "_is_ddp_module", False) for part in parts) or any(
            isinstance(leaf, OfSeveralRanks) for leaf in tree_leaves((values, state))
        )

    def pipeline_plan(self, config: Config) -> PipelinePlan | None:
        """Return the plan of the pipeline, or None if the micro batches run one after another."""
        if not (several() and self.updates_after_build and config.accumulation > 1):
            return None
        rank, world = _processes.get_rank(), _processes.get_world_size()
        plan = plan_of(self.stages(), config.pipeline_schedule, config.accumulation, rank, world)
        if plan is not None and config.backend not in ("aten", "auto"):
            if config.pipeline_schedule is None:
                return None
            raise UsageError(
                f"a pipeline of {len(plan.placements)} stages was asked for with the backend"
                f" {config.backend!r}, which would change the order of sends",
                'Choose config.set_backend("aten").',
            )
        return plan

    def store_shards(self, config: Config) -> None:
        """Store parameters and optimizer state as shards of the ranks, if the options ask for it."""
        if not (config.zero_stores_shards and config.zero is not None and several()):
            return
        modules = self.modules() if callable(self.modules) else self.modules
        optimizers = self.optimizers() if callable(self.optimizers) else self.optimizers
        of_several_ranks().store_shards(
            modules.values(), [optimizer for optimizer, _ in optimizers], config.zero
        )
