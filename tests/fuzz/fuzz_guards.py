"""Change one fact between two calls of a random program, and compare the graph with eager: `make fuzz-guards`.

    python tests/fuzz/fuzz_guards.py --seeds 0:200             # 8 changes in each program
    python tests/fuzz/fuzz_guards.py --seeds 17:18 --verbose   # one program, its source and each change
    python tests/fuzz/fuzz_guards.py --seeds 0:40 --mode inductor
    python tests/fuzz/fuzz_guards.py --seeds 0:200 --mode compiled   # torch.compile's guards instead of the graph's

A trial is two calls after a change. It ends in one of: same (the same bits, from the program that ran before),
noticed (the same bits, from another program), warned (they differ, and a warning named the fact), error (a readable
error), both (eager raises, too), lenient (only eager raises), SILENT (they differ without a word), UNREADABLE (another
error). Under inductor, "same bits" is a tolerance, and parameters are not compared where their gradient is zero up to
rounding.
"""

import argparse
import collections
import os
import random
import time
import warnings

import torch
from guard_module_changes import MODULE_CHANGES
from guard_training_changes import ARGUMENT_CHANGES, OPTIMIZER_CHANGES
from guard_worlds import Program, World, same, without_rounding_steps

from oneflow._errors import OneFlowError
from oneflow_autotest.summary import Progress

GROUPS = {"modules": MODULE_CHANGES, "optimizers": OPTIMIZER_CHANGES, "arguments": ARGUMENT_CHANGES}
CHANGES = tuple(change for group in GROUPS.values() for change in group)
# rows with facts that build() does not see
_UNSEEN_ROWS = [change.__name__ for change in ARGUMENT_CHANGES if change.__name__.startswith("rows_")]
TRIALS = 8
VERDICTS = ("same", "noticed", "warned", "error", "both", "lenient", "SILENT", "UNREADABLE")
# inductor's kernels round differently, and training amplifies the difference from call to call
TOLERANCE = {"inductor": 1e-2}


def attempt(world):
    """(values, None) of a call, or (None, error)."""
    try:
        return world.call(), None
    except Exception as error:
        return None, error


def verdict(expected, got, messages, words, tolerance=0.0, rounding_steps=()) -> str:
    (values, failure), (graph_values, graph_failure) = expected, got
    if failure is not None and graph_failure is not None:
        return "both"
    if graph_failure is not None:
        return "error" if isinstance(graph_failure, OneFlowError) else "UNREADABLE"
    if failure is not None:
        return "lenient"
    if same(*(without_rounding_steps(v, rounding_steps) for v in (values, graph_values)), tolerance):
        return "same"
    return "warned" if any(word and word in message for word in words for message in messages) else "SILENT"


def draw_change(program, rng, share):
    """(name, what applies the change to a world, words of a warning that names it)."""
    if rng.random() < share:
        fact = rng.choice(program.facts)
        text = rng.choice(fact.changes)
        return f"{fact.kind}: {text}", lambda world, _: world.run(text), (fact.word,)
    change = rng.choice(CHANGES)
    words = {"train_mode": "train()", **dict.fromkeys(_UNSEEN_ROWS, "a fact of an argument")}
    return change.__name__, change, (words.get(change.__name__, ""),)


def run_program(
    seed: int, mode: str = "aten", trials: int = TRIALS, share: float = 0.5, verbose: bool = False
):
    """Yield (change, verdict) of each trial; the program ends with the first that has other values or an error."""
    program, rng = Program(seed), random.Random(seed + 10**6)
    if verbose:
        print(program.source())
    announced = ("does not follow what build() reads",) if program.announced else ()
    environment = dict(os.environ)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        eager, other = World(program, "eager"), World(program, mode)
        change, words = "no change", ()
        for trial in range(trials + 1):
            result, got = try_calls(eager, other, caught, words + announced, TOLERANCE.get(mode, 0.0))
            if verbose:
                print(trial, change, result, repr(got[1])[:300] if got[1] else "")
            if trial or result not in ("same", "noticed"):
                yield change, result
            if result not in ("same", "noticed") or trial == trials:
                break
            change, words = apply_change(program, rng, share, eager, other)
    os.environ.clear()
    os.environ.update(environment)


def try_calls(eager, other, caught, words, tolerance):
    """The verdict of two calls in both worlds, and what the last of them gave."""
    served, result = other.served, "same"
    for _ in range(2):
        expected, got = attempt(eager), attempt(other)
        steps = eager.rounding_steps() if tolerance else ()
        result = verdict(expected, got, [str(w.message) for w in caught], words, tolerance, steps)
        if result != "same":
            return result, got
        if tolerance:
            other.adopt(expected[0])
    return ("same" if other.served == served else "noticed"), got


def apply_change(program, rng, share, eager, other):
    """Sample changes until one applies to both worlds; return its name and words."""
    while True:
        name, change, words = draw_change(program, rng, share)
        seed = rng.random()
        if all([changes(change, world, random.Random(seed)) for world in (eager, other)]):
            return name, words


def changes(change, world, rng) -> bool:
    """Apply a change; return False if it does not fit, or raises."""
    try:
        change(world, rng)
    except Exception:  # Inapplicable, or load_state_dict() with the state of a parameter that was removed
        return False
    return True


def run_all(seeds, mode="aten", trials=TRIALS, share=0.5, verbose=False, seconds=float("inf")):
    """{change: Counter of verdicts}, and the failing (seed, change, verdict)."""
    table, failures, end = collections.defaultdict(collections.Counter), [], time.monotonic() + seconds
    progress = Progress("fuzz_guards", "programs", len(seeds), 10)
    for seed in seeds:
        if time.monotonic() > end:
            break
        for change, result in run_program(seed, mode, trials, share, verbose):
            table[change.partition(":")[0]][result] += 1
            if result not in ("same", "noticed", "warned", "both"):
                print(f"{mode} seed {seed}: {change}: {result}", flush=True)
            if result.isupper():
                failures.append((seed, change, result))
        progress.add()
    return table, failures


def print_table(table):
    """A row for each change, and for each group of changes."""
    group_of = {change.__name__: group for group, changes in GROUPS.items() for change in changes}
    totals = collections.defaultdict(collections.Counter)
    for change, counts in table.items():
        totals[group_of.get(change, "Python values" if change != "no change" else "none")].update(counts)
        totals["total"].update(counts)
    print("| change | " + " | ".join(VERDICTS) + " |")
    print("|---" * (1 + len(VERDICTS)) + "|")
    for name, counts in [*sorted(table.items()), *sorted((f"**{n}**", c) for n, c in totals.items())]:
        print(f"| {name} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:100", help="A:B")
    parser.add_argument(
        "--mode", default="aten", help="a backend of graphs, or compiled: torch.compile with eager's kernels"
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help="changes in each program")
    parser.add_argument(
        "--share",
        type=float,
        default=0.5,
        help="share of changes of Python values; the others change modules, optimizers and arguments",
    )
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(*map(int, options.seeds.split(":")))
    table, failures = run_all(
        seeds, options.mode, options.trials, options.share, options.verbose, options.seconds
    )
    print_table(table)
    print(f"{sum(sum(c.values()) for c in table.values())} trials, {len(failures)} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
