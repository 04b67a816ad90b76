"""Measure how long a training loop under the backend auto waits for the compiler: its longest step.

    OMP_NUM_THREADS=1 python tests/benchmarks/stalls.py                       # transformer and ResNet-50
    OMP_NUM_THREADS=1 python tests/benchmarks/stalls.py --models transformer --after 100

The third call looks the program up. A child process compiles from the fourth call on (auto itself waits until
a compiled program pays), and the loop goes on until some steps after the switch. A stall is the time of a
step beyond the median of its phase: the call that looks the program up and the one that starts the child, the
calls while the child compiles, the call that loads the compiled program, and the calls after it, of which the
first one runs the program for the first time. Wall time is what a user sees; the CPU time of the loop's
thread depends less on what else runs.
"""

import argparse
import os
import statistics
import tempfile
import time

import starts

PHASES = ("start", "compiling", "switch", "after")


def state_of(tiered):
    return tiered.backend, tiered.compilation is not None, tiered.plan is not None


def phase_of(tiered, before):
    """Return the phase of a step that changed the state of the program from `before` to its present one."""
    backend, compiles, _ = now = state_of(tiered)
    if now != before:
        return "switch" if backend == "inductor" else "start"
    return "compiling" if compiles else "after" if backend == "inductor" else None


def measure(model_name, after):
    import torch

    from oneflow._graph.compile import auto

    auto.experience = auto.Experience()
    torch.manual_seed(0)
    model, x, y = starts.MODELS[model_name]()
    tiers, compile_ = [], auto.compile

    def compile_and_note(*args, **kwargs):
        tiers.append(compile_(*args, **kwargs))
        return tiers[-1]

    auto.compile = compile_and_note
    step = starts.graph_step(model, torch.optim.AdamW(model.parameters(), lr=1e-3), "auto")
    for _ in range(2):
        step(x, y)
    seconds, left = {phase: [] for phase in PHASES}, after
    while left:
        tiered = tiers[-1]
        before = state_of(tiered)
        wall, cpu = time.perf_counter(), time.thread_time()
        step(x, y).item()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        phase = phase_of(tiers[-1], before)
        auto.experience.compile_seconds = 0.0  # compile from the fourth call on
        if phase is not None:
            seconds[phase].append((wall, cpu))
        left -= phase in ("switch", "after")
    return seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="transformer,resnet50")
    parser.add_argument("--after", type=int, default=50, help="steps to measure after the switch")
    args = parser.parse_args()
    for model in args.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(starts.caches_in(folder))
            seconds = measure(model, args.after)
        for phase in PHASES:
            usual = "after" if phase == "after" else "compiling"
            stalls = [
                max(s[clock] for s in seconds[phase]) - statistics.median(s[clock] for s in seconds[usual])
                for clock in (0, 1)
            ]
            print(
                f"{model:12} {phase:10} {len(seconds[phase]):6} steps, longest stall"
                f" {stalls[0]:6.3f} s, of CPU time {stalls[1]:6.3f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
