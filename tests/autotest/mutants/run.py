"""How many of the planted bugs a test with AutoTest's defaults finds.

    python tests/autotest/mutants/run.py [--n 20] [--seeds 1] [--kind NAME] [--name NAME] [--write FILE] [--clean]

Each mutant runs in a process of its own, because some of them change the process. `--write` writes the table of
the documentation. `--clean` runs the tests on the library without the bugs, and counts false alarms.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from planted import Library

import oneflow
import oneflow_autotest
from mutants import behavior, numeric  # noqa: F401  (they fill the table)
from mutants.registry import KINDS, MUTANTS


def outcome(mutant, n, is_clean):
    """Return the check that found the bug, "" if none did, and "error: ..." for another error of the test."""
    library = Library(oneflow, **({} if is_clean else mutant.replaced))
    library._own["__name__"] = "buggy"
    # oneflow runs some calls that torch refuses, on purpose
    api = oneflow_autotest.bind(torch, library, names=("torch", "buggy"), accepts_more=is_clean)
    try:
        api.autotest(n=n, **({"check_graph": False} | mutant.options))(lambda case: mutant.program(api))(None)
    except AssertionError as e:
        return getattr(e, "check", "assertion")
    except Exception as e:
        return f"error: {type(e).__name__}: {str(e)[:150]}"
    return ""


def in_a_child(mutant, n, seed, is_clean):
    """Run one mutant in a forked process, which has imported torch already."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ |= {
            "ONEFLOW_TEST_SEED": str(seed),
            "ONEFLOW_TEST_DATABASE": "none",
            "ONEFLOW_TEST_FAILURES": "none",
            "ONEFLOW_TEST_SHRINK_SECONDS": "0",
        }
        warnings.simplefilter("ignore")
        os.write(write, outcome(mutant, n, is_clean).encode())
        os._exit(0)
    os.close(write)
    text = b""
    while part := os.read(read, 4096):
        text += part
    os.waitpid(child, 0)
    os.close(read)
    return text.decode()


def results(arguments):
    """Yield (mutant, outcomes by seed)."""
    for mutant in MUTANTS:
        if arguments.kind in ("", mutant.kind) and arguments.name in ("", mutant.name):
            seeds = range(1, arguments.seeds + 1)
            yield mutant, [in_a_child(mutant, arguments.n, seed, arguments.clean) for seed in seeds]


def is_found(outcome):
    return bool(outcome) and not outcome.startswith("error")


def table(found):
    """Return the lines of the table by kind: mutants, found, and those that only a special test can find."""
    lines = ["| kind | planted | found | beyond a default test |", "|---|---|---|---|"]
    totals = [0, 0.0, 0]
    for kind in KINDS:
        rows = [(m, o) for m, o in found if m.kind == kind]
        counted = [o for m, o in rows if not m.beyond]
        caught = sum(sum(is_found(x) for x in o) / len(o) for o in counted)
        row = [len(counted), caught, len(rows) - len(counted)]
        totals = [a + b for a, b in zip(totals, row)]
        lines.append(f"| {kind} | {row[0]} | {row[1]:.3g} | {row[2]} |")
    share = totals[1] / totals[0] if totals[0] else 0
    lines.append(f"| all | {totals[0]} | {totals[1]:.4g} ({share:.0%}) | {totals[2]} |")
    return lines


def warm_up():
    """Import what the first case imports, so that the children need not."""
    os.environ |= {"ONEFLOW_TEST_SEED": "1", "ONEFLOW_TEST_DATABASE": "none"}
    api = oneflow_autotest.bind(torch, Library(oneflow))
    api.autotest(n=2)(lambda case: api.torch.nn.Linear(3, 2)(api.random_tensor(2, dim1=3)))(None)


def report_false_alarms(arguments):
    """Print each test that fails on the library without bugs, and how many ran."""
    runs = alarms = 0
    for mutant, outcomes in results(arguments):
        runs += len(outcomes)
        for seed, check in enumerate(outcomes, 1):
            if check:
                alarms += 1
                print(f"{mutant.kind}: the test of {mutant.name}, seed {seed}: {check}", flush=True)
    print(f"{alarms} of {runs} runs failed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kind", default="", choices=("", *KINDS))
    parser.add_argument("--name", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--clean", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    start, found = time.monotonic(), []
    if arguments.clean:
        return report_false_alarms(arguments)
    for mutant, outcomes in results(arguments):
        found.append((mutant, outcomes))
        missed = [o for o in outcomes if not is_found(o)]
        if missed and not mutant.beyond:
            print(f"missed {mutant.kind}: {mutant.name} {missed[0]}", flush=True)
    lines = table(found)
    print("\n".join(lines), f"{time.monotonic() - start:.0f} s", sep="\n")
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
