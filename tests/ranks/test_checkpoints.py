"""Sharded checkpoints of several ranks: checkpoints.py under the launcher, on the CPU."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ranks import launch, pytestmark  # noqa: F401


def run(ranks, *arguments):
    launch(ranks, *map(str, arguments), program="checkpoints.py")


@pytest.mark.parametrize("saved_by, loaded_by", [(2, (2, 1)), (4, (2, 4)), (1, (2,))])
def test_a_checkpoint_is_loaded_by_any_number_of_ranks(tmp_path, saved_by, loaded_by):
    folder = tmp_path / "checkpoint"
    run(saved_by, "save", folder)
    for ranks in loaded_by:
        run(ranks, "load_into", folder, saved_by)
        if saved_by != 4 or ranks == 4:
            run(ranks, "load_as_saved", folder, saved_by)
