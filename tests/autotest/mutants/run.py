"""How many of the planted bugs a test with AutoTest's defaults finds.

    python tests/autotest/mutants/run.py [--n 20] [--seeds 1] [--kind NAME] [--name NAME] [--write FILE]
    python tests/autotest/mutants/run.py --clean [SORT ...] [--n 20] [--seeds 1] [--name NAME]
    python tests/autotest/mutants/run.py --scripts 200

Each test runs in a process of its own, because some bugs change the process. `--write` writes the table of
the documentation. `--clean` runs tests without a bug, of the sorts that `clean.py` names, and counts false
alarms. `--scripts` runs the printed scripts of found bugs in fresh processes, with the bug and without it.
"""

import argparse
import functools
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
from mutants.clean import SORTS, clean_runs, run_clean
from mutants.forks import in_a_fork
from mutants.registry import KINDS, MUTANTS
from mutants.scripts import run_scripts


def run_mutant(mutant, n):
    """Run the test of a planted bug, and let its failure out."""
    library = Library(oneflow, **mutant.replaced)
    library._own["__name__"] = "buggy"
    api = oneflow_autotest.bind(torch, library, names=("torch", "buggy"))
    api.autotest(n=n, **({"check_graph": False} | mutant.options))(lambda case: mutant.program(api))(None)


def outcome(test):
    """Return (the check that failed, "" if none did, "error: ..." for another error of the test; the
    report).
    """
    try:
        test()
    except AssertionError as e:
        return getattr(e, "check", "assertion"), str(e)
    except Exception as e:
        return f"error: {type(e).__name__}: {str(e)[:150]}", str(e)
    return "", ""


def in_a_child(test, seed):
    """Run a test in a forked process, and return its outcome."""

    def run():
        os.environ |= {
            "ONEFLOW_TEST_SEED": str(seed),
            "ONEFLOW_TEST_DATABASE": "none",
            "ONEFLOW_TEST_FAILURES": "none",
            "ONEFLOW_TEST_SHRINK_SECONDS": "0",
        }
        warnings.simplefilter("ignore")
        return "\0".join(outcome(test))

    check, is_complete, report = in_a_fork(run).partition("\0")
    return (check, report) if is_complete else ("error: the process ended", "")


def chosen_mutants(arguments):
    return [m for m in MUTANTS if arguments.kind in ("", m.kind) and arguments.name in ("", m.name)]


def results(arguments):
    """Yield (mutant, [(check, report)] by seed)."""
    for mutant in chosen_mutants(arguments):
        seeds = range(1, arguments.seeds + 1)
        yield mutant, [in_a_child(functools.partial(run_mutant, mutant, arguments.n), seed) for seed in seeds]


def is_found(check):
    return bool(check) and not check.startswith("error")


def table(found):
    """Return the lines of the table by kind: mutants, found, and those that only a special test can find."""
    lines = ["| kind | planted | found | beyond a default test |", "|---|---|---|---|"]
    totals = [0, 0.0, 0]
    for kind in KINDS:
        rows = [(m, checks) for m, checks in found if m.kind == kind]
        counted = [checks for m, checks in rows if not m.beyond]
        caught = sum(sum(is_found(check) for check in checks) / len(checks) for checks in counted)
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


def report_false_alarms(sort, arguments):
    """Print each clean test that fails, and return the line of the table: runs, false alarms, graphs
    refused.
    """
    runs = alarms = refused = 0
    if sort == "inductor":
        os.environ["ONEFLOW_TEST_GRAPH_BACKEND"] = "inductor"
    for run in clean_runs(sort):
        for seed in range(1, arguments.seeds + 1) if arguments.name in run.name else ():
            check, report = in_a_child(functools.partial(run_clean, run, arguments.n), seed)
            if check == "graph refused":
                refused += 1
                continue
            runs += 1
            if check:
                alarms += 1
                summary = "\n    ".join(report.splitlines()[: arguments.lines])
                print(f"{sort}: {run.name}, seed {seed}: {check}\n    {summary}", flush=True)
    return f"| {sort} | {runs} | {alarms} | {refused} |"


def report_mutants(arguments):
    """Print the bugs that no test finds, and the table."""
    start, found = time.monotonic(), []
    for mutant, outcomes in results(arguments):
        checks = [check for check, _ in outcomes]
        found.append((mutant, checks))
        missed = [check for check in checks if not is_found(check)]
        if missed and not mutant.beyond:
            print(f"missed {mutant.kind}: {mutant.name} {missed[0]}", flush=True)
    lines = table(found)
    print("\n".join(lines), f"{time.monotonic() - start:.0f} s", sep="\n")
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n")


def reports(arguments):
    """Yield (mutant, report) of found bugs, with one seed after another."""
    for seed in range(1, arguments.scripts + 1):
        for mutant in chosen_mutants(arguments):
            check, report = in_a_child(functools.partial(run_mutant, mutant, arguments.n), seed)
            if is_found(check):
                yield mutant, report


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kind", default="", choices=("", *KINDS))
    parser.add_argument("--name", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--clean", nargs="*", choices=SORTS, metavar="SORT")
    parser.add_argument("--lines", type=int, default=6, help="lines of the report of a false alarm")
    parser.add_argument("--scripts", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    if arguments.clean is not None:
        print("| sort | runs | false alarms | graphs refused |", "|---|---|---|---|", sep="\n")
        for sort in arguments.clean or SORTS:
            print(report_false_alarms(sort, arguments), flush=True)
    elif arguments.scripts:
        run_scripts(reports(arguments), arguments.scripts)
    else:
        report_mutants(arguments)


if __name__ == "__main__":
    main()
