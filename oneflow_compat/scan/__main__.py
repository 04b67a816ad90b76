"""The command `python -m oneflow.scan`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from . import report as reports
from . import scan

DESCRIPTION = """Rank what changes for a code base under this package. The code is read, never imported.

ranks: breaks, changes numbers, cosmetic (text, layout, dtype, speed, unusual input), superset
"""
EPILOG = "exit codes: 0 nothing above cosmetic, 1 something breaks, 2 no file was read, 3 numbers change"
SKIPPED_LINES = 5


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m oneflow.scan",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a Python file, or a folder with Python files"
    )
    parser.add_argument("--all", action="store_true", help="print every finding with every location")
    parser.add_argument("--json", action="store_true", help="print every finding as JSON")
    parser.add_argument(
        "--fix", action="store_true", help="edit the calls with a mechanical remedy (commit your work before)"
    )
    args = parser.parse_args(argv)
    absent = [path for path in args.paths if not os.path.lexists(path)]
    if absent:
        print(f"no such file or folder: {reports.printable(', '.join(absent))}", file=sys.stderr)
        return 2
    report = scan(args.paths, fix=args.fix)
    _print_skipped(report, None if args.all else SKIPPED_LINES)
    if not report.files and not args.json:
        print(f"no Python file could be read at {reports.printable(', '.join(args.paths))}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        print((reports.full if args.all else reports.summary)(report))
    return report.exit_code


def _print_skipped(report: reports.Report, limit: int | None) -> None:
    for skipped in report.skipped[:limit]:
        print(reports.printable(f"{skipped.file}: not read, {skipped.reason}"), file=sys.stderr)
    if limit is not None and len(report.skipped) > limit:
        print(f"and {len(report.skipped) - limit} more files not read; --all lists them", file=sys.stderr)


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output (head, less) closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
