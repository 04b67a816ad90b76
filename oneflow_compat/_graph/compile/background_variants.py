"""Variants of a region with symbols, compiled in the background for sizes that no variant serves."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import background
from .inductor.symbols import Variants
from .notices import say

if TYPE_CHECKING:
    from ..program.program import CompiledFunction
    from .background import Compilation
    from .inductor.compiler import Plan


class BackgroundVariants:
    """The `other_variant` of a region under `auto`: it compiles further variants while calls go on.

    Calls at sizes that no variant serves run the captured operators. Once they have taken as long as a
    variant must save, a child process compiles one for the sizes of the present call.
    """

    def __init__(
        self, plan: Plan, is_worth: Callable[[float], bool], warn: Callable[[BaseException], None]
    ) -> None:
        """`is_worth(seconds)`: whether calls that took so long pay for the compiler; `warn(error)` says why a
        compilation failed.
        """
        self.plan, self.is_worth, self.warn = plan, is_worth, warn
        # seconds that calls without a compiled variant have taken since the last compilation
        self.seconds = 0.0
        self.compilation: Compilation | None = None
        self.has_failed = plan.request is None or not background.is_available()
        self._turn = threading.Lock()

    def __call__(self, variants: Variants, values: tuple[Any, ...]) -> CompiledFunction | None:
        """Return a function that runs the region for these inputs."""
        if self.has_failed:
            return None
        with self._this_thread_alone() as alone:
            if alone and self.compilation is not None:
                self._finish(variants)
            elif alone and self.is_worth(self.seconds):
                self._start(values)
        return variants.variant_for(values) or self._timed(variants.captured)

    def _timed(self, captured: CompiledFunction) -> CompiledFunction:
        def run(*values: Any) -> Sequence[Any]:
            begin = time.perf_counter()
            results = captured(*values)
            self.seconds += time.perf_counter() - begin
            return results

        return run

    def _start(self, values: tuple[Any, ...]) -> None:
        dimensions = self.plan.region.guards.dimensions
        sizes = tuple(values[d.argument].shape[d.dim] for d in dimensions)
        try:
            self.compilation = background.start(
                self.plan.request.at(sizes), self.plan.program.name, self.plan.subject, values
            )
        except OSError as error:
            self._fail(error)
        if self.compilation is not None:
            self.seconds = 0.0
            say(f"graph {self.plan.program.name}: compiling it for more sizes in the background")

    def _finish(self, variants: Variants) -> None:
        """Add the variant if the child process has ended."""
        if self.compilation.is_running():
            return
        compilation, self.compilation = self.compilation, None
        try:
            variants.add(compilation.result())
        except RuntimeError as error:
            self._fail(error)
        else:
            seconds = time.perf_counter() - compilation.begin
            say(f"graph {self.plan.program.name}: compiled for more sizes after {seconds:.1f} s")

    def _fail(self, error: BaseException) -> None:
        self.has_failed = True
        self.warn(error)

    @contextlib.contextmanager
    def _this_thread_alone(self) -> Iterator[bool]:
        alone = self._turn.acquire(blocking=False)
        try:
            yield alone
        finally:
            if alone:
                self._turn.release()
