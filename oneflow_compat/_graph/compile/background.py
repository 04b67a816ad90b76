"""Compile a region in a child process, which puts the binary into the program cache.

A thread would not do: inductor's lowering is Python, so the training loop would wait for the interpreter's
lock at each operator, and inductor is not safe to use in several threads at once. The child rebuilds the
region from its record (program_cache/region_record.py), works at a lower priority, and ends with its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from . import program_cache
from .program_cache.region_record import nodes_record
from .program_cache.store import Store, default_store, quota
from .proof import Difference, Proof, records
from .proof.transfer import write_inputs

if TYPE_CHECKING:
    import torch

    from .inductor.regions import CompiledRegion
    from .proof import Subject

_CODE = "import sys; sys.path[0:1] = []; from oneflow._graph.compile.worker import main; main()"
_running: list[Compilation] = []  # the only compilation of this process; the others wait for it


def start(
    request: program_cache.Request,
    name: str,
    subject: Subject | None = None,
    values: Sequence[torch.Tensor] = (),
) -> Compilation | None:
    """Start to compile a region, or return None because another compilation of this process runs.

    With a subject, the child also compares the binary with the captured operators, on the inputs `values`.
    """
    if any(compilation.is_running() for compilation in _running):
        return None
    _running[:] = [Compilation(request, name, subject, values)]
    return _running[0]


def is_available() -> bool:
    """Whether a child process can be started: Python knows the path of its interpreter."""
    return sys.platform == "linux" and bool(sys.executable)


class Compilation:
    """A child process that compiles and proves one region."""

    def __init__(
        self,
        request: program_cache.Request,
        name: str,
        subject: Subject | None,
        values: Sequence[torch.Tensor],
    ) -> None:
        self.request, self.begin, self._owner = request, time.perf_counter(), os.getpid()
        self._store, self._folder = default_store(), None
        if self._store is None:  # the child needs a folder for its result
            self._folder = tempfile.mkdtemp(prefix="oneflow-")
            self._store = Store(self._folder)
        self._errors = tempfile.TemporaryFile()
        self._read_end, self._write_end = os.pipe()  # the child ends when the write end closes
        try:
            with tempfile.TemporaryFile() as document, _memory_file() as inputs:
                document.write(json.dumps(self._document(name, subject, values, inputs)).encode())
                document.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _CODE],
                    stdin=document,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=self._environment(),
                    pass_fds=[self._read_end, inputs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(self._read_end)

    def _document(
        self, name: str, subject: Subject | None, values: Sequence[torch.Tensor], inputs: BinaryIO
    ) -> dict[str, Any]:
        document = {
            "record": self.request.record,
            "environment": self.request.environment,
            "name": name,
            "parent": self._read_end,
        }
        if subject is not None:
            document["proof"] = {
                "captured": nodes_record(subject.reference.graph, subject.reference.constants),
                "inputs": inputs.fileno(),
                "layouts": write_inputs(values, inputs),
            }
        return document

    def _environment(self) -> dict[str, str]:
        megabytes = 4096 if self._folder is not None else quota() >> 20
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "ONEFLOW_CACHE_DIR": str(self._store.folder),
            "ONEFLOW_CACHE_SIZE": str(megabytes),
            "ONEFLOW_QUIET": "1",  # the last line on its stderr is the error
        }

    def is_running(self) -> bool:
        """Whether the result is not there yet. In a fork of the process that started it: never."""
        return os.getpid() == self._owner and self._process.poll() is None

    def result(self) -> CompiledRegion:
        """Return the compiled function. RuntimeError: the compilation failed; the message says why."""
        if os.getpid() != self._owner:
            raise RuntimeError("the process was forked while a child of it compiled")
        try:
            function: Any = program_cache.load(self.request, self._store)
            if function is None:
                raise RuntimeError(self._last_error())
            function.proof = records.load(function.library, self._store)
            if function.proof is None and self._process.returncode:
                function.proof = Proof((Difference("the process", self._last_error()),))
                records.keep(function.library, function.proof, self._store)
            region: CompiledRegion = function
            return region
        finally:
            self._close()

    def _last_error(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its process ended with code {self._process.returncode}"

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._write_end)
        self._errors.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # a loaded library stays mapped

    def stop(self) -> None:
        """End the child and its compilers."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._close()


def _memory_file() -> BinaryIO:
    """Return a file that is nowhere on disk."""
    return cast(BinaryIO, os.fdopen(os.memfd_create("oneflow"), "w+b"))


@atexit.register
def _stop_all() -> None:
    for compilation in _running:
        compilation.stop()
