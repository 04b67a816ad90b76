"""python -m oneflow.autoprof: the time of operators in oneflow and in PyTorch, from the profile_* methods of
AutoTest files.

Takes unittest's arguments (files, classes, methods, discover). Prints one line per operator, arguments,
library and
device, in microseconds per call, and writes the same as a CSV file (ONEFLOW_PROFILE_CSV, by default
op_prof.csv).
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Literal, NoReturn

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence


HEADER = ("operator", "arguments", "library", "device", "threads", "calls", "kernel us", "end to end us")


def row(result: Any) -> tuple[Any, ...]:
    """The fields of HEADER for one ProfResult; the end-to-end time is None on a GPU, where calls do not wait
    for kernels.
    """
    from oneflow_autotest.profiler import END_TO_END

    events, on_gpu = result.key_averages(), result.device != "cpu"
    kernels = [e for e in events if _name(e) != END_TO_END]
    kernel = sum(e.self_device_time_total if on_gpu else e.self_cpu_time_total for e in kernels)
    whole = None if on_gpu else sum(e.cpu_time_total for e in events if _name(e) == END_TO_END)
    arguments = result.args_description + (
        f" ({result.additional_description})" if result.additional_description else ""
    )
    return (
        result.op_name,
        arguments,
        result.kind,
        result.device,
        "" if on_gpu else result.thread_num,
        result.num,
        round(kernel / result.num, 2),
        None if whole is None else round(whole / result.num, 2),
    )


def _name(event: Any) -> str:
    return getattr(event, "name", None) or event.key


def table(rows: Iterable[Sequence[Any]]) -> str:
    """The rows under HEADER in aligned columns."""
    texts = [HEADER, *(["" if v is None else str(v) for v in r] for r in rows)]
    widths = [max(len(r[i]) for r in texts) for i in range(len(HEADER))]
    return "\n".join("  ".join(v.ljust(w) for v, w in zip(r, widths)).rstrip() for r in texts)


def write_csv(rows: Iterable[Sequence[Any]], path: str | os.PathLike[str]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the profile_* methods; the exit status is 1 where one failed."""
    import os
    import sys
    import unittest

    from oneflow_autotest import config

    from ..test_utils.automated_test_util.profiler import set_profiler_hook

    rows: list[tuple[Any, ...]] = []

    def take(results: Any) -> Any:
        rows.extend(row(r) for r in results if r is not None)
        return results

    loader = unittest.TestLoader()
    loader.testMethodPrefix = "profile"
    sys.path.insert(0, os.getcwd())
    set_profiler_hook(take)
    try:
        ran = unittest.main(
            module=None,
            argv=["python -m oneflow.autoprof", *(sys.argv[1:] if argv is None else argv)],
            testLoader=loader,
            exit=False,
        )
    finally:
        set_profiler_hook(lambda results: results)
    print(table(rows))
    write_csv(rows, config.get("ONEFLOW_PROFILE_CSV").removesuffix(".csv") + ".csv")
    return 0 if ran.result.wasSuccessful() else 1
