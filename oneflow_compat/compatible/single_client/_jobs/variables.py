"""get_variable: named tensors of the session, shared by all job functions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...._errors import difference_hint
from .. import typing as job_typing
from .._functions.orders import takes_older_orders
from . import context as _context
from . import devices as _devices
from . import session as _session
from .stale_values import ssp_buffer_size, stale_value
from .update import outside_capture


@takes_older_orders("get_variable")
def api_get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    model_name: str | None = None,
    random_seed: Any = None,
    nd_sbp: Any = None,
    distribute: Any = None,
    reuse: bool = True,
) -> torch.Tensor:
    """The variable `name` (with the open namespaces in front), created at its first use.

    Another job, or the same one with `reuse=True`, gets the same variable. Its shape and dtype must agree
    (ValueError). With `reuse=False` a second request in one job is an error. Variables without an
    initializer take the job's default_initializer_conf, else zeros.
    """
    trace = _context.require_trace("flow.get_variable")
    full = "-".join([*_context.all_open("namespace"), name])
    dtype = trace.job.config.default_dtype if dtype is None else dtype
    if full in trace.variables:
        if not reuse:
            raise ValueError(
                f"get_variable: variable {full!r} exists already in job {trace.job.name} and reuse is False;"
                " give it another name or pass reuse=True"
            )
        _check(trace.created_by[full], full, shape, dtype)
        return _value(trace, full)
    variable = trace.session.variables.get(full)
    if variable is None:
        variable = _make(
            trace, full, shape, dtype, initializer, regularizer, trainable, model_name, random_seed
        )
    else:
        _check(variable, full, shape, dtype)
        if (
            trainable is not None
            and trainable
            and not variable.trainable
            and variable.tensor.is_floating_point()
        ):
            variable.trainable = True
            variable.tensor.requires_grad_()
        if regularizer is not None:
            variable.regularizer = regularizer
    tensor = variable.tensor
    learns = True if trainable is None else bool(trainable)
    if tensor.requires_grad and not learns:  # another job trains it, this one does not
        tensor = tensor.detach()
    trace.trainable[full] = learns
    trace.created_by[full] = variable
    trace.variables[full] = tensor
    trace.set_name(tensor, f"{full}/out")
    return _value(trace, full)


def _value(trace: Any, full: str) -> torch.Tensor:
    """What a job computes with: the variable, or with `enable_ssp` an old value of a trained one."""
    tensor: torch.Tensor = trace.variables[full]
    return stale_value(trace, full, ssp_buffer_size(trace)) if tensor.requires_grad else tensor


def _make(
    trace: Any,
    full: str,
    shape: int | Sequence[int],
    dtype: torch.dtype,
    initializer: Any,
    regularizer: Any,
    trainable: bool | None,
    model_name: str | None,
    seed: int | None,
) -> Any:
    if shape is None:
        raise ValueError(f"get_variable: variable {full!r} does not exist yet; give its shape")
    if isinstance(shape, int):
        shape = (shape,)
    if initializer is None:
        initializer = trace.job.config.values.get("default_initializer_conf")
    trainable = True if trainable is None else bool(trainable)
    with outside_capture(trace), torch.no_grad(), torch.autocast("cpu", enabled=False):
        tensor = torch.zeros(tuple(int(d) for d in shape), dtype=dtype, device=_devices.current(trace.job))
        variable = _session.Variable(full, tensor, initializer, regularizer, trainable, model_name, seed)
        variable.initialize()
    if trainable and dtype.is_floating_point:
        tensor.requires_grad_()
    trace.session.variables[full] = variable
    trace.new_variables.append(full)
    return variable


def _check(variable: Any, full: str, shape: int | Sequence[int], dtype: torch.dtype) -> None:
    tensor = variable.tensor
    if shape is not None:
        requested_shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if requested_shape != tuple(tensor.shape):
            raise ValueError(
                f"get_variable: variable {full!r} has shape {tuple(tensor.shape)}, asked for"
                f" {requested_shape}"
            )
    if dtype != tensor.dtype:
        raise ValueError(f"get_variable: variable {full!r} has dtype {tensor.dtype}, asked for {dtype}")


def assign(
    ref: torch.Tensor, value: torch.Tensor, dtype: torch.dtype | None = None, name: str | None = None
) -> torch.Tensor:
    """Set a variable to `value` (a blob of the same shape) when the call ends.

    The assignment follows gradients and updates.
    """
    trace = _context.require_trace("flow.assign")
    if not any(ref is t for t in trace.variables.values()):
        raise ValueError(
            "flow.assign: the first argument must be what flow.get_variable returned in this job"
        )
    trace.assignments.append((ref, value.detach() if dtype is None else value.detach().to(dtype)))
    return ref


def assign_of_system(
    ref: Any, value: Any, validate_shape: Any = None, use_locking: Any = None, name: str | None = None
) -> Any:
    """flow.system.assign: flow.assign, without `validate_shape=False`, because a variable keeps its shape."""
    if validate_shape is False:
        raise NotImplementedError(
            "system.assign(validate_shape=False): a variable keeps its shape"
            f" {difference_hint('legacy-assign-shape')}"
        )
    return assign(ref, value)


def watch(blob_watched: Any, handler_or_prompt: Any = None) -> None:
    """Call `handler(blob)` with the value after each call of the job, or print it under a prompt."""
    _context.require_trace("flow.watch").watches.append(
        (blob_watched, _handler(blob_watched, handler_or_prompt))
    )


def watch_diff(blob_watched: torch.Tensor, handler_or_prompt: Callable[..., Any] | None = None) -> None:
    """Call `handler(blob)` with the gradient of the sum of the losses for this blob after each call.

    As in OneFlow, the gradient is not divided by the number of loss elements. If no gradient flows, the
    handler is not called.
    """
    trace = _context.require_trace("flow.watch_diff")
    if not blob_watched.requires_grad and blob_watched.is_floating_point() and blob_watched.is_leaf:
        blob_watched.requires_grad_()
    trace.diffs.append((blob_watched, _handler(blob_watched, handler_or_prompt)))


def _handler(blob: torch.Tensor, handler: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    if callable(handler):
        try:
            annotations = [p.annotation for p in inspect.signature(handler).parameters.values()]
        except (TypeError, ValueError):
            annotations = []
        annotation = annotations[0] if annotations else inspect.Parameter.empty
        if isinstance(annotation, str):
            annotation = job_typing.ListNumpy if annotation.endswith("ListNumpy") else job_typing.Numpy
        if annotation is inspect.Parameter.empty:
            return handler
        return lambda value: handler(
            job_typing.convert(value, annotation, getattr(handler, "__name__", "watch handler"))
        )
    prompt = "" if handler is None else str(handler)
    return lambda value: print(prompt, value.numpy(), sep="\n" if prompt else "")


def find_or_create_module(module_name: Any, create: Any, reuse: bool = False) -> Any:
    """The object of this name in the session, made by create() the first time."""
    session = _session.default()
    if module_name in session.modules:
        if not reuse:
            raise ValueError(
                f"find_or_create_module: {module_name!r} exists already; pass reuse=True to get it"
            )
    else:
        session.modules[module_name] = create()
    return session.modules[module_name]
