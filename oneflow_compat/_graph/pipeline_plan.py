"""The plan of a pipeline: its stages, and the order in which a rank runs the parts of its program.

The stages come from `set_stage(id, placement)`, the order from torch.distributed.pipelining. For example, the
rank of the first of two stages, with four micro batches under "1f1b", runs

    forward 0, forward 1, backward 0, forward 2, backward 1, forward 3, backward 2, backward 3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    import torch

    from .._global.placement import placement as Placement

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B"}  # our name -> torch's
_PARTS = {"F": "forward", "B": "backward"}  # torch's letter -> the part of a micro batch


@dataclass(frozen=True)
class StagedModule:
    """A module of a graph with a pipeline stage. `name` is that of its block."""

    module: torch.nn.Module
    name: str
    stage: int
    placement: Placement | None


@dataclass(frozen=True)
class Action:
    """A part of the program: forward or backward of one micro batch."""

    part: str
    micro_batch: int


@dataclass(frozen=True)
class PipelinePlan:
    """What every rank knows of a pipeline, and the order of actions of this rank."""

    schedule: str
    placements: tuple[Placement, ...]  # placements of the stages
    actions: tuple[Action, ...]

    def stage_of(self, rank: int) -> int | None:
        """Return the stage of a rank, or None if the rank is in no stage."""
        return next((i for i, p in enumerate(self.placements) if rank in p.ranks), None)

    def __str__(self) -> str:
        ranks = ", ".join(str(placement.ranks.ravel().tolist()) for placement in self.placements)
        return f"{self.schedule} over the ranks {ranks}"


def plan_of(
    modules: Sequence[StagedModule], schedule: str | None, micro_batches: int, rank: int, world: int
) -> PipelinePlan | None:
    """Return the plan of a graph. UsageError if stages do not fit.

    It is None for fewer than two stages, and for stages that have an id only: these are hints, as in OneFlow.
    It is None as well for stages that share ranks, if no `schedule` was asked for.
    Without a `schedule`, it is 1f1b, or gpipe if there are fewer micro batches than stages.
    """
    if len({module.stage for module in modules}) < 2 or all(module.placement is None for module in modules):
        return None
    placements = _placements_of_stages(modules, world)
    count = len(placements)
    shared = _shared_rank(placements)
    if schedule is None:
        if shared is not None:
            return None
        schedule = "1f1b" if micro_batches >= count else "gpipe"
    if shared is not None:
        raise UsageError(
            f"the schedule {schedule!r} was asked for, and the stages {shared[0]} and {shared[1]} share rank"
            f" {shared[2]}",
            "Give each stage ranks of its own; no schedule here runs two stages on one rank.",
        )
    if schedule == "1f1b" and micro_batches < count:
        raise UsageError(
            f'the schedule "1f1b" of {count} stages was asked for with {micro_batches} micro batches',
            f"Set at least {count} steps with config.set_gradient_accumulation_steps(), or choose"
            ' config.pipeline_schedule("gpipe").',
        )
    plan = PipelinePlan(schedule, placements, ())
    stage = plan.stage_of(rank)
    if stage is None:  # the rank has no part in the pipeline
        actions = [Action(part, i) for i in range(micro_batches) for part in ("forward", "backward")]
    else:
        actions = orders(schedule, count, micro_batches)[stage]
    return PipelinePlan(schedule, placements, tuple(actions))


def _placements_of_stages(modules: Sequence[StagedModule], world: int) -> tuple[Placement, ...]:
    """Return the placement of each stage, from the first one on."""
    placements: dict[int, tuple[Placement, str]] = {}
    for module in modules:
        placement = module.placement
        if placement is None:
            raise UsageError(
                f"the block {module.name!r} has the stage {module.stage} and no placement, unlike others",
                f"Call set_stage({module.stage}, placement) with the placement of its parameters.",
            )
        if placement.ranks.max() >= world:
            raise UsageError(
                f"the block {module.name!r} has the stage {module.stage} on rank {placement.ranks.max()},"
                f" and there are {world} ranks",
                "Start more processes, or use a placement of ranks that exist.",
            )
        other, name = placements.setdefault(module.stage, (placement, module.name))
        if other != placement:
            raise UsageError(
                f"the stage {module.stage} has two placements: {other} in the block {name!r}, and"
                f" {placement} in {module.name!r}",
                "Give all blocks of a stage one placement.",
            )
    if sorted(placements) != list(range(len(placements))):
        raise UsageError(
            f"the stages have the ids {', '.join(map(str, sorted(placements)))}",
            f"Number them from 0 to {len(placements) - 1}, in the order in which data passes them.",
        )
    return tuple(placements[stage][0] for stage in range(len(placements)))


def _shared_rank(placements: Sequence[Placement]) -> tuple[int, int, int] | None:
    """Return two stages and a rank that both have, or None."""
    stage_of: dict[int, int] = {}
    for stage, placement in enumerate(placements):
        for rank in placement.ranks.ravel().tolist():
            other = stage_of.setdefault(rank, stage)
            if other != stage:
                return other, stage, rank
    return None


def orders(schedule: str, stages: int, micro_batches: int) -> Mapping[int, list[Action]]:
    """Return the actions of each stage in the order of one of torch's schedules."""
    # imported here because it loads torch._dynamo
    from torch.distributed.pipelining.schedules import get_schedule_class

    stage: Any = SimpleNamespace(num_stages=stages, group_size=stages, group_rank=0, stage_index=0)
    order = get_schedule_class(SCHEDULES[schedule])(stage, micro_batches).pipeline_order
    return {index: _numbered_from_zero(actions) for index, actions in order.items()}


def _numbered_from_zero(actions: Sequence[Any]) -> list[Action]:
    """Return the computations of one stage, with micro batches numbered in the order of their forward parts.

    torch numbers those of the last stage under 1F1B from 1 instead of 0.
    """
    parts, counts = [], dict.fromkeys(_PARTS.values(), 0)
    for action in actions:
        part = _PARTS.get(action.computation_type.value) if action is not None else None
        if part is not None:
            parts.append(Action(part, counts[part]))
            counts[part] += 1
    return parts
