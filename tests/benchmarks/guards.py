"""Measure the cost of a graph's guards per call: the prologue, its parts, and the full call.

    python tests/benchmarks/guards.py [--modules 50] [--against PATH ...]

A multilayer perceptron trains with SGD on the aten backend. `--against` names other checkouts of this
repository; each checkout runs in processes of its own, in turns. CPU time, medians of the rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", nargs="*", default=[])
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.modules)))
        return
    here = pathlib.Path(__file__).resolve().parents[2]
    checkouts = [here, *(pathlib.Path(path).resolve() for path in options.against)]
    results = {path: [] for path in checkouts}
    for _ in range(options.rounds):
        for path in checkouts:
            results[path].append(in_child(path, options.modules))
    for path, rounds in results.items():
        print(path)
        for name in rounds[0]:
            print(f"  {name:40} {statistics.median(figures[name] for figures in rounds):9.2f} us")


def in_child(checkout, modules):
    """Measure a checkout in a separate process, with the interpreter of the checkout if it has one."""
    interpreter = checkout / ".venv/bin/python"
    command = [str(interpreter) if interpreter.exists() else sys.executable, "-W", "ignore", __file__]
    command += ["--measure", "--modules", str(modules)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ONEFLOW_GRAPH_BACKEND": "aten"}
    run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def measured(modules):
    """Microseconds of CPU time of a call, of the call without its operators, and of parts of the prologue."""
    step, argument = trained(modules)
    for _ in range(3):
        step(argument)
    entry = step._engine.last_entry
    figures = {"a call": microseconds(lambda: step(argument), 100)}
    outputs = run_outputs(entry, lambda: step(argument))
    run, entry.run = entry.run, lambda *values: outputs
    figures["a call without its operators"] = microseconds(lambda: step(argument), 1000)
    entry.run = run
    if not hasattr(entry, "prologue"):  # an older checkout
        return figures
    figures["the prologue"] = microseconds(lambda: entry.prologue.run((argument,)), 1000)
    for test in entry.prologue.tests:
        if test.condition and test.stage.name in ("STATE", "TENSORS"):
            scope = dict(entry.prologue.scope.names)
            exec(f"def test():\n for _ in range(20):\n  {test.condition}", scope)
            figures[f"  {test.name}"] = microseconds(scope["test"], 100) / 20
    return figures


def run_outputs(entry, call):
    """Return the outputs of the compiled program in a call."""
    run, outputs = entry.run, []

    def noted(*values):
        outputs.append(run(*values))
        return outputs[-1]

    entry.run = noted
    call()
    entry.run = run
    return outputs[-1]


def trained(modules):
    import torch

    import oneflow as flow

    torch.manual_seed(0)
    layers = [layer for _ in range(modules // 2) for layer in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.01)

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    return Step(), torch.ones(4, 16)


def microseconds(function, calls, rounds=15):
    """Median CPU time of a call over the rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(calls):
            function()
        times.append((time.process_time_ns() - start) / calls / 1000)
    return statistics.median(times)


if __name__ == "__main__":
    main()
