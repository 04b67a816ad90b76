"""Sharded checkpoints of several ranks: checkpoints.py under the launcher, on the CPU."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ranks import launch, pytestmark  # noqa: F401


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with checkpoints of one, two and four ranks."""
    path = tmp_path_factory.mktemp("checkpoints")
    run(path, 1, "save:one")
    run(path, 2, "save:two", "train_and_save:trained")
    run(path, 4, "save:four")
    return path


def run(folder, ranks, *steps):
    launch(ranks, str(folder), *steps, program="checkpoints.py")


def test_one_process_loads_the_checkpoints_of_several_ranks(folder):
    run(
        folder,
        1,
        "load_as_saved:two:2",
        "load_into:two:2",
        "load_as_saved:four:4",
        "load_into:four:4",
        "grids_of_other_sizes:four:4",
        "resume:trained:2",
    )


def test_two_ranks_load_the_checkpoints_of_one_two_and_four(folder):
    run(
        folder,
        2,
        "load_as_saved:one:1",
        "load_into:one:1",
        "load_as_saved:two:2",
        "load_into:two:2",
        "load_on_a_placement:two:2",
        "load_into:four:4",
        "grids_of_other_sizes:four:4",
        "resume:trained:2",
    )


def test_four_ranks_load_the_checkpoints_of_two_and_four(folder):
    run(
        folder,
        4,
        "load_into:two:2",
        "load_as_saved:four:4",
        "load_into:four:4",
        "grids_of_other_sizes:four:4",
    )


def test_failures_and_other_tensors(tmp_path):
    run(
        tmp_path,
        2,
        "failing_save:a",
        "failing_load:b",
        "dtensors:c",
        "different_objects:d",
        "ranks_of_plain_values:e",
    )
