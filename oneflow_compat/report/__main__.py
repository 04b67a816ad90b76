"""The command line of python -m oneflow.report."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import traceback

from . import GraphRecorder, as_json, as_text, names_of_run
from .names import files_of_run


def main(argv: list[str] | None = None) -> int:
    """Run the script, print the report to stderr, and return the exit code of the script."""
    parser = argparse.ArgumentParser(
        prog="python -m oneflow.report", description="Run a script, and tell what ran where."
    )
    parser.add_argument("--json", metavar="FILE", help="write the report to this file, too")
    parser.add_argument(
        "--mock-torch", action="store_true", help="`import torch` gives oneflow in the script"
    )
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    options = parser.parse_args(argv)
    if not os.path.isfile(options.script):
        parser.error(f"there is no script {options.script}")
    recorder = GraphRecorder()
    with recorder.recording():
        status = _run(options.script, options.args, options.mock_torch)
    names, rows = names_of_run(files_of_run(options.script), options.mock_torch)
    sys.stdout.flush()
    print(f"\noneflow.report {options.script}\n", file=sys.stderr)
    print(as_text(recorder.records, names, rows), file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(as_json(options.script, status, recorder.records, names, rows), file, indent=1)
    return status


def _run(script: str, args: list[str], is_mocked: bool) -> int:
    """Run the script as __main__. Print its error, if it raises; return its exit code."""
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    with contextlib.ExitStack() as stack:
        if is_mocked:
            from ..mock_torch import enable  # only for --mock-torch

            stack.enter_context(enable())
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        except BaseException:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
