"""The parity suite: every documented name of OneFlow, against torch.

    python tests/parity/run.py [--jobs N] [--out parity_output] [--only REGEX] [--update-baseline]

writes parity.json, parity.html and diff.html, and compares with baseline.json, or with the
parity.json of another run (--against FILE): a cell that got worse fails the run; one that got
better asks for `--update-baseline`.

known_differences.json says how the cells that differ on purpose do. A cell that differs in
another way fails; `--update-baseline` stores the new difference if a row of the table of
differences is about the name.
"""

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from suite import KNOWN, Suite, golden, known_differences, names

import oneflow
from oneflow_autotest.parity import diff, header, junit, page, table
from oneflow_autotest.summary import Progress

BASELINE = HERE / "baseline.json"


def shard(args):
    """One part of the rows, as JSON on the way; progress on stderr."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    suite, rows = Suite(args.backend), []
    for name, kind, _ in wanted(args)[args.shard :: args.jobs]:
        try:
            rows.append(suite.row(name, kind))
        except Exception as e:
            row = table.new_row(name, name.rpartition(".")[0])
            table.put(row, "eager", "fail", f"the suite raised {type(e).__name__}: {e}")
            rows.append(row)
        print("\x01", end="", flush=True)
    table.save(rows, Path(args.out) / f"shard{args.shard}.json")


def wanted(args):
    return [n for n in names() if not args.only or re.search(args.only, n[0])]


def run(args):
    out, started = Path(args.out), time.time()
    out.mkdir(parents=True, exist_ok=True)
    progress = Progress("parity", "names", len(wanted(args)), 100)
    base = [
        sys.executable,
        __file__,
        "--out",
        str(out),
        "--jobs",
        str(args.jobs),
        "--backend",
        args.backend,
    ] + (["--only", args.only] if args.only else [])
    parts = [
        subprocess.Popen(
            base + ["--shard", str(i)], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for i in range(args.jobs)
    ]
    watch = selectors.DefaultSelector()
    for p in parts:
        watch.register(p.stdout, selectors.EVENT_READ)
    while watch.get_map():
        for key, _ in watch.select():
            got = os.read(key.fd, 4096)
            if not got:
                watch.unregister(key.fileobj)
            progress.add(got.count(b"\x01"))
    if any(p.wait() for p in parts):
        raise SystemExit("a shard of the parity suite did not finish")
    rows = [r for i in range(args.jobs) for r in table.load(out / f"shard{i}.json")]
    for i in range(args.jobs):
        (out / f"shard{i}.json").unlink()
    calls = golden(rows, known_differences()["calls"])
    if args.update_baseline:
        accept_differences(rows)
        golden(rows, calls)  # again, with the differences of this run as known ones
    rows.sort(key=lambda r: r["name"])
    run_header = header.run_header(rows, HERE, oneflow.__version__, started) | {
        "jobs": args.jobs,
        "threads": 1,
    }
    table.save(rows, out / "parity.json", run_header)
    page.write(rows, out / "parity.html", title="OneFlow on PyTorch: parity", header=run_header)
    if args.junit:
        junit.write(rows, args.junit, run_header)
    report(rows, args)
    if args.update_baseline:
        update_baseline(rows, calls, args)
        return 0
    return compare(rows, run_header, args)


def report(rows, args):
    """Print the counts of the run and the cells that fail."""
    counts, executed = table.counts(rows)
    print(
        f"{len(rows)} documented names, {executed} run, {len(rows) - executed} left out"
        f" ({args.out}/parity.html)"
    )
    print(table.headline(rows))
    for column in table.COLUMNS:
        print(
            f"  {column:<10} "
            + ", ".join(f"{n} {s}" for s, n in sorted(counts[column].items()) if s != "none")
        )
    for row in rows:
        for column, cell in row["cells"].items():
            if cell["status"] == "fail" and column != "cpu":
                print(
                    f"FAIL {row['name']} [{column}]"
                    f" {(cell.get('detail') or cell['status']).splitlines()[0][:400]}"
                )


def accept_differences(rows):
    """Make cells that differ in another way than the known one documented differences, in the rows."""
    for row in rows:
        for column, cell in row["cells"].items():
            if cell["status"] == "fail" and "differences" in cell:
                print(f"KNOWN DIFFERENCE {row['name']}, {column}: {cell['detail'].splitlines()[0]}")
                cell["status"] = "differs"
                cell["detail"] = "\n".join([cell["explanation"], *cell["detail"].splitlines()[1:]])
        if "cpu" in row["cells"] and "eager" in row["cells"]:
            row["cells"]["cpu"]["status"] = row["cells"]["eager"]["status"]


def update_baseline(rows, calls, args):
    """Store the statuses of this run, and what differs on purpose."""
    stored = json.loads(BASELINE.read_text()) if args.only and BASELINE.exists() else {}
    statuses = stored | table.baseline_of(rows)
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(statuses.items()))
    BASELINE.write_text("{\n" + text + "\n}\n")
    known = known_differences() if args.only else {"cells": {}, "calls": {}}
    for row in rows:
        cells = {c: cell["differences"] for c, cell in row["cells"].items() if "differences" in cell}
        cells.pop("cuda", None)  # the known difference of "eager" is also that of another device
        known["cells"].pop(row["name"], None)
        if cells:
            known["cells"][row["name"]] = cells
    known["calls"] |= calls
    KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    print(f"baseline written: {BASELINE} and {KNOWN}")


def compare(rows, run_header, args):
    """Compare with the baseline or another run; return the exit status."""
    if args.against:
        before, title = diff.cells_of_rows(table.load(args.against)), table.load_header(args.against)
    else:
        before = diff.cells_of_baseline(json.loads(BASELINE.read_text()) if BASELINE.exists() else {})
        title = {}
    if args.only:
        before = {k: v for k, v in before.items() if re.search(args.only, k)}
    changes = diff.changes(before, diff.cells_of_rows(rows))
    texts = diff.described(title) if args.against else "the baseline", diff.described(run_header)
    diff.write(changes, Path(args.out) / "diff.html", *texts, title="OneFlow on PyTorch: changes of parity")
    worse, better = (
        [c for c in changes if c.is_regression],
        [c for c in changes if not c.is_regression],
    )
    for change in worse:
        print(
            f"REGRESSION {change}"
            + (f": {change.detail_after.splitlines()[0][:400]}" if change.detail_after else "")
        )
    print(f"{len(worse)} worse, {len(better)} better or new than {texts[0]} ({args.out}/diff.html)")
    if better and not args.against:
        print(
            f"{len(better)} cells are better than the baseline"
            f" ({better[0]}{', ...' if len(better) > 1 else ''}); store it with --update-baseline"
        )
    return 1 if worse else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--out", default="parity_output")
    p.add_argument("--only", default="", metavar="REGEX", help="run the names that match")
    p.add_argument("--against", default="", metavar="FILE", help="a parity.json to compare with")
    p.add_argument("--junit", default="", metavar="FILE", help="write a test case for each cell")
    p.add_argument("--backend", default="aten")
    p.add_argument("--update-baseline", action="store_true")
    p.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.shard is not None:
        return shard(args)
    raise SystemExit(run(args))


if __name__ == "__main__":
    main()
