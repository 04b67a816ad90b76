"""Global tensors of several ranks: program.py, compared.py, grid.py and training.py under the launcher, on
the CPU.
"""

import os
import subprocess
import sys

import pytest
import torch
from time_limits import seconds

FOLDER = os.path.dirname(os.path.abspath(__file__))
pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


def launch(ranks, *checks, program="program.py"):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    command = [
        sys.executable,
        "-m",
        "oneflow.distributed.launch",
        "--nproc_per_node",
        str(ranks),
        "--rdzv_backend",
        "c10d",
        "--rdzv_endpoint",
        "localhost:0",
        os.path.join(FOLDER, program),
        *checks,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds(150), env={**env, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[:4000]


def test_tensors_on_two_ranks():
    launch(
        2,
        "local_parts_make_a_global_tensor",
        "moves_between_rules",
        "ranks_named_in_any_order",
        "placements_of_single_ranks",
        "operators",
        "a_module_with_a_counter_is_split",
        "split_to_partial_sum",
        "flips_of_all_ranks",
        "structures_on_ranks_without_data",
        "saved_by_all_ranks_at_once",
        "integers_and_scalars",
        "classes_sampled_where_they_are",
        "batch_norm",
        "losses_are_means_of_the_whole",
        "gradients",
        "random_numbers",
        "files",
        "state_of_a_scalar_parameter",
        "other_data",
        "averaged_gradients",
    )


def test_functions_under_every_rule():
    launch(
        2,
        "functions",
        "recurrent_layers",
        "an_lstm_where_its_samples_are",
        "made_in_global_mode",
        "random_numbers_in_a_graph",
        "labels_in_a_graph",
        "a_graph_warns_of_nothing",
        "causal_attention_in_a_graph",
        program="compared.py",
    )


def test_training_on_two_ranks_equals_one():
    launch(2, "training_equals_one_rank")


def test_graphs_on_two_ranks():
    launch(
        2,
        "graphs_equal_one_rank",
        "a_graph_gives_no_needless_warning",
        "zero_splits_the_state",
        "zero_splits_the_state_of_calls_in_eager_mode",
        "a_pipeline_equals_one_rank",
        "a_gradient_overflows_on_one_stage",
        "a_convolution_on_one_stage",
        "dtypes_on_one_stage",
        "rules_on_one_stage",
        "positions_on_one_stage",
        "norms_of_narrow_data_on_one_stage",
        "graphs_of_larger_parts",
        "graphs_resume_from_files",
    )


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_zero_stage_3_stores_shards(ranks):
    launch(ranks, "shards_are_stored", "buckets", program="zero_stage_3.py")


def test_values_and_state_under_zero_stage_3():
    launch(
        2,
        "values_between_calls",
        "training_in_eager_mode_goes_on",
        "state_of_a_replicated_optimizer",
        "options_differ",
        program="zero_stage_3.py",
    )


def test_checkpoints_under_zero_stage_3():
    launch(2, "checkpoints", program="zero_stage_3.py")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", ["every_composition", "in_eager_mode", "checkpoints", "with_inductor"])
def test_zero_stage_3_with_other_options(ranks, check):
    launch(ranks, check, program="zero_stage_3.py")


@pytest.mark.slow
def test_zero_stage_3_on_a_grid_and_in_a_compiled_step():
    launch(4, "a_grid", program="zero_stage_3.py")
    launch(2, "a_compiled_step", program="zero_stage_3.py")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_under_zero_stage_3(ranks, monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # freed memory is given back at once
    launch(ranks, "bytes_of_a_rank", program="zero_stage_3.py")


def test_drawn_training():
    launch(2, "0:2", program="training.py")


@pytest.mark.slow
@pytest.mark.parametrize("ranks, seeds", [(2, "100:106"), (2, "106:112"), (2, "112:118"), (4, "200:202")])
def test_more_drawn_training(ranks, seeds):
    launch(ranks, seeds, program="training.py")


@pytest.mark.slow
def test_every_optimizer_on_two_ranks():
    launch(2, "every_optimizer_equals_one_rank", "every_optimizer_in_a_graph")


@pytest.mark.slow
def test_graphs_on_two_ranks_with_inductor():
    launch(2, "graphs_of_inductor", "moved_twice_with_inductor")


def test_a_grid_of_four_ranks():
    launch(
        4,
        "two_dimensions",
        "rows_of_a_table_cut_both_ways",
        "filled_where_they_are",
        "selections_and_padding",
        "convolutions_of_samples_on_all_ranks",
        "numbers_of_ranks_elsewhere",
        "training_on_a_grid",
        "stages_are_clipped_together",
        program="grid.py",
    )


@pytest.mark.parametrize("dialect", ["oneflow", "torch"])
def test_processes_of_a_programs_own(tmp_path, dialect):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    command = [sys.executable, os.path.join(FOLDER, "spawned.py"), str(tmp_path / "meeting")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds(150),
        env={**env, "OMP_NUM_THREADS": "1", "ONEFLOW_DIALECT": dialect},
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_an_error_on_one_rank_ends_all():
    with pytest.raises(AssertionError, match="index 9 is out of bounds"):
        launch(2, "a_kernel_fails_on_one_rank")


def test_a_rank_that_never_comes_is_named(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TIMEOUT_SECONDS", str(seconds(3)))
    launch(2, "a_rank_that_never_comes_is_named")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_difference_between_ranks_is_an_error_on_every_rank(ranks):
    """The programs of tests/fuzz/rank_differences.py, whose ranks differ in one fact of a graph."""
    script = os.path.join(FOLDER, "..", "fuzz", "fuzz_ranks.py")
    done = subprocess.run(
        [sys.executable, script, "--differences", "--ranks", str(ranks)],
        capture_output=True,
        text=True,
        timeout=seconds(1200),
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
