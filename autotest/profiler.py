"""`profile`: time one operator on both sides, with and without a GPU, instead of comparing it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import config
from .calls import split_arguments

if TYPE_CHECKING:
    from .case import DualObject
    from .pair import Library

END_TO_END = "end-to-end"
measured_paths: list[str] = []  # dual functions that a running `profile` measures
profiled_framework: list[str] = ["oneflow", "pytorch"]
_state: dict[str, Any] = {"hardware": [("cpu", 1), ("cuda", None)], "hook": lambda results: results}


class ProfResult:
    """The measurement of one side; other attributes come from torch's profiler."""

    def __init__(
        self,
        prof: Any,
        num: int,
        kind: str,
        device: str,
        thread_num: int | None,
        op_name: str,
        args_description: str,
        additional_description: object = None,
    ) -> None:
        self.prof, self.num, self.kind, self.device, self.thread_num = prof, num, kind, device, thread_num
        self.op_name, self.args_description, self.additional_description = (
            op_name,
            args_description,
            additional_description,
        )

    def __getattr__(self, attr: str) -> Any:
        return getattr(self.prof, attr)

    def __repr__(self) -> str:
        call = f"{self.op_name}({self.args_description})"
        return f"ProfResult({self.kind}, {call}, {self.device}, {self.num} calls)"


def set_hardware_info_list(hardware_info_list: list[tuple[str, int | None]]) -> None:
    """Set the (device, number of CPU threads) to measure on."""
    _state["hardware"] = list(hardware_info_list)


def set_profiler_hook(hook: Callable[[list[ProfResult | None]], Any]) -> None:
    """Set the function that gets the list of ProfResult of a profiled call; the call returns its result."""
    _state["hook"] = hook


def compose(*functions: Callable[..., Any]) -> Callable[..., Any]:
    """Return the composition: compose(f, g)(x) is f(g(x))."""
    return functools.reduce(lambda f, g: lambda *a, **kw: f(g(*a, **kw)), functions)


def make_profile() -> Callable[..., Any]:
    """Return the decorator factory `profile`."""

    def profile(op: DualObject) -> Callable[..., Any]:
        """Measure the calls of the dual function `op` within the decorated function."""

        def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(f)
            def run(*args: Any, **kwargs: Any) -> Any:
                measured_paths.append(op._path)
                try:
                    return f(*args, **kwargs)
                finally:
                    measured_paths.pop()

            return run

        return decorate

    return profile


def profile_dual_object(op: DualObject) -> Callable[..., Any]:
    """Return a function that measures `op` on each side and device; the result is None for a device that is
    absent.
    """
    pair = op._pair

    def measured(*args: Any, profile_description: object = None, **kwargs: Any) -> Any:
        _, ref, cand = split_arguments(op._ref, args, kwargs)
        described = ", ".join(
            [_described(a) for a in ref[0]] + [f"{k}={_described(v)}" for k, v in ref[1].items()]
        )
        results: list[ProfResult | None] = []
        for framework, name, library, function, (a, k) in (
            ("OneFlow", "oneflow", pair.candidate, op._cand, cand),
            ("PyTorch", "pytorch", pair.reference, op._ref, ref),
        ):
            for device, threads in _state["hardware"]:
                if name in profiled_framework and (device == "cpu" or _has_cuda(library)):
                    results.append(
                        _measure(
                            library,
                            function,
                            a,
                            k,
                            device,
                            threads,
                            framework,
                            op._path,
                            described,
                            profile_description,
                        )
                    )
                else:
                    results.append(None)
        return _state["hook"](results)

    return measured


def _described(x: object) -> str:
    """Return an argument of one side as text; of a tensor, the shape."""
    if hasattr(x, "detach") and hasattr(x, "shape"):
        return f"Tensor({list(x.shape)})"
    if isinstance(x, (tuple, list)) and any(hasattr(v, "detach") for v in x):
        return "[" + ", ".join(map(_described, x)) + "]"
    return repr(x)


def _has_cuda(library: Library) -> bool:
    return bool(library.cuda.is_available())


def _measure(
    library: Library,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: str,
    threads: int | None,
    framework: str,
    op_name: str,
    described: str,
    description: object,
) -> ProfResult:
    def moved(x: Any) -> Any:
        return x.to(device) if hasattr(x, "device") and hasattr(x, "to") else x

    args, kwargs = tuple(moved(a) for a in args), {k: moved(v) for k, v in kwargs.items()}
    calls = config.get_int("ONEFLOW_PROFILE_RUN_NUM")
    activity = library.profiler.ProfilerActivity
    with _cpu_threads(library, threads if device == "cpu" else None):
        for _ in range(config.get_int("ONEFLOW_PROFILE_WARMUP_NUM")):
            function(*args, **kwargs)
        activities = [activity.CPU if device == "cpu" else activity.CUDA]
        with library.profiler.profile(activities=activities) as prof:
            with library.profiler.record_function(END_TO_END):
                for _ in range(calls):
                    function(*args, **kwargs)
    if config.is_set("ONEFLOW_PROFILE_VERBOSE"):
        print(f"{framework} {op_name}({described}) on {device}")
        print(prof.key_averages().table(row_limit=10))
    return ProfResult(prof, calls, framework, device, threads, op_name, described, description)


@contextlib.contextmanager
def _cpu_threads(library: Library, threads: int | None) -> Iterator[None]:
    """Run with this number of CPU threads; None leaves the number as it is."""
    if not threads:
        yield
        return
    before = library.get_num_threads() if hasattr(library, "get_num_threads") else None
    library.set_num_threads(threads)
    try:
        yield
    finally:
        if before is not None:
            library.set_num_threads(before)
