"""Random programs train equally in eager mode and in a graph, and a failure becomes a small script."""

import re
import subprocess
import sys
from pathlib import Path

import drawing
import pytest
import torch
from fuzz import difference
from shrinking import script, shrink

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("seed, of_values", [(0, ""), (1, ""), (2, ""), (1, "unknown"), (5, "branches")])
def test_eager_bits_on_aten(seed, of_values):
    program = drawing.draw_program(seed, unknown=of_values == "unknown", branches=of_values == "branches")
    assert len(program.statements) == 24
    assert difference(program, "aten", torch.float64) is None, program.source()


def test_a_seed_is_a_program():
    assert (
        drawing.draw_program(11).source()
        == drawing.draw_program(11).source()
        != drawing.draw_program(12).source()
    )


def test_most_operators_are_drawn_and_run():
    """A text with a fault of its own is never kept: of the 440 or so, two fifths have a part in 15 programs."""
    kept = {type_of(s) for seed in range(15) for s in drawing.draw_program(seed).statements}
    assert len(kept) > 175


def type_of(statement):
    """The text without names of tensors and numbers."""
    return re.sub(r"\b[pxnv]\d+\b|-?\d+(\.\d+)?", "_", statement.text + statement.module)


def test_a_failure_becomes_a_small_script(tmp_path):
    program = drawing.draw_program(5)
    last_output = [s.out for s in program.statements if s.out][-1]

    def check(p):
        """As if the last result were wrong."""
        if any(s.out == last_output for s in p.statements) and drawing.run_or_none(p):
            return "result 0 after step 1: planted"

    small = shrink(program, check, seconds=60)
    assert len(small.statements) < 6
    path = tmp_path / "small.py"
    path.write_text(script(small, "planted", 2, "aten", torch.float64, ""))
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout
    assert "result 0 after step 2 0.0" in shown


@pytest.mark.slow
def test_inductor(tmp_path):
    """Eleven programs, each in a process of its own (the next one floors what is zero but for rounding)."""
    run = subprocess.run(
        [sys.executable, HERE / "fuzz.py", "--seeds", "500:511", "--out", tmp_path],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and int(re.search(r"(\d+) equal", run.stdout)[1]) >= 10, run.stdout
