"""python -m oneflow.cache: list or clear the compiled programs that nn.Graph keeps on disk."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ._graph import Store, Unsafe, default_folder, quota, records

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m oneflow.cache", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print one line for each compiled region")
    parser.add_argument("--clear", action="store_true", help="remove all compiled programs")
    args = parser.parse_args(argv)
    if not args.list and not args.clear:
        parser.print_help()
        return 2
    try:
        folder = default_folder()
        if not folder.is_dir():
            print(f"{folder} does not exist yet")
            return 0
        store = Store(folder, create=False)
    except (Unsafe, OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        print(f"the cache is not used: {error}", file=sys.stderr)
        return 1
    if args.list:
        _print_entries(store)
    if args.clear:
        print(f"removed {store.clear()} compiled regions from {store.folder}")
    return 0


def _print_entries(store: Store) -> None:
    now = time.time()
    for entry in store.entries():
        record = entry.record
        print(
            f"{entry.key[:12]}  {record['program']:24} {record['operators']:6} operators "
            f" {record['bytes'] / 2**20:7.1f} MiB  compiled in {record['seconds']:.1f} s, used"
            f" {_ago(now - entry.last_use)} ago, {_comparison(store, record['library'])}"
        )
    limit = "switched off by ONEFLOW_CACHE_SIZE=0" if quota() <= 0 else f"of {quota() / 2**20:.0f} MiB"
    print(f"{store.folder}: {store.size() / 2**20:.1f} MiB {limit}")


def _comparison(store: Store, library: str) -> str:
    """Return whether a region was compared with the captured operators."""
    note = records.find(library, store)
    if note is None:
        return "not compared yet"
    differences = note["proof"]["differences"]
    if differences:
        return f"refused: {differences[0]['subject']} {differences[0]['detail']}"
    return "equal to the captured operators"


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} seconds"


if __name__ == "__main__":
    sys.exit(main())
