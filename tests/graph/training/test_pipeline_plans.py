"""Plans of pipelines: the stages, the order of the parts, and the errors of stages that do not fit."""

import pytest
import torch

import oneflow as flow
from oneflow._graph.errors import UsageError
from oneflow._graph.pipeline_plan import StagedModule, plan_of

MODULE = torch.nn.Identity()


def stage(id, ranks, name="block"):
    placement = None if ranks is None else flow.placement("cpu", ranks)
    return StagedModule(MODULE, name, id, placement)


def order(stages, schedule, micro_batches, rank):
    plan = plan_of(stages, schedule, micro_batches, rank, world=4)
    return " ".join(f"{action.part[0]}{action.micro_batch}" for action in plan.actions)


TWO = [stage(0, [0]), stage(1, [1])]
THREE = [stage(0, [0]), stage(1, [1]), stage(2, [2])]


@pytest.mark.parametrize(
    ("stages", "schedule", "rank", "expected"),
    [
        (TWO, "gpipe", 0, "f0 f1 f2 b0 b1 b2"),
        (TWO, "1f1b", 0, "f0 f1 b0 f2 b1 b2"),
        (TWO, "1f1b", 1, "f0 b0 f1 b1 f2 b2"),
        (THREE, "1f1b", 0, "f0 f1 f2 b0 b1 b2"),
        (THREE, None, 2, "f0 b0 f1 b1 f2 b2"),
        (TWO, "1f1b", 3, "f0 b0 f1 b1 f2 b2"),  # a rank in no stage
    ],
)
def test_order_of_a_schedule(stages, schedule, rank, expected):
    assert order(stages, schedule, 3, rank) == expected


def test_default_is_gpipe_with_fewer_micro_batches_than_stages():
    assert plan_of(THREE, None, 2, 0, world=4).schedule == "gpipe"


def test_one_stage_has_no_plan():
    assert plan_of([stage(0, [0]), stage(0, [0])], None, 4, 0, world=4) is None


@pytest.mark.parametrize("micro_batches", [2, 3, 5, 8])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_each_stage_computes_each_part_once(schedule, micro_batches):
    for rank in range(2):
        parts = order(TWO, schedule, micro_batches, rank).split()
        assert sorted(parts) == sorted(f"{p}{i}" for p in "fb" for i in range(micro_batches))
        assert all(parts.index(f"f{i}") < parts.index(f"b{i}") for i in range(micro_batches))


def test_1f1b_keeps_as_many_micro_batches_as_stages_are_left():
    for rank in range(3):
        kept = most = 0
        for part in order(THREE, "1f1b", 8, rank).split():
            kept += 1 if part.startswith("f") else -1
            most = max(most, kept)
        assert most == 3 - rank


@pytest.mark.parametrize(
    ("stages", "schedule", "message"),
    [
        ([*TWO, stage(2, None, "head")], None, r"block 'head' has the stage 2 and no placement"),
        ([*TWO, stage(2, [7])], None, r"stage 2 on rank 7, and there are 4 ranks"),
        ([*TWO, stage(1, [2])], None, r"stage 1 has two placements"),
        ([stage(0, [0]), stage(2, [1])], None, r"stages have the ids 0, 2\b[\s\S]*from 0 to 1"),
        ([*TWO, stage(2, [1, 2])], "gpipe", r"'gpipe' was asked for, and the stages 1 and 2 share rank 1"),
        (THREE, "1f1b", r"\"1f1b\" of 3 stages was asked for with 2 micro batches"),
    ],
)
@pytest.mark.parametrize("rank", [0, 3])
def test_stages_that_do_not_fit_are_the_same_error_on_every_rank(stages, schedule, message, rank):
    with pytest.raises(UsageError, match=message):
        plan_of(stages, schedule, 2, rank, world=4)


def test_stages_that_share_ranks_run_one_after_another_unless_a_schedule_was_asked_for():
    assert plan_of([*TWO, stage(2, [1, 2])], None, 4, 0, world=4) is None


def test_stages_that_have_only_an_id_are_no_pipeline():
    assert plan_of([stage(0, None), stage(1, None)], None, 2, 0, world=4) is None


def test_an_unknown_schedule_is_refused():
    graph = flow.nn.Graph()
    with pytest.raises(ValueError, match="must be one of 'gpipe', '1f1b', found 'zigzag'"):
        graph.config.pipeline_schedule("zigzag")
