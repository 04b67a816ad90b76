"""The fuzzer of training steps: a few fixed programs, and self-tests with a planted lost value."""

import subprocess
import sys
from dataclasses import replace

import fuzz_steps
import pytest
import step_worlds
from fuzz_steps import judge
from random_steps import FLAGS, LOCATIONS, MODELS, OPTIMIZERS, PIECES, SECTIONS, Plan, sample_plan


@pytest.mark.parametrize(
    "location, pieces",
    [
        ("global", ("manual_lr_cos", "meter", "weights")),
        ("self", ("dataclass", "aux", "history_tensors")),
        ("closure", ("clip", "reduce_mean", "unfreeze")),
        ("dict", ("ema_inplace", "file_append", "new_queue")),
    ],
)
def test_fixed_programs_equal_eager_mode(location, pieces):
    verdict = judge(Plan(7, "mlp", "adam", location, pieces))
    assert verdict.name == "program", verdict


def test_verdicts_of_runs():
    def run(value=1, messages=(), errors=None):
        return step_worlds.Run([{"x": value}], list(messages), "", errors or {})

    shared = "no program can hold this call, so it runs in eager mode, with the same result: "
    eager = fuzz_steps.compare(run(), run(messages=[f"graph step: {shared}a list"]), near=False)
    assert eager == fuzz_steps.Verdict("eager", ("graph step: a list",))
    assert fuzz_steps.compare(run(), run(), near=False).name == "program"
    assert fuzz_steps.compare(run(), run(2), near=False).name == "DIFFER"
    assert fuzz_steps.compare(run(), run(2, [f"graph step: {shared}a list"]), near=False).name == "DIFFER"
    assert fuzz_steps.compare(run(), run(2, ["graph step: x is fixed"]), near=False).name == "warned"
    assert fuzz_steps.compare(run(), run(errors={0: KeyError("x")}), near=False).name == "CRASH"
    assert fuzz_steps.compare(run(errors={0: KeyError("x")}), run(2), near=False).name == "DIFFER"


def test_every_piece_model_and_optimizer_is_sampled():
    plans = [sample_plan(seed) for seed in range(2000)]
    assert {name for plan in plans for name in plan.pieces} == set(PIECES)
    assert {plan.model for plan in plans} == set(MODELS)
    assert {plan.optimizer for plan in plans} == set(OPTIMIZERS)
    assert {plan.location for plan in plans} == set(LOCATIONS)


@pytest.mark.parametrize("location", LOCATIONS)
def test_every_piece_alone_is_a_python_file(location):
    for name in PIECES:
        compile(Plan(0, "mlp", "sgd", location, (name,)).source(), name, "exec")


def test_pieces_have_one_statement_a_line():
    for name, piece in {**PIECES, **OPTIMIZERS}.items():
        assert any(getattr(piece, section) for section in (*SECTIONS, *FLAGS)), name
        for section in SECTIONS:
            assert ";" not in getattr(piece, section), name


def test_a_seed_is_a_program():
    assert sample_plan(11).source() == sample_plan(11).source() != sample_plan(12).source()


def test_an_unstable_program_is_told_apart(monkeypatch):
    piece = replace(PIECES["acc"], post="$correct = time.perf_counter()", ret="")
    monkeypatch.setitem(PIECES, "acc", piece)
    verdict = judge(Plan(7, "mlp", "sgd", "global", ("acc",)))
    assert verdict.name == "unstable" and verdict.details == ("correct",)


def test_settings_and_files_of_a_run_are_put_back(tmp_path):
    plan = Plan(7, "mlp", "sgd", "global", ("recursion_limit", "environ_set", "chdir", "file_append"))
    path = tmp_path / "step.py"
    path.write_text(plan.source())
    earlier = {name: str(setting.read()) for name, setting in step_worlds.SETTINGS.items()}
    run = step_worlds.run_program(path, 7)
    assert not run.errors
    assert "file a/log.txt" in run.snapshots[0]
    assert run.snapshots[0]["setting environment"] != earlier["environment"]
    assert {name: str(setting.read()) for name, setting in step_worlds.SETTINGS.items()} == earlier


def test_equal_within_rounding():
    def fact(last_bytes):
        return ("Tensor", "torch.float32", (1,), False, last_bytes)

    near = step_worlds.is_near
    assert near(fact(b"\0\0\x80\x3f"), fact(b"\1\0\x80\x3f"))
    assert not near(fact(b"\0\0\x80\x3f"), fact(b"\0\0\0\x40"))
    assert near("0.5", "0.5001") and not near("0.5", "0.6") and not near("None", "1.0")


def test_a_lost_value_is_found_shrunk_and_written_as_a_script(monkeypatch, tmp_path):
    """A program that stores no tensor in `$center`, as if its stores were dropped."""
    run = step_worlds.run_program

    def run_and_lose(path, seed, backend=None, calls=step_worlds.CALLS):
        result = run(path, seed, backend, calls)
        for facts in result.snapshots if backend else ():
            facts.pop("center", None)
        return result

    monkeypatch.setattr(step_worlds, "run_program", run_and_lose)
    plan = Plan(7, "mlp", "sgd", "global", ("acc", "center"))
    _, totals, failures = fuzz_steps.run_all([plan], out=tmp_path)
    assert totals["DIFFER"] == 1 and failures == [plan]
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert "pieces center\n" in text and "center: Tensor torch.float32 (4,)" in text
    monkeypatch.undo()
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path)
    # Without the planted fault, there is no difference
    assert done.returncode == 0, done.stdout + done.stderr
