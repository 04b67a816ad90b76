"""nn.Graph against torch eager, torch.compile, jax.jit and OneFlow's own Graph: the tables of
docs/performance.md.

    python tests/benchmarks/graph.py    all tables (an hour on two cores, mostly torch.compile)
    python tests/benchmarks/graph.py --tables step --models mlp,gpt2 --cases sgd-small,infer-large
    python tests/benchmarks/graph.py --tables first,memory,overhead --oneflow PYTHON

PYTHON is an interpreter with OneFlow 0.9.

Variants run in turns and medians are printed, so that changes of the machine's load affect all variants
equally. A turn of a short step is one warm-up call and up to 20 measured calls. The warm-up call fills the
caches again after the other variants, as in a training loop. --json keeps the minima too. On a machine that
others use, --clock cpu counts this process's CPU time instead.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from graph_models import MODELS, ON_REQUEST
from graph_variants import FOLDER, TORCH_COMPILE, VARIANTS, available, timed, variant

CASES = {
    f"{o}-{size}": (None if o == "infer" else o, size)
    for o in ("sgd", "adamw", "infer")
    for size in ("small", "large")
}
TITLES = {"sgd": "Training, SGD with momentum", "adamw": "Training, AdamW", "infer": "Inference"}
TURN = 0.02  # seconds of a turn, where a call is shorter
FIRST = ("compile", "compile-step", "aten", "inductor")


def prepared(model_name, case, device, samples=None):
    title, make, _, batch_of, small, large = MODELS[model_name]
    optimizer, size = CASES[case]
    n = samples or (small if size == "small" else large)
    torch.manual_seed(0)
    base = make().train(optimizer is not None).to(device)
    return base, tuple(t.to(device) for t in batch_of(n)), optimizer, n


def steps_table(args):
    """{case: {model: {variant: {median_ms, min_ms}}}}, printed after each measurement."""
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)
    medians = {}
    for case in args.cases:
        optimizer, size = case.split("-")
        print(f"\n{TITLES[optimizer]}, {size} batches, ms\n")
        names = [v for v in args.variants if any(available(v, m, args.oneflow) for m in args.models)]
        print(
            "| model | "
            + " | ".join(names)
            + " | inductor over eager | over the best torch.compile |\n|"
            + "---|" * (len(names) + 3),
            flush=True,
        )
        for model in args.models:
            row = medians.setdefault(case, {})[model] = measure(
                model, case, [v for v in names if available(v, model, args.oneflow)], args, sync
            )
            print(
                f"| {MODELS[model][0]}, {args.samples or prepared_size(model, size)} | "
                + " | ".join(f"{row[v]['median_ms']:.3g}" if v in row else "" for v in names)
                + f" | {ratio(row, ['eager'])} | {ratio(row, TORCH_COMPILE)} |",
                flush=True,
            )
    return medians


def prepared_size(model, size):
    return MODELS[model][4 if size == "small" else 5]


def ratio(row, others, key="median_ms"):
    best = min((row[o][key] for o in others if o in row), default=None)
    return f"{best / row['inductor'][key]:.2f}x" if best and "inductor" in row else ""


def measure(model, case, names, args, sync):
    base, batch, optimizer, n = prepared(model, case, args.device, args.samples)
    steps = {}
    for name in names:
        torch._dynamo.reset()
        steps[name] = variant(name, model, base, optimizer, n, args.oneflow)
        for _ in range(3):
            steps[name](*batch)
    turn = int(
        min(20, TURN / statistics.median(timed(step, batch, sync, args.clock) for step in steps.values()))
    )
    times = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, step in steps.items():
            counted = [timed(step, batch, sync, args.clock) for _ in range(1 + turn)][turn > 0 :]
            times[name].append(statistics.mean(counted))
    for step in steps.values():
        getattr(step, "close", lambda: None)()
    return {
        name: {"median_ms": statistics.median(t) * 1e3, "min_ms": min(t) * 1e3} for name, t in times.items()
    }


# -- the first result and the memory of a step, each in a fresh process ---------------
def one(model, case, name):
    """In a fresh process with an empty cache: time to the first result, then the peak memory of a step."""
    base, batch, optimizer, n = prepared(model, case, "cpu")
    cpu = lambda: sum(
        getattr(resource.getrusage(who), field)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for field in ("ru_utime", "ru_stime")
    )
    step = variant(name, model, base, optimizer, n)
    del base
    start, busy = time.perf_counter(), cpu()
    step(*batch)
    measured = {"wall_s": time.perf_counter() - start, "cpu_s": cpu() - busy}
    step(*batch)
    measured["peak_mb"] = peak(lambda: step(*batch)) / 1e6
    print(json.dumps(measured), flush=True)


def peak(step):
    """Most bytes live at once during a call beyond what outlives it, by the allocator's own events."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    events = [
        e.nbytes()
        for e in sorted(
            (e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"),
            key=lambda e: e.start_ns(),
        )
    ]
    live = most = lowest = 0
    for nbytes in events:
        live += nbytes
        most, lowest = max(most, live), min(lowest, live)
    return most - min(lowest, 0)  # eager begins with the last step's gradients, which it frees first


def fresh(model, case, name):
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, os.path.join(FOLDER, "graph.py"), "--one", model, case, name],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    if done.returncode:
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def first_and_memory(args, tables):
    measured = {}
    models = [m for m in args.models if m in args.first_models]
    names = ("eager", *FIRST)
    for model in models:
        measured[model] = {name: fresh(model, "sgd-small", name) for name in names}
    for table, key, title, shown in (
        (
            "first",
            "wall_s",
            "First result with an empty cache: seconds (CPU seconds, the C++ compiler's included)",
            FIRST,
        ),
        ("memory", "peak_mb", "Peak memory of a training step beyond weights and optimizer state, MB", names),
    ):
        if table in tables:
            print(f"\n{title}\n\n| model | " + " | ".join(shown) + " |\n|" + "---|" * (len(shown) + 1))
            for model in models:
                cells = [measured[model][n] for n in shown]
                text = [
                    (
                        "failed"
                        if c is None
                        else f"{c[key]:.3g} ({c['cpu_s']:.3g})"
                        if table == "first"
                        else f"{c[key]:.4g}"
                    )
                    for c in cells
                ]
                print(f"| {MODELS[model][0]} | " + " | ".join(text) + " |", flush=True)
    return measured


def overhead(count=100):
    """Microseconds per call of the engine itself with `count` parameters: the program is replaced by its last
    result.
    """
    from graph_models import OPTIMIZERS
    from graph_variants import graph_step
    from torch import nn

    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.ParameterList([nn.Parameter(torch.zeros(4)) for _ in range(count)])

        def forward(self, x):
            return sum((p * x).sum() for p in self.p)

    medians = {}
    for name in ("sgd", "adamw"):
        graph = graph_step(Many(), lambda m, x: m(x), lambda p: OPTIMIZERS[name](p, fused=True), "aten")
        x = torch.zeros(4)
        graph(x), graph(x)
        entry = graph._engine.last_entry
        out = entry.run(*entry.prologue.run((x,)))
        entry.run = lambda *values: out
        samples = []
        for _ in range(40):
            start = time.perf_counter()
            for _ in range(100):
                graph(x)
            samples.append((time.perf_counter() - start) * 1e4)
        medians[name] = min(samples)
    print(
        f"\nThe engine's own cost per call with {count} parameters: "
        + ", ".join(f"{medians[n]:.1f} µs with {n}" for n in medians),
        flush=True,
    )
    return medians


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    several = lambda text: text.split(",")
    parser.add_argument("--tables", type=several, default=["step", "first", "memory", "overhead"])
    parser.add_argument("--models", type=several, default=[m for m in MODELS if m not in ON_REQUEST])
    parser.add_argument(
        "--cases",
        type=several,
        default=["sgd-small", "adamw-small", "infer-small", "sgd-large", "infer-large"],
    )
    parser.add_argument("--variants", type=several, default=list(VARIANTS))
    parser.add_argument("--first-models", type=several, default=["gpt2", "bert", "mobilenet_v2", "resnet50"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--samples", type=int, help="the size of a batch, in place of the small and large ones"
    )
    parser.add_argument(
        "--oneflow",
        default=os.environ.get("ONEFLOW_PYTHON"),
        help="an interpreter with real OneFlow; ONEFLOW_PYTHON names it too",
    )
    parser.add_argument("--json")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(*args.one)
    print(
        f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads,"
        f" {os.cpu_count()} cores, {args.clock} time, medians of {args.rounds} rounds in turns"
    )
    results = {}
    if "overhead" in args.tables:
        results["overhead_us"] = overhead()
    if "step" in args.tables:
        results["step"] = steps_table(args)
    if {"first", "memory"} & set(args.tables):
        results["first"] = first_and_memory(args, args.tables)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(
                {"torch": torch.__version__, "threads": torch.get_num_threads(), "results": results},
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
