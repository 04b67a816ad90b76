"""python -m oneflow: what is installed, the version, and the rows of the table of differences."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Sequence

from . import _env
from ._kernels import _ext
from ._tables.differences import DIFFERENCES
from .version import __version__

OPTIONAL_MODULES = {  # module: the package that has it, and what uses it
    "hypothesis": ("hypothesis", "oneflow_autotest"),
    "PIL": ("pillow", "images"),
    "lmdb": ("lmdb", "one_embedding on disk"),
    "safetensors": ("safetensors", "safetensors files"),
    "flowvision": ("flowvision --no-deps", "vision models"),
    "openvino": ("openvino", "nn.Graph's backend openvino"),
    "torch_tensorrt": ("torch-tensorrt", "nn.Graph's backend tensorrt"),
    "torch_xla": ("torch-xla", "nn.Graph's backend xla"),
}


def doctor() -> list[tuple[str, str, bool]]:
    """(what, what was found, is it as it should be) for everything the package leans on."""
    import torch

    import oneflow
    from oneflow import _installation
    from oneflow._upstream.versions import torch_is_before

    conflicts = _installation.conflicting_distributions()
    rows = [
        (
            "distribution",
            _installation.conflict_message(conflicts) if conflicts else "oneflow-compat alone",
            not conflicts,
        ),
        ("oneflow", f"{oneflow.__version__} in {os.path.dirname(oneflow.__file__)}", True),
        ("python", f"{platform.python_version()} ({sys.executable})", sys.version_info >= (3, 10)),
        (
            "torch",
            torch.__version__,
            not torch_is_before("2.11"),
        ),
        (
            "devices",
            ", ".join(
                ["cpu"]
                + [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
            ),
            True,
        ),
        ("threads", str(torch.get_num_threads()), True),
    ]
    compiler = next(filter(None, map(shutil.which, (_env.get("CXX") or "g++", "clang++", "c++"))), None)
    rows.append(("C++ compiler", compiler or "none: nn.Graph uses the aten backend", compiler is not None))
    nvcc = shutil.which("nvcc")
    rows.append(
        (
            "CUDA compiler",
            nvcc or "none: CUDA operators cannot be built",
            nvcc is not None or not torch.cuda.is_available(),
        )
    )
    rows.append(("custom operators", *_extension()))
    rows += _missing_names()
    rows.append(("nn.Graph", *_graphs()))
    rows.append(("dialect", oneflow.get_dialect(), True))
    for module, (package, use) in OPTIONAL_MODULES.items():
        is_installed = importlib.util.find_spec(module) is not None
        state = "installed" if is_installed else f"not installed (pip install {package}), for {use}"
        rows.append((module, state, is_installed))
    return rows


def _graphs() -> tuple[str, bool]:
    """Return how graphs run here, and whether they are captured."""
    from ._upstream.missing import MissingName

    try:
        from ._graph import why_unobserved
    except MissingName as error:
        return str(error), False
    unobserved = why_unobserved()
    if unobserved:
        return f"every call runs in eager mode: {unobserved}", False
    return "captures programs", True


def _missing_names() -> list[tuple[str, str, bool]]:
    """Return a row for each private name that the installed torch lacks, or one row if it has all."""
    from ._upstream.hooks import HOOKS
    from ._upstream.missing import missing_names

    rows = [
        (path, f"not in this torch: {HOOKS[path].purpose} ({HOOKS[path].consequence})", False)
        for path in missing_names()
    ]
    return rows or [("torch's internals", f"all {len(HOOKS)} private names are there", True)]


def _extension() -> tuple[str, bool]:
    state = _ext.status()
    return (
        f"loaded from {_ext.PATH}" if state == "loaded" else f"plain torch is used: {state}"
    ), state == "loaded"


def differences(pattern: str) -> list[str]:
    """Describe the rows of the table of differences whose id or names contain `pattern`; the exact id gives
    one row.
    """
    rows = (
        {pattern: DIFFERENCES[pattern]}
        if pattern in DIFFERENCES
        else {
            key: row
            for key, row in DIFFERENCES.items()
            if pattern in key or any(pattern in name for name in row["names"])
        }
    )
    return [
        f"{key}\n  names:   {', '.join(row['names'])}\n  OneFlow: {row['oneflow']}\n  here:   "
        f" {row['here']}\n  why:     {row['reason']}"
        for key, row in rows.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m oneflow", description=__doc__)
    parser.add_argument(
        "--version", action="store_true", help="print the versions of this package and of torch"
    )
    parser.add_argument("--doctor", action="store_true", help="print what is installed and what is missing")
    parser.add_argument(
        "--difference",
        metavar="ROW",
        help="print rows of the table of differences: an id, or a part of an id or of a name",
    )
    args = parser.parse_args(argv)
    if args.version:
        import torch

        print(f"oneflow-compat {__version__} (torch {torch.__version__}, Python {platform.python_version()})")
        return 0
    if args.difference is not None:
        state = differences(args.difference)
        unknown = (
            f"no row of the table of differences contains {args.difference!r}: as far as is known, the name"
            " means the same in both libraries."
        )
        print("\n\n".join(state) or unknown)
        return 0 if state else 1
    if not args.doctor:
        parser.print_help()
        return 2
    print("\n".join(f"{'ok' if fine else '--'}  {what:18} {state}" for what, state, fine in doctor()))
    return 0


def _until_the_reader_ends() -> int:
    """Run main(). The reader of a pipe may end first, as `head` does."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit
        return 1


if __name__ == "__main__":
    sys.exit(_until_the_reader_ends())
