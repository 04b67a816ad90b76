"""Pipelines over ranks: pipelines.py under the launcher, on the CPU."""

import pytest
import torch
from test_ranks import launch

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


def test_two_stages_equal_one_rank():
    launch(
        2,
        "schedules_equal_one_rank",
        "results_go_to_all_ranks",
        "misplaced_stages_raise_on_every_rank",
        program="pipelines.py",
    )


@pytest.mark.slow
def test_a_schedule_keeps_every_bit():
    launch(2, "a_schedule_keeps_every_bit", "statistics_and_autocast_keep_every_bit", program="pipelines.py")


@pytest.mark.slow
def test_stages_of_several_ranks():
    launch(4, "data_and_tensor_parallel_stages", "four_stages", program="pipelines.py")
