"""Random programs train equally in eager mode and in a graph, and a failure becomes a small script."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import drawing
import pytest
import torch
import training
from fuzz import (
    REFUSAL,
    STEPS,
    Difference,
    Run,
    Settings,
    difference,
    differences,
    is_rounding,
)
from grouping import programs_keep_their_constants
from memory_programs import draw_memory_program
from shrinking import group_script, script, shrink, shrink_group
from torch._functorch import compile_utils
from torch.fx.experimental.proxy_tensor import make_fx

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
    """A text with a fault of its own is never kept: of the 440 or so, two fifths have a part in 15
    programs.
    """
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
    path.write_text(script(small, "planted", 2, Settings("aten", torch.float64)))
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout
    assert "result 0 after step 2 0.0" in shown


def test_programs_that_write_memory_have_eager_bits_on_aten():
    programs = [draw_memory_program(seed) for seed in range(100, 112)]
    assert differences(programs, Settings("aten", torch.float64)) == {}


@pytest.mark.compiler
@pytest.mark.parametrize(
    "dtype, seeds, equal", [("float64", "100:124", 19), ("bfloat16", "200:212", 6), ("float16", "200:212", 6)]
)
def test_programs_that_write_memory_on_inductor(dtype, seeds, equal, tmp_path):
    """A share of `make fuzz-memory`, in one graph, and those in parts. Inductor does not compile the others.

    In a process of its own: a compiler leaves many objects, which would slow down the tests that follow.
    """
    options = ["--programs", "memory", "--group", "24", "--seeds", seeds, "--dtype", dtype, "--out", tmp_path]
    run = subprocess.run([sys.executable, HERE / "fuzz.py", *options], capture_output=True, text=True)
    assert run.returncode == 0 and int(re.search(r"(\d+) equal", run.stdout)[1]) >= equal, run.stdout


def test_a_difference_of_rounding_is_told_from_others():
    """A centered RMSprop divides by a difference of equal numbers, where the gradient is 0 but for
    rounding.
    """
    program = draw_memory_program(1002005)
    settings = Settings("inductor", torch.float32)
    torch.set_default_dtype(torch.float32)
    expected = training.train([program.load()], STEPS)[0]
    name = "momentum_buffer of trained parameter 3 after step 2"
    small = Difference(name, "", 0.01)
    assert is_rounding(program, small, expected, expected, settings)
    assert not is_rounding(program, Difference(name, "", 10.0), expected, expected, settings)
    assert not is_rounding(program, Difference("p1 after step 2", "", 1e-3), expected, expected, settings)


def test_memory_programs_write_each_kind_of_memory():
    programs = [draw_memory_program(seed) for seed in range(100, 130)]
    forward = {s.written()[0] for p in programs for s in p.statements if not s.out}
    late = {s.text[:1] for p in programs for s in p.after}
    assert forward >= {"v", "b"} and late >= {"p", "b"}
    assert any(".grad" in s.text for p in programs for s in p.after)
    assert any(p.several_losses for p in programs) and any("r.sum()" in p.source() for p in programs)


@pytest.mark.parametrize("what", ["a write to a buffer", "the state of an optimizer", "a random number"])
def test_a_planted_difference_is_found_in_a_group(what, monkeypatch):
    """The graph runs something more than eager for the second of two programs."""

    class Planted(training.Step):
        def build(self, arguments):
            outputs = super().build(arguments)
            if what == "a write to a buffer":
                self.programs[1].b0[1:].add_(1e-3)
            if what == "the state of an optimizer":
                self.programs[1].p0.grad.add_(1e-3)
            if what == "a random number":
                torch.rand(1)
            return outputs

    monkeypatch.setattr(training, "Step", Planted)
    programs = [program(1), program(2)]
    said = differences(programs, Settings("aten", torch.float64))
    names = {
        "a write to a buffer": "b0",
        "the state of an optimizer": "p0",
        "a random number": "random state",
    }
    assert said[1].startswith(f"{names[what]} after step 1"), said
    assert (0 in said) == (what == "a random number")


def program(seed, *statements, results=("v0",), **fields):
    """A small program with a buffer and momentum."""
    first = drawing.Statement(f"p0 * {seed}.5", "v0")
    return drawing.Program(
        seed,
        {"p0": "torch.randn(4, 3)"},
        {"n0": "torch.arange(2)"},
        (first, *map(drawing.Statement, statements)),
        results,
        buffers={"b0": "torch.zeros(4, 3)"},
        **fields,
    )


def test_a_difference_of_a_group_keeps_the_programs_that_cause_it(tmp_path):
    group = [program(seed) for seed in range(8)]

    def check(*programs):
        """As if program 5 were wrong beside program 2."""
        seeds = [p.seed for p in programs]
        return {seeds.index(5): "planted"} if {2, 5} <= set(seeds) else {}

    small = shrink_group(group[5], group, check, seconds=60)
    assert [p.seed for p in small] == [2, 5]
    path = tmp_path / "group.py"
    path.write_text(group_script(small, "planted", 1, Settings("aten", torch.float64)))
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout
    assert "1 result 0 after step 1 0.0" in shown


def test_a_refusal_of_a_right_program_counts_as_a_false_alarm(tmp_path):
    """As if the proof refused every program; on the aten backend all of them are right."""
    run = Run(Settings("aten", torch.float64), argparse.Namespace(out=tmp_path, limit=60, shrink=0))
    run.check = lambda *programs: f"UserWarning: graph Step_0: {REFUSAL} and is not used"
    run.compare([program(1), program(2)])
    assert run.outcomes == {"false alarm of the proof": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alarm1.py", "alarm2.py"]


def test_programs_of_a_group_keep_their_constants():
    def two_programs(x, y):
        return [t + torch.full((2,), 3.0) * torch.full((2,), 3.0) for t in (x, y)]

    graph = make_fx(two_programs)(torch.ones(2), torch.ones(2)).graph
    constants = lambda g: sum(n.target is torch.ops.aten.full.default for n in g.nodes)
    with programs_keep_their_constants():
        apart = compile_utils.fx_graph_cse(graph)
    assert constants(graph) == 4 and constants(apart) == 2
    assert constants(compile_utils.fx_graph_cse(graph)) == 1


@pytest.mark.slow
def test_inductor(tmp_path):
    """Eleven programs, each in a process of its own (the next one floors what is zero but for rounding)."""
    run = subprocess.run(
        [sys.executable, HERE / "fuzz.py", "--seeds", "500:511", "--out", tmp_path],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and int(re.search(r"(\d+) equal", run.stdout)[1]) >= 10, run.stdout
