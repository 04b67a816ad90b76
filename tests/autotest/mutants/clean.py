"""Runs without a bug: each failure is a false alarm.

| sort | reference and candidate |
|---|---|
| package | torch and this package: the tests of the planted bugs |
| threads | torch on one thread and on two, with large tensors and with the tests of the planted bugs |
| implementation | torch and right implementations by other formulas, as another implementation |
| aten, inductor | eager mode and a graph of this package; inductor has one dtype a program |
"""

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from planted import Library

import oneflow
import oneflow_autotest

from .registry import MUTANTS, torch
from .right import HALF_TYPES, RIGHT, Sampler

SORTS = ("package", "threads", "implementation", "aten", "inductor")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHER = "other implementation"
PACKAGE = {"accepts_more": True}  # it runs some calls that torch refuses, on purpose


@dataclass
class CleanRun:
    """A test without a bug: `program(api)` of the harness bound to torch and this library."""

    name: str
    library: Any
    program: Callable
    options: dict
    bind: dict
    threads: int = 1  # of the candidate


def clean_runs(sort) -> Iterator[CleanRun]:
    """Yield the tests of one sort."""
    if sort == "implementation":
        yield from of_implementations()
    if sort == "threads":
        library, options = threaded(torch, 2), {"check_graph": False}
        yield from of_right_programs(library, options, threads=2)
        yield from of_mutants(library, options, threads=2)
    if sort == "package":
        yield from of_mutants(Library(oneflow), {"check_graph": False}, PACKAGE)
    if sort == "inductor":  # a case compiles for seconds
        runs = list(of_right_programs(Library(oneflow), {}, PACKAGE))
        yield from (run for i, run in enumerate(runs) if i % len(DTYPES) == i // len(DTYPES) % len(DTYPES))
    if sort == "aten":
        yield from of_right_programs(Library(oneflow), {}, PACKAGE)
        yield from of_mutants(Library(oneflow), {"check_graph": True}, PACKAGE)


def of_mutants(library, options, bind=None, threads=1):
    """Yield the tests that find the planted bugs."""
    for mutant in MUTANTS:
        own = options if threads > 1 else options | mutant.options
        yield CleanRun(mutant.name, library, mutant.program, own, bind or {}, threads)


def of_right_programs(library, options, bind=None, threads=1):
    """Yield the programs of the right implementations, in each dtype, for a library that is not replaced."""
    for right in RIGHT:
        for dtype in DTYPES:
            program = sampled(right.program, dtype, is_large=threads > 1)
            yield CleanRun(f"{right.path} {dtype}", library, program, options, bind or {}, threads)


def of_implementations():
    """Yield each right implementation in each dtype, with the precisions that it may compute in."""
    for right in RIGHT:
        for dtype in DTYPES:
            for computes_in in precisions(right, dtype):
                library = Library(torch, **{right.path: right.replacement(computes_in)})
                name = f"{right.path} {dtype}" + (f" by {computes_in}" if computes_in else "")
                program = sampled(right.program, dtype)
                yield CleanRun(name, library, program, {"check_graph": False}, {"level": OTHER})


def precisions(right, dtype):
    """Return the dtypes that an implementation may compute in; None is the dtype of its arguments."""
    if dtype == torch.float64:
        return [None]
    if dtype in HALF_TYPES:
        return [torch.float32, torch.float64, *([None] if right.is_for_half else [])]
    return [None, torch.float64]


def sampled(program, dtype, is_large=False):
    return lambda api: program(Sampler(api, dtype, is_large))


def run_clean(run, n):
    """Run a test, and let its failure out."""
    run.library._own["__name__"] = "clean"
    api = oneflow_autotest.bind(torch, run.library, names=("torch", "clean"), **run.bind)
    if run.threads > 1:
        api.pair.run_backward = on_threads(api.pair.run_backward, run.threads)
    api.autotest(n=n, **run.options)(lambda case: run.program(api))(None)


# ---------------------------------------------------------------------- another number of threads
def threaded(base, threads):
    """Return a namespace whose functions and modules run on this many threads."""
    return _Threaded(base, threads)


class _Threaded(Library):
    def __init__(self, base, threads):
        super().__init__(base)
        self._threads = threads

    def __getattr__(self, name):
        if name not in self._own:
            self._own[name] = self._wrapped(getattr(self._base, name))
        return self._own[name]

    def _wrapped(self, value):
        if isinstance(value, types.ModuleType):
            return _Threaded(value, self._threads)
        if value is not torch.nn.Module and has_forward(value):
            members = {"forward": on_threads(value.forward, self._threads), "__module__": value.__module__}
            return type(value.__name__, (value,), members)
        is_function = isinstance(value, (types.FunctionType, types.BuiltinFunctionType))
        return on_threads(value, self._threads) if is_function else value


def has_forward(value):
    return isinstance(value, type) and issubclass(value, torch.nn.Module) and "forward" in vars(value)


def on_threads(function, threads):
    """Return the function that runs with this setting of torch.set_num_threads."""

    def run(*args, **kwargs):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return function(*args, **kwargs)
        finally:
            torch.set_num_threads(before)

    return run
