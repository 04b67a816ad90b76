"""A job function: defined once, compiled at the first call, each call does forward, backward and update.

The Python function runs once per input signature, under the capture of the graph engine (`_graph`), which
also records the gradients and updates appended by `_trace.Trace.finish`. A function that uses an operator
with a value-dependent result shape (argwhere, unique, ...) runs op by op in each call.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...._graph import Engine, GraphDefinition, warn_of_eager_calls, why_unobserved
from .. import typing as job_typing
from .._functions import names as _names
from .._functions.buffers import TensorList
from .._functions.orders import takes_older_orders
from . import context as _context
from . import devices as _devices
from . import session as _session
from .blob import LocalBlob
from .feeds import ShapeChanged
from .function_config import FunctionConfig
from .trace import Trace


@takes_older_orders("global_function")
def api_global_function(type: str | None = None, function_config: Any = None) -> Callable[..., Any]:
    """Decorator: the function describes a network, calling it runs it.

    `type` is "predict" or "train"; a train job updates variables by `flow.optimizer.X(...).minimize(loss)`.
    Without a type the job is a train job if `function_config.train` says something, else a predict job.
    The decorated function takes what its annotations (`tp.Numpy.Placeholder(...)`) declare and returns
    what its return annotation says; without one the call returns an object with get() and async_get(handler).
    """
    if callable(type):  # used without parentheses
        return Job(type, "predict", None)
    if function_config is not None and not isinstance(function_config, FunctionConfig):
        raise TypeError(
            f"global_function(function_config=): pass a flow.FunctionConfig, found {function_config!r}"
        )
    if type is None:
        type = "train" if function_config is not None and function_config.describes_training() else "predict"
    if type not in ("predict", "train"):
        raise ValueError(f'global_function(type={type!r}): type must be "predict" or "train"')
    return lambda function: Job(function, type, function_config)


class Future:
    """The result of a job without a return annotation."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    def async_get(self, callback: Any) -> None:
        callback(self._value)


class _Compiled:
    """One input signature of a job: its program and the structure of its results."""

    __slots__ = ("run", "trace", "copy", "eager", "program")

    def __init__(self) -> None:
        self.run: Any = None
        self.trace: Any = None
        self.copy: Any = None
        self.program: Any = None
        self.eager = False


class Job:
    """A decorated job function."""

    def __init__(self, function: Callable[..., Any], job_type: str, config: Any) -> None:
        self.function, self.job_type, self.name = function, job_type, function.__name__
        self.config = config or FunctionConfig()
        self.session = _session.default()
        self.inputs = _declared_inputs(function)
        self.annotation = _signature(function).return_annotation
        if self.annotation is not inspect.Signature.empty:
            job_typing.check_return_annotation(self.annotation, self.name)
        self._checks = [(f"{self.name}(): argument {name!r}", declared) for name, declared in self.inputs]
        self.step = 0
        self.has_update = False
        self.output_names = []
        self.pending = {}  # batches already read, by reader
        self.pipeline = {}  # data readers by position, kept between calls
        self.programs: dict[Any, Any] = {}
        self.last: _Compiled | None = None
        self.lock = threading.RLock()
        functools.update_wrapper(self, function)
        self.session.jobs[self.name] = self

    # -- calling -------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            values = self._arguments(args, kwargs)
            result = self._run(values)
        annotation = self.annotation
        if annotation is job_typing.Numpy and type(result) is LocalBlob:
            return result._array
        if annotation is inspect.Signature.empty:
            return Future(result)
        return job_typing.convert(result, annotation, self.name)

    def _arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        if kwargs or len(args) != len(self.inputs):
            args = self._bind(args, kwargs)
        values = []
        for (where, declared), argument in zip(self._checks, args):
            if type(declared) is job_typing._Placeholder:
                values.append(declared.check(where, argument))
            else:
                _flatten_input(where, declared, argument, values)
        return values

    def _bind(self, args: Any, kwargs: Any) -> Any:
        if len(args) + len(kwargs) != len(self.inputs) or not all(
            n in kwargs for n, _ in self.inputs[len(args) :]
        ):
            names = ", ".join(n for n, _ in self.inputs)
            raise TypeError(
                f"{self.name}() takes {len(self.inputs)} arguments ({names}), got {len(args)} by position and"
                f" {sorted(kwargs)} by name"
            )
        return list(args) + [kwargs[n] for n, _ in self.inputs[len(args) :]]

    def _run(self, values: Sequence[torch.Tensor]) -> Any:
        signature = tuple([v.shape for v in values])
        compiled = self.programs.get(signature)
        if compiled is None:
            compiled = self._compile(signature, values)
        trace = compiled.trace
        if trace is not None and not compiled.eager:
            if trace.moves:
                values = [v.to(trace.device, non_blocking=True) for v in values]
            try:
                trace.before_call(self.step)
            except ShapeChanged:  # batches vary in shape: run op by op from this batch on
                self.pending.update(trace.unused_batches())
                self._eager(compiled)
        outputs = compiled.run(values)
        trace = compiled.trace
        self.last = compiled
        if trace.updates:
            self.step += 1
        if compiled.copy is None or compiled.eager:
            compiled.copy = trace.aliases(outputs, values)
        return trace.results(outputs, compiled.copy)

    def IsTrainable(self) -> bool:
        """True for a train job (`flow.current_global_function_desc().IsTrainable()`)."""
        return self.job_type == "train"

    @property
    def program(self) -> Any:
        """The program of the last call, or of the definition before any call; print it to read it.

        None for a job that runs op by op.
        """
        last = self.last or next(iter(self.programs.values()), None)
        return last.program if last is not None and not last.eager else None

    # -- defining ------------------------------------------------------------
    def define(self) -> None:
        """Trace the function with example inputs of the declared shapes, so that its variables exist."""
        with self.lock:
            if self.programs:
                return
            examples: list[Any] = []
            for _, declared in self.inputs:
                _examples(declared, examples)
            if self.session.eager:
                self._probe(examples)
            else:
                self._compile(tuple([v.shape for v in examples]), examples, probe=True)

    def _compile(
        self, signature: Sequence[Any], values: Sequence[torch.Tensor], probe: bool = False
    ) -> _Compiled | None:
        compiled = _Compiled()
        unobserved = why_unobserved()
        if unobserved is not None:
            warn_of_eager_calls(unobserved)
        if self.session.eager or unobserved is not None:
            self._eager(compiled)
            if probe and not self.session.eager:
                self._probe(values)
        else:
            try:
                self._capture(compiled, values)
            except _context.NeedsEager:
                self._eager(compiled)
                if probe:
                    self._probe(values)
        self.programs[signature] = compiled
        return compiled

    def _capture(self, compiled: _Compiled, values: Sequence[torch.Tensor]) -> None:
        options = self.config.engine_config()

        def build(*args: Any) -> list[torch.Tensor]:
            trace = Trace(self, captured=True)
            outputs = self.body(trace, args)
            compiled.trace = trace
            return outputs

        definition = GraphDefinition(
            build,
            tensors=self._tensors,
            name=self.name,
        )
        engine = Engine(definition, options)
        device = self._device_of_inputs()
        values = [v.to(device) for v in values]
        compiled.program = engine.compile(*values)
        compiled.run = lambda values: engine(*values)
        self.has_update = bool(compiled.trace.updates)

    def _tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that outlive the calls, by name."""
        tensors = {name: variable.tensor for name, variable in self.session.variables.items()}
        for (job, name, size), stale in self.session.stale_values.items():
            tensors[f"{name}-stale-{size}-{job}"] = stale.values
        return tensors

    def _eager(self, compiled: _Compiled) -> None:
        compiled.eager = True

        def run(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            device = self._device_of_inputs()
            trace = compiled.trace = Trace(self, captured=False)
            outputs = self.body(trace, [v.to(device) for v in values])
            self.has_update = bool(trace.updates)
            return outputs

        compiled.run = run

    def _probe(self, values: Any) -> None:
        """Run op by op with example inputs for the variables' sake; no update, no value is kept."""
        trace = Trace(self, captured=False, probe=True)
        device = self._device_of_inputs()
        self.body(trace, [v.to(device) for v in values])
        self.has_update = bool(trace.updates)

    def _device_of_inputs(self) -> torch.device:
        return _devices.default(self)

    def body(self, trace: Any, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The user's function, then gradients, updates and assignments; returns the flat list of results."""
        queue = iter(args)
        arguments = [_unflatten(declared, queue) for _, declared in self.inputs]
        with _context.tracing(trace), self.config.scopes(trace), _names.legacy_forms():
            trace.add_inputs(self.inputs, args)
            try:
                return trace.finish(self.function(*arguments))
            except BaseException:
                trace.forget_new_variables()
                raise


# ---------------------------------------------------------------- declared inputs
def _signature(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # an annotation names something local to another function
        return inspect.signature(function)


def _declared_inputs(function: Callable[..., Any]) -> list[Any]:
    declared = []
    for p in _signature(function).parameters.values():
        if p.default is not p.empty and _is_declaration(p.default):
            what = p.default
        elif p.annotation is not p.empty and _is_declaration(p.annotation):
            what = p.annotation
        else:
            raise TypeError(
                f"job function {function.__name__}: parameter {p.name!r} declares no input; "
                f"annotate it, e.g. {p.name}: tp.Numpy.Placeholder((2, 3), dtype=flow.float)"
            )
        declared.append((p.name, what))
    return declared


def _parts(declared: Sequence[Any]) -> Any:
    """The items of a nested declaration, or None for a single placeholder."""
    import typing

    origin = typing.get_origin(declared)
    if origin in (tuple, list):
        return list(typing.get_args(declared))
    if isinstance(declared, (tuple, list)):
        return list(declared)
    return None


def _is_declaration(declared: Any) -> bool:
    if isinstance(declared, job_typing._Placeholder):
        return True
    if isinstance(declared, dict):
        return all(_is_declaration(d) for d in declared.values())
    parts = _parts(declared)
    return bool(parts) and all(_is_declaration(d) for d in parts)


def _flatten_input(where: Any, declared: Any, argument: Sequence[Any], out: Any) -> None:
    if isinstance(declared, job_typing._ListListPlaceholder):
        out.extend(declared.check(where, argument))
    elif isinstance(declared, job_typing._Placeholder):
        out.append(declared.check(where, argument))
    elif isinstance(declared, dict):
        if not isinstance(argument, dict) or set(argument) != set(declared):
            raise TypeError(f"{where}: declared a dict with the keys {sorted(declared)}, got {argument!r}")
        for key, d in declared.items():
            _flatten_input(f"{where}[{key!r}]", d, argument[key], out)
    else:
        parts = _parts(declared)
        if not isinstance(argument, (tuple, list)) or len(argument) != len(parts):
            raise TypeError(f"{where}: declared {len(parts)} arrays, got {argument!r}")
        for i, (d, g) in enumerate(zip(parts, argument)):
            _flatten_input(f"{where}[{i}]", d, g, out)


def _unflatten(declared: Any, queue: Any) -> Any:
    if isinstance(declared, job_typing._ListListPlaceholder):
        return TensorList([next(queue) for _ in range(next(queue).shape[0])])
    if isinstance(declared, job_typing._Placeholder):
        return next(queue)
    if isinstance(declared, dict):
        return {key: _unflatten(d, queue) for key, d in declared.items()}
    return tuple(_unflatten(d, queue) for d in _parts(declared))


def _examples(declared: Any, out: list[torch.Tensor]) -> None:
    if isinstance(declared, job_typing._ListListPlaceholder):
        count = declared.shape[0]
        out += [
            torch.empty(count, 0),
            *(torch.zeros(1, *declared.shape[1:], dtype=declared.dtype) for _ in range(count)),
        ]
    elif isinstance(declared, job_typing._Placeholder):
        out.append(torch.zeros(declared.shape, dtype=declared.dtype))
    else:
        for d in declared.values() if isinstance(declared, dict) else _parts(declared):
            _examples(d, out)


def current_global_function_desc() -> Any:
    """The job function being defined: has `job_name`, `function` and `IsTrainable()`."""
    job = _context.require_trace("current_global_function_desc()").job
    job.job_name = job.name
    return job
