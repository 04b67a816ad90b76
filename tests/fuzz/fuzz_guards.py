"""Change one fact between two calls of a random program, and compare the graph with eager: `make fuzz-guards`.

    python tests/fuzz/fuzz_guards.py --seeds 0:200             # 8 changes in each program
    python tests/fuzz/fuzz_guards.py --seeds 17:18 --verbose   # one program, its source and each change
    python tests/fuzz/fuzz_guards.py --seeds 0:200 --peer 40   # the first 40 programs under torch.compile as well

A trial ends in one of: equal (the same bits), warned (they differ, and a warning named the fact), error (a readable
error), both (eager raises, too), lenient (only eager raises), SILENT (they differ without a word), UNREADABLE (another error).
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import time
import warnings

import torch
from guard_changes import CHANGES
from guard_worlds import ANNOUNCED, Program, World, same

from oneflow._errors import OneFlowError

TRIALS = 8
VERDICTS = ("equal", "warned", "error", "both", "lenient", "SILENT", "UNREADABLE")


def attempt(world):
    """(values, None) of a call, or (None, error)."""
    try:
        return world.call(), None
    except Exception as error:
        return None, error


def verdict(expected, got, messages, words) -> str:
    (values, failure), (graph_values, graph_failure) = expected, got
    if failure is not None and graph_failure is not None:
        return "both"
    if graph_failure is not None:
        return "error" if isinstance(graph_failure, OneFlowError) else "UNREADABLE"
    if failure is not None:
        return "lenient"
    if same(values, graph_values):
        return "equal"
    return "warned" if any(word and word in message for word in words for message in messages) else "SILENT"


def draw_change(program, rng, share):
    """(name, what applies the change to a world, words of a warning that names it)."""
    if rng.random() < share:
        fact = rng.choice(program.facts)
        text = rng.choice(fact.changes)
        return f"{fact.kind}: {text}", lambda world, _: world.run(text), (fact.word,)
    change = rng.choice(CHANGES)
    return change.__name__, change, ("train()",) if change.__name__ == "train_mode" else ()


def run_program(
    seed: int, mode: str = "graph", trials: int = TRIALS, share: float = 0.5, verbose: bool = False
):
    """Yield (change, verdict) of each trial; the program ends with the first that is not equal."""
    program, rng = Program(seed), random.Random(seed + 10**6)
    if verbose:
        print(program.source())
    announced = (
        ("does not follow what build() reads",) if any(f.kind in ANNOUNCED for f in program.facts) else ()
    )
    environment = dict(os.environ)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        eager, other = World(program, "eager"), World(program, mode)
        change, words, result = "no change", (), "equal"
        for trial in range(trials + 1):
            for _ in range(2):
                expected, got = attempt(eager), attempt(other)
                messages = [str(w.message) for w in caught]
                result = verdict(expected, got, messages, words + announced)
                if result != "equal":
                    break
            if verbose:
                print(trial, change, result, repr(got[1])[:300] if got[1] else "")
            if trial or result != "equal":
                yield change, result
            if result != "equal" or trial == trials:
                break
            change, words = apply_change(program, rng, share, eager, other)
    os.environ.clear()
    os.environ.update(environment)


def apply_change(program, rng, share, eager, other):
    """Draw changes until one applies to both worlds; return its name and words."""
    while True:
        name, change, words = draw_change(program, rng, share)
        seed = rng.random()
        if all([changes(change, world, random.Random(seed)) for world in (eager, other)]):
            return name, words


def changes(change, world, rng) -> bool:
    """Apply a change; return False if it does not fit, or raises."""
    try:
        change(world, rng)
    except (
        Exception
    ):  # Inapplicable, or load_state_dict() with the state of a parameter that was removed, for example
        return False
    return True


def run_all(seeds, mode="graph", trials=TRIALS, share=0.5, verbose=False, seconds=float("inf")):
    """{kind of change: Counter of verdicts}, and the failing (seed, change, verdict)."""
    table, failures, end = collections.defaultdict(collections.Counter), [], time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            break
        if mode == "compiled":
            torch._dynamo.reset()
        for change, result in run_program(seed, mode, trials, share, verbose):
            table[change.partition(":")[0]][result] += 1
            if result.isupper():
                failures.append((seed, change, result))
                print(f"{mode} seed {seed}: {change}: {result}", flush=True)
    return table, failures


def print_table(tables):
    """One row for each kind of change, one group of columns for each mode."""
    print("| change | " + " | ".join(f"{mode}: {v}" for mode in tables for v in VERDICTS) + " |")
    kinds = sorted({kind for table in tables.values() for kind in table})
    print("|---" * (1 + len(tables) * len(VERDICTS)) + "|")
    for kind in [*kinds, "total"]:
        cells = []
        for table in tables.values():
            counts = sum(table.values(), collections.Counter()) if kind == "total" else table.get(kind, {})
            cells += [str(counts.get(v, 0)) for v in VERDICTS]
        print(f"| {kind} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:100", help="A:B")
    parser.add_argument("--trials", type=int, default=TRIALS, help="changes in each program")
    parser.add_argument(
        "--share",
        type=float,
        default=0.5,
        help="share of changes of Python values; the others change modules and optimizers",
    )
    parser.add_argument("--peer", type=int, default=0, help="programs that run under torch.compile as well")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, last = map(int, options.seeds.split(":"))
    table, failures = run_all(
        range(first, last), "graph", options.trials, options.share, options.verbose, options.seconds
    )
    tables = {"graph": table}
    if options.peer:
        tables["compiled"] = run_all(
            range(first, first + options.peer), "compiled", options.trials, options.share
        )[0]
    print_table(tables)
    print(f"{sum(sum(c.values()) for c in table.values())} trials, {len(failures)} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
