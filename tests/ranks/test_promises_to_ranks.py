"""The promises of docs/global-failures.md: each row of its tables names the test that keeps it.

The programs are those of tests/fuzz/fuzz_ranks.py, whose ranks are forked from one process. They all run at
once, before the first test, on 2 ranks.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from time_limits import seconds

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


@functools.cache
def verdicts():
    """{program: the lines about it}; a program that passes has one line, which begins with "ok"."""
    script = ROOT / "tests" / "fuzz" / "fuzz_ranks.py"
    done = subprocess.run(
        [sys.executable, script, "--corpus", "--ranks", "2"],
        capture_output=True,
        text=True,
        timeout=seconds(300),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = {}
    for block in re.split(r"^(?=ok |FAILED )", done.stdout, flags=re.M)[1:]:
        found[block.split()[1]] = block
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    return found


def check(*programs):
    for program in programs:
        verdict = verdicts().get(program, "did not run")
        assert verdict.startswith("ok"), f"{program}: {verdict[-4000:]}"


def test_each_promise_names_a_test():
    page = (ROOT / "docs" / "global-failures.md").read_text()
    rows = [row for row in re.findall(r"^\| (.+) \|$", page, re.M) if "`tests/" in row]
    named = {
        name for row in rows for name in re.findall(r"`tests/ranks/test_promises_to_ranks\.py::(\w+)`", row)
    }
    own = {name for name in globals() if name.startswith("test_")} - {"test_each_promise_names_a_test"}
    assert named == own


def test_a_tensor_becomes_global_on_all_ranks_or_none():
    check("to_global/raises", "to_global/disagrees")


def test_a_global_tensor_moves_on_all_ranks_or_none():
    check("move/disagrees")


def test_a_module_becomes_global_on_all_ranks_or_none():
    check("module/disagrees", "ddp/disagrees")


def test_a_read_is_made_by_all_ranks():
    check("numpy/skips", "numpy/disagrees")


def test_a_save_fails_on_all_ranks():
    check("save/raises", "save_folder/disagrees")


def test_a_load_fails_on_all_ranks():
    check("load/raises")


def test_a_collective_of_comm_fails_on_all_ranks():
    check("all_reduce/disagrees", "scatter/raises")


def test_random_tensors_are_made_on_all_ranks_or_none():
    check("ones/disagrees", "partial_fc/raises")


def test_a_graph_runs_the_same_program_on_all_ranks():
    check(
        "a_number/disagrees",
        "a_branch_at_first/disagrees",
        "a_frozen_parameter/disagrees",
        "an_sbp/disagrees",
    )


def test_an_error_in_build_is_raised_on_all_ranks():
    check("graph/raises", "an_error_in_a_later_build/disagrees")


def test_a_graph_is_called_by_all_ranks():
    check("graph/skips")


def test_the_options_of_optimizers_are_the_same_on_all_ranks():
    check("option_lr_of_SGD/disagrees", "the_rate_of_data_parallel/disagrees")


def test_the_global_arguments_have_the_same_sizes_on_all_ranks():
    check("a_size_seen_before/disagrees")


def test_a_state_is_loaded_on_all_ranks_or_none():
    check("a_state_of_another_shape/disagrees")


def test_an_error_in_a_run_ends_the_wait_of_the_others():
    check("an_error_in_the_run/disagrees")


def test_operators_are_compared_at_the_next_agreement():
    check("cumsum/disagrees")


def test_a_late_rank_is_named():
    check("matmul/late")


def test_a_killed_rank_is_named():
    check(
        "matmul/dies",
        "backward_of_ddp/dies_inside",
        "backward_of_a_move/dies_inside",
        "backward_and_grad/dies_inside",
    )
