"""Run a command on one GPU of the machine, one command per GPU at a time: python -m
oneflow.test_utils.throttle [--with-cuda 0] CMD ...
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["hash_cli2gpu", "main", "parse_args"]


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    """(options, the command line to run)."""
    parser = argparse.ArgumentParser(
        prog="python -m oneflow.test_utils.throttle", description="Run a command while holding one GPU."
    )
    parser.add_argument(
        "--with-cuda", type=int, default=int(torch.cuda.is_available()), help="0: run at once, without a GPU"
    )
    return parser.parse_known_args()


def hash_cli2gpu(cmd: Sequence[str]) -> list[Any]:
    """[the GPU of a command line], the same for the same words; [] without a GPU."""
    count = torch.cuda.device_count()
    words = hashlib.sha1(" ".join(cmd).encode()).hexdigest()
    return [str(int(words, 16) % count)] if count else []


def main() -> int:
    """The command's exit status; commands of one GPU wait for each other on a lock file."""
    options, cmd = parse_args()
    if not cmd:
        raise SystemExit("throttle: no command given")
    gpus = hash_cli2gpu(cmd) if options.with_cuda else []
    if not gpus:
        return subprocess.call(cmd)
    import fcntl

    with open(os.path.join(tempfile.gettempdir(), f"oneflow-throttle-gpu-{gpus[0]}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.call(cmd, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus[0]})


if __name__ == "__main__":
    sys.exit(main())
