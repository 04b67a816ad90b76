"""Sharded checkpoints of several ranks: checkpoints.py under the launcher, on the CPU."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ranks import launch, pytestmark  # noqa: F401


def run(folder, ranks, *steps):
    launch(ranks, str(folder), *steps, program="checkpoints.py")


def test_checkpoints_of_one_and_two_ranks_are_loaded_by_both(tmp_path):
    loads = ["load_as_saved:two:2", "load_into:two:2", "resume:trained:2"]
    run(tmp_path, 2, "save:two", "train_and_save:trained", "load_on_a_placement:two:2", *loads)
    run(tmp_path, 1, "save:one", *loads)
    run(tmp_path, 2, "load_as_saved:one:1", "load_into:one:1")


@pytest.mark.slow
def test_checkpoints_of_four_ranks_and_of_grids(tmp_path):
    run(tmp_path, 4, "save:four", "load_as_saved:four:4", "load_into:four:4", "grids_of_other_sizes:four:4")
    run(tmp_path, 1, "load_as_saved:four:4", "load_into:four:4")
    run(tmp_path, 2, "load_into:four:4", "grids_of_other_sizes:four:4", "save:two")
    run(tmp_path, 4, "load_into:two:2")


def test_failures_are_raised_by_all_ranks(tmp_path):
    run(tmp_path, 2, "failing_save:a", "failing_load:b", "different_objects:c")


def test_other_tensors_and_objects(tmp_path):
    run(tmp_path, 2, "dtensors:a", "ranks_of_plain_values:b")
