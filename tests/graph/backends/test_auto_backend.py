"""The default backend starts with aten and switches to inductor when that pays off."""

import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import pytest
import torch
from time_limits import seconds

import oneflow.nn as nn
from oneflow._graph.compile import auto, compiling


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Each test begins with the first figures, and captures that took a second."""
    monkeypatch.setattr(auto, "experience", auto.Experience())
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 1.0)
    monkeypatch.setattr(auto, "_failed", set())
    yield
    for (
        compilation
    ) in auto.background._running:  # the child process of one test would keep the next one waiting
        compilation.stop()


def graph(name="Double"):
    doubled = type(name, (nn.Graph,), {"build": lambda self, x: (x * 2).sin()})()
    doubled.config.set_backend("auto")
    return doubled


def state_of(g):
    return g._engine.last_entry.run


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a program runs or is compiled: clock.aten, clock.compiled and
    clock.compiler seconds.
    """

    class Clock:
        now, aten, compiled, compiler, compilations = 0.0, 1.0, 0.5, 40.0, 0

        def perf_counter(self):
            return self.now

        def after(self, seconds, function):
            def run(*values):
                self.now += getattr(self, seconds)
                return function(*values)

            return run

        def start(self, request, name, subject=None, values=()):
            compilation = Compilation(self.now)
            self.now += self.compiler
            self.compilations += 1
            return compilation

    class Compilation:
        """A child process that has ended at the next call."""

        def __init__(self, begin):
            self.begin = begin

        def is_running(self):
            return False

        def result(self):
            return clock.after("compiled", lambda x: (x + 100,))

    clock, compile_aten = Clock(), auto.aten.compile
    monkeypatch.setattr(auto, "time", clock)
    monkeypatch.setattr(auto.aten, "compile", lambda *a: clock.after("aten", compile_aten(*a)))
    monkeypatch.setattr(auto.background, "start", clock.start)
    monkeypatch.setattr(auto.compiler, "_subject", lambda *_: None)  # wrong results tell which program ran
    clock.Compilation = Compilation
    return clock


def calls_until_compiled(g, most=1000):
    for number in range(1, most + 1):
        if g(torch.zeros(1)).item() >= 100:
            return number
    return None


def test_a_program_is_compiled_once_it_would_have_saved_what_the_compiler_takes(clock):
    # each call of a second would save 0.3 s, the compiler is expected to take 40 times the capture, and the
    # call that loads the compiled program runs aten
    assert calls_until_compiled(graph()) == 136 and clock.compilations == 1


@pytest.mark.parametrize("seconds, expected", [(100.0, 4), (20.0, 9), (1e-3, None)])
def test_how_long_calls_take_decides(clock, seconds, expected):
    clock.aten = seconds
    assert calls_until_compiled(graph(), 300) == expected


def test_a_few_steps_of_a_large_model_on_a_busy_machine_never_wait_for_the_compiler(clock, monkeypatch):
    # ResNet-50: 20 s a step, 450 s to compile
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 5.0)
    clock.aten = 20.0
    g = graph()
    for _ in range(6):
        g(torch.zeros(1))
    assert clock.compilations == 0


def test_costs_and_savings_of_this_process_are_learned(clock):
    clock.compiler, clock.aten, clock.compiled = 199.0, 100.0, 10.0
    for name in ("First", "Second"):
        g = graph(name)
        for _ in range(20):
            g(torch.zeros(1))
    assert auto.experience.saving == pytest.approx((0.3 + 0.9 + 0.9) / 3)
    # the first compilation loads the compiler as well
    assert auto.experience.cost == pytest.approx((40 + 199) / 2)


def test_a_compiled_program_that_is_slower_goes_back_to_aten(clock, capfd):
    clock.aten, clock.compiled = 100.0, 150.0
    g = graph()
    outs = [g(torch.zeros(1)).item() for _ in range(16)]
    assert outs == [0.0] * 3 + [100.0, 0.0] * 4 + [100.0] + [0.0] * 4 and state_of(g).backend == "aten"
    assert "goes back to aten" in capfd.readouterr().err and clock.compilations == 1


def test_while_another_thread_compiles_the_call_runs_on_aten(clock):
    clock.aten, g = 1000.0, graph()
    g(torch.zeros(1)), g(torch.zeros(1))
    held, done = threading.Event(), threading.Event()

    def hold():
        with compiling:
            held.set()
            done.wait(seconds(60))

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(seconds(60))
    try:
        assert g(torch.zeros(1)).item() == 0.0 and clock.compilations == 0
    finally:
        done.set()
        thread.join()
    assert calls_until_compiled(g) == 2


def test_when_inductor_fails_aten_goes_on_with_one_warning_a_graph(clock, monkeypatch, recwarn):
    def broken(self):
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(clock.Compilation, "result", broken)
    clock.aten, g = 1000.0, graph()
    for size in (1, 2):
        for _ in range(4):
            assert g(torch.zeros(size)).sum().item() == 0.0 and state_of(g).backend == "aten"
    assert [str(w.message).count("no compiler today") for w in recwarn] == [1]


def test_what_the_program_cache_cannot_keep_is_compiled_while_the_call_waits(clock, monkeypatch):
    def compile(program, config):
        clock.now += clock.compiler
        return clock.after("compiled", lambda x: (x + 100,))

    monkeypatch.setattr(auto.compiler, "compile", compile)
    monkeypatch.setattr(auto.compiler.program_cache, "request_for", lambda *a: None)
    clock.aten = 1000.0
    assert calls_until_compiled(graph()) == 3 and clock.compilations == 0


@pytest.mark.compiler
def test_rows_in_a_random_order_run_on_aten_where_inductor_fails(monkeypatch, recwarn):
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)

    class Shuffled(nn.Graph):
        def build(self, x):
            return x[torch.randperm(x.shape[0])] * 2

    g = Shuffled()
    g.config.set_backend("auto")
    for size in (6, 6, 6, 6, 8, 8, 8, 8):
        assert sorted(g(torch.arange(float(size))).tolist()) == [2.0 * i for i in range(size)]
    assert sum("could not compile" in str(w.message) for w in recwarn) <= 1  # none once inductor can


def call_until_switched(g, x, limit=600):
    """Call the graph until its child process has compiled. Return the results."""
    end, results = time.monotonic() + seconds(limit), [g(x)]
    while state_of(g).backend == "aten":
        results.append(g(x))
        assert time.monotonic() < end, "the child process compiles too long"
        time.sleep(0.01)
    return results


@pytest.mark.compiler
@pytest.mark.parametrize("backend", ["auto", "inductor"])
@pytest.mark.parametrize("quiet", ["", "1"])
def test_compilation_is_announced_on_stderr(monkeypatch, capfd, backend, quiet):
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    monkeypatch.setenv("ONEFLOW_QUIET", quiet)
    g = graph("Announced")
    g.config.set_backend(backend)
    if backend == "auto":
        call_until_switched(g, torch.ones(3))
    else:
        g(torch.ones(3))
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("oneflow: ")]
    if quiet:
        assert not lines
    else:
        begin, end = lines
        assert (
            "compiling 2 operators with inductor" in begin
            and "compiled after" in end
            and g.name in begin
            and g.name in end
        )


@pytest.mark.compiler
def test_the_switch_keeps_the_numbers(monkeypatch):
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    g, x = graph(), torch.linspace(0, 1, 64)
    outs = call_until_switched(g, x)
    outs += [g(x) for _ in range(auto.TRIAL + 2)]
    # sin of inductor's vector library and of ATen's, one ulp apart
    assert torch.allclose(outs[0], outs[-1], rtol=1e-6, atol=1e-7)
    assert torch.equal(outs[-1], outs[-2]), "fixed numbers from the decision on"


@pytest.mark.compiler
def test_the_third_call_runs_the_binary_of_the_program_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "10")
    compiled = graph()
    compiled.config.set_backend("inductor")
    compiled(torch.ones(3))
    monkeypatch.setattr(auto.background, "start", None)
    g = graph()
    for backend in ("aten", "aten", "inductor"):
        g(torch.ones(3))
        assert state_of(g).backend == backend


@pytest.mark.compiler
def test_a_child_process_that_fails_gives_one_warning(monkeypatch, recwarn):
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    monkeypatch.setattr(auto.background, "_CODE", "import sys; sys.exit('no room for a child')")
    g = graph()
    g(torch.ones(2)), g(torch.ones(2)), g(torch.ones(2))
    end = time.monotonic() + seconds(60)
    while state_of(g).compilation is not None and time.monotonic() < end:
        g(torch.ones(2))
    assert state_of(g).backend == "aten" and g(torch.zeros(2)).tolist() == [0, 0]
    assert [str(w.message) for w in recwarn if "no room for a child" in str(w.message)]


@pytest.mark.compiler
def test_programs_compile_one_after_the_other(monkeypatch):
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    monkeypatch.setattr(auto.background, "_CODE", "import time; time.sleep(600)")
    graphs = [graph("First"), graph("Second")]
    for g in graphs:
        for _ in range(4):
            g(torch.ones(2))
    first, second = map(state_of, graphs)
    try:
        assert (
            first.compilation.is_running() and second.compilation is None and second.current == second._timed
        )
    finally:
        first.compilation.stop()
    del graphs[0], first, g
    gc.collect()
    graphs[0](torch.ones(2))
    assert second.compilation.is_running()
    second.compilation.stop()


PROGRAM_THAT_ENDS_WHILE_A_CHILD_COMPILES = """
import os, sys, torch, oneflow as flow
from oneflow._graph.compile import auto
auto._capture_seconds = lambda program: 0.0
class Double(flow.nn.Graph):
    def build(self, x):
        return x * 2
g = Double()
g.config.set_backend("auto")
for _ in range(4):
    g(torch.ones(2))
compilation = g._engine.last_entry.run.compilation
assert compilation.is_running()
pid = os.fork()
if not pid:  # a child of the user's
    for _ in range(3):
        assert g(torch.ones(2)).tolist() == [2.0, 2.0]
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0 and compilation.is_running(), "the fork leaves the child process alone"
print(compilation._process.pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.compiler
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_the_child_process_ends_with_its_parent(how):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM_THAT_ENDS_WHILE_A_CHILD_COMPILES, how]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds(120))
    assert run.returncode == (0 if how == "ends" else -9)
    end = time.monotonic() + seconds(60)
    while os.path.exists(f"/proc/{run.stdout.strip()}") and time.monotonic() < end:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{run.stdout.strip()}")


def test_the_first_figures_are_those_recorded():
    recorded = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "compile_costs.json").read_text())
    cost = statistics.median(r["compile_seconds"] / r["capture_seconds"] for r in recorded)
    saving = statistics.median(1 - r["inductor_seconds"] / r["aten_seconds"] for r in recorded)
    assert auto.Experience().cost == pytest.approx(
        cost, rel=0.5
    ) and auto.Experience().saving == pytest.approx(saving, abs=0.15)
