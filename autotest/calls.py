"""Running one call on both sides."""

from __future__ import annotations

import ctypes
import functools
import inspect
import types
import typing
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import case as cases
from .case import DualObject, Step
from .contract import Arguments, Watch, is_watched
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .generators import Nothing, generator
from .printing import SourceWriter
from .verdict import SAME_KERNELS

if TYPE_CHECKING:
    import torch

    from .pair import Pair, RandomState


ATOMS = (int, float, bool, str, type(None), complex)
# Names of results without promised values: the candidate makes its own and gets the reference's values.
RANDOM = {"rand"}
UNINITIALIZED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
CONSTRUCTORS = {
    "Tensor",
    "FloatTensor",
    "DoubleTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ByteTensor",
    "CharTensor",
    "BoolTensor",
}


# Functions that were Python functions in earlier torch versions: (argument names, annotations). OneFlow's
# tests pass an untyped random() to them.
FORMER_SIGNATURES = {
    "hardshrink": (["input", "lambd"], {"lambd": float}),
    "pairwise_distance": (["x1", "x2", "p", "eps", "keepdim"], {"p": float, "eps": float, "keepdim": bool}),
}


# class of a container -> (its elements, the same container with other elements)
CONTAINERS: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    tuple: (list, lambda _, elements: tuple(elements)),
    list: (list, lambda _, elements: elements),
    dict: (lambda x: list(x.values()), lambda x, elements: dict(zip(x, elements))),
    slice: (lambda x: [x.start, x.stop, x.step], lambda _, elements: slice(*elements)),
}


def split(x: Any) -> tuple[Any, Any, Any]:
    """Return (x with generators sampled, its reference side, its candidate side), through containers."""
    if type(x) in ATOMS:
        return x, x, x
    if hasattr(type(x), "__dual__"):
        return x, x._ref, x._cand
    if isinstance(x, generator):
        return split(x.value())
    if type(x) not in CONTAINERS:
        return x, x, x
    elements_of, rebuild = CONTAINERS[type(x)]
    parts = [split(element) for element in elements_of(x)]
    sampled, reference, candidate = (rebuild(x, [part[side] for part in parts]) for side in range(3))
    return sampled, reference, candidate


def split_arguments(
    function: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Arguments, Arguments, Arguments]:
    """Return the (positional, keyword) arguments resolved, of the reference and of the candidate; `nothing`
    is dropped.
    """
    if any(isinstance(a, generator) for a in args) or any(isinstance(a, generator) for a in kwargs.values()):
        annotate_generators(function, args, kwargs)
    parts = [split(a) for a in args]
    while parts and isinstance(parts[-1][0], Nothing):
        parts.pop()
    named = {}
    for k, v in kwargs.items():
        part = split(v)
        if not isinstance(part[0], Nothing):
            named[k] = part
    sampled, reference, candidate = (
        (tuple(p[side] for p in parts), {k: p[side] for k, p in named.items()}) for side in range(3)
    )
    return sampled, reference, candidate


def annotate_generators(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give untyped generators the type that the callee's annotation names."""
    function = getattr(function, "__func__", function)
    try:
        names, hints = _annotations(function)
    except TypeError:  # not hashable
        return
    for i, arg in enumerate(args):
        if isinstance(arg, generator) and i < len(names) and names[i] in hints:
            arg.to(hints[names[i]])
    for name, arg in kwargs.items():
        if isinstance(arg, generator) and name in hints:
            arg.to(hints[name])


@functools.lru_cache(maxsize=4096)
def _annotations(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    target: Any = function
    if isinstance(function, type):
        target = function.__init__  # type: ignore[misc]
    elif not inspect.isroutine(function) and not isinstance(function, functools.partial):
        target = getattr(type(function), "forward", None) or type(function).__call__
    try:
        names = [
            p.name
            for p in inspect.signature(target).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return FORMER_SIGNATURES.get(getattr(target, "__name__", ""), ([], {}))
    if names and (names[0] == "self"):
        names = names[1:]
    hints = dict(getattr(target, "__annotations__", {}))
    if any(isinstance(h, str) for h in hints.values()):
        hints = _evaluated(target, hints)
    hints = {k: _without_str(v) for k, v in hints.items()}
    return names, {k: v for k, v in hints.items() if _can_sample(v)}


def _evaluated(target: Callable[..., Any], hints: dict[str, Any]) -> dict[str, Any]:
    scope = vars(typing) | getattr(inspect.unwrap(target), "__globals__", {})
    out = {}
    for name, hint in hints.items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, scope)
            except Exception:  # a name only known to type checkers
                continue
        out[name] = hint
    return out


def _without_str(hint: Any) -> Any:
    """Return a union without its str, because a generator of numbers cannot sample one (padding: Union[str,
    int, tuple[int, int]]).
    """
    if typing.get_origin(hint) is typing.Union or isinstance(hint, getattr(types, "UnionType", ())):
        kinds = tuple(a for a in typing.get_args(hint) if a is not str)
        return typing.Union[kinds] if kinds else hint
    return hint


def _can_sample(hint: Any) -> bool:
    """Return True if random() can sample this type: int, float, bool, and unions and tuples of them."""
    if hint in (int, float, bool, type(None)) or hint is Ellipsis:
        return True
    args = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Union or isinstance(hint, getattr(types, "UnionType", ())) or origin in (tuple, list):
        return bool(args) and all(_can_sample(a) for a in args)
    return False


def call_both(
    pair: Pair,
    step: Step,
    reference: Callable[..., Any],
    candidate: Callable[..., Any],
    reference_arguments: Arguments,
    candidate_arguments: Arguments,
    name: str = "",
) -> tuple[Any, Any]:
    """Call both sides on the same random stream; return the two results, or raise the difference.

    `step` is the call, not recorded yet; an error carries it, so that the report can print it.
    """
    try:
        return _call_both(pair, step, reference, candidate, reference_arguments, candidate_arguments, name)
    except Exception as e:
        step.random = pair.drawn_from
        raise at_step(e, step)


def _call_both(
    pair: Pair,
    step: Step,
    reference: Callable[..., Any],
    candidate: Callable[..., Any],
    reference_arguments: Arguments,
    candidate_arguments: Arguments,
    name: str,
) -> tuple[Any, Any]:
    functions, arguments = (reference, candidate), (reference_arguments, candidate_arguments)
    watch = Watch(pair, name, functions, arguments, lambda: _text(pair, step)) if is_watched(pair) else None
    state, settings = pair.random_state(), current_settings()
    pair.drawn_from = None
    try:
        r = reference(*reference_arguments[0], **reference_arguments[1])
    except Exception as e:
        check_refusal(pair, step, e, candidate, candidate_arguments, state)
    after_reference = pair.random_state()
    has_values = not is_without_values(pair, name, reference_arguments)
    pair.drawn_from = None if has_values and pair.is_state(state, after_reference) else state
    if not has_values and name in RANDOM and not pair.same_tensors:
        step.value, step.requires_grad = r.detach().clone(), r.requires_grad
        return r, pair.to_candidate(r)
    if pair.drawn_from is not None:
        pair.rewind(state)
    left_by_reference = current_settings()
    if pair.same_tensors and left_by_reference != settings:
        set_settings(settings)
    c = _result_of_candidate(pair, step, candidate, candidate_arguments)
    if pair.same_tensors:
        compare_settings(settings, left_by_reference, pair.names)
    if watch is not None:
        watch.compare_calls(r, c, has_values, after_reference, state)
    if not has_values and can_take_values(pair, r, c):
        c.detach().copy_(pair.to_candidate(r, requires_grad=False))
        step.value, step.candidate_called = r.detach().clone(), True
    return r, c


def _result_of_candidate(pair: Pair, step: Step, candidate: Callable[..., Any], arguments: Arguments) -> Any:
    """Call the candidate, which may not raise, because the reference has not."""
    try:
        return candidate(*arguments[0], **arguments[1])
    except Exception as e:
        raise Mismatch(
            "one side raised",
            f"{pair.names[0]} accepts {_text(pair, step)}, {pair.names[1]} raised {type(e).__name__}: {e}",
        ) from e


def is_without_values(pair: Pair, name: str, arguments: Arguments) -> bool:
    """Whether no library promises the values of this result, so that the candidate gets the reference's."""
    if name in CONSTRUCTORS:  # a constructor that takes sizes does not initialize the memory
        return all(type(a) is int or type(a).__name__ == "Size" for a in arguments[0])
    return name in UNINITIALIZED or name in RANDOM and pair.level != SAME_KERNELS


def can_take_values(pair: Pair, r: Any, c: Any) -> bool:
    return pair.is_reference_tensor(r) and hasattr(c, "copy_") and tuple(r.shape) == tuple(c.shape)


def check_refusal(
    pair: Pair,
    step: Step,
    error: Exception,
    candidate: Callable[..., Any],
    candidate_arguments: Arguments,
    state: RandomState,
) -> typing.NoReturn:
    """The reference raised `error`: call the candidate, and raise what the comparison says."""
    pair.rewind(state)
    options = getattr(cases.current(), "options", None)
    try:
        candidate(*candidate_arguments[0], **candidate_arguments[1])
    except Exception as e:
        if options is not None and options.check_errors == "class" and not same_class(error, e):
            raise Mismatch(
                "class of error",
                f"{_text(pair, step)} raised {type(error).__name__} in {pair.names[0]} and"
                f" {type(e).__name__} in {pair.names[1]}\n"
                f"{pair.names[0]}: {error}\n{pair.names[1]}: {e}",
            ) from e
        raise BothDoNotSupportError(error, e) from None
    if options is not None and options.check_errors != "no" and not pair.accepts_more:
        raise Mismatch(
            "one side raised",
            f"{pair.names[0]} raised {type(error).__name__} for {_text(pair, step)}:"
            f" {error}\n{pair.names[1]} accepts it",
        ) from error
    raise PyTorchDoesNotSupportError(error) from error


def same_class(a: Exception, b: Exception) -> bool:
    """Whether one class is the other's, or its parent below Exception."""
    ta, tb = type(a), type(b)
    return issubclass(ta, tb) or issubclass(tb, ta)


def _text(pair: Pair, step: Step) -> str:
    return SourceWriter(pair).step(None, step).removeprefix("last = ")


def at_step(error: Exception, step: Step) -> Exception:
    """Return the error with the step that raised it, which is not part of the record."""
    case = cases.current()
    if case is not None and not hasattr(error, "failed_step"):
        case.place(step)
        try:
            error.failed_step = step  # type: ignore[attr-defined]
        except AttributeError:  # a class with slots
            pass
    return error


def record(step: Step, out: DualObject | None = None) -> DualObject | None:
    """Add a step to the running case, if there is one, and return its result."""
    case = cases.current()
    if case is not None:
        step.out = out
        case.add(step)
    return out


# ------------------------------------- Settings of torch's process that a call may change
class Settings(NamedTuple):
    """State of the process that both sides share if the candidate runs on torch."""

    grad_enabled: bool
    default_dtype: torch.dtype
    threads: int
    is_deterministic: bool
    is_autocast: bool
    is_inference: bool
    default_device: torch.device
    numpy_stream: bytes

    def __str__(self) -> str:
        mode = "enabled" if self.grad_enabled else "disabled"
        text = f"gradients {mode}, default dtype {str(self.default_dtype).removeprefix('torch.')}"
        text += f", {self.threads} threads, default device {self.default_device}"
        text += ", deterministic algorithms" if self.is_deterministic else ""
        text += ", autocast" if self.is_autocast else ""
        text += ", inference mode" if self.is_inference else ""
        return f"{text}, NumPy's random stream at {zlib.crc32(self.numpy_stream):08x}"


def current_settings() -> Settings:
    import torch  # here, because the harness may be imported without it

    return Settings(
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_inference_mode_enabled(),
        torch.empty(0).device,  # ten times faster than torch.get_default_device()
        numpy_stream(),
    )


NUMPY_STATE_BYTES = 2500  # a Mersenne twister: 624 words and a position


def _numpy_generator() -> Any:
    """Return the generator of NumPy's global random stream, None before NumPy 1.24."""
    return getattr(np.random, "get_bit_generator", lambda: None)()


def numpy_stream() -> bytes:
    """Return the state of NumPy's global random stream; np.random.get_state() takes 50 times as long."""
    generator = _numpy_generator()
    if not isinstance(generator, np.random.MT19937):
        return b""
    return ctypes.string_at(generator.ctypes.state_address, NUMPY_STATE_BYTES)


def set_settings(settings: Settings) -> None:
    import torch

    torch.set_grad_enabled(settings.grad_enabled)
    torch.set_default_dtype(settings.default_dtype)
    if torch.get_num_threads() != settings.threads:
        torch.set_num_threads(settings.threads)
    if torch.are_deterministic_algorithms_enabled() != settings.is_deterministic:
        torch.use_deterministic_algorithms(settings.is_deterministic)
    if torch.empty(0).device != settings.default_device:
        torch.set_default_device(None if settings.default_device.type == "cpu" else settings.default_device)
    generator = _numpy_generator() if settings.numpy_stream else None
    if generator is not None and numpy_stream() != settings.numpy_stream:
        ctypes.memmove(generator.ctypes.state_address, settings.numpy_stream, NUMPY_STATE_BYTES)


def compare_settings(before: Settings, reference: Settings, names: tuple[str, str]) -> None:
    """Raise Mismatch, and put the settings back, if the candidate's call left others than the reference's."""
    candidate = current_settings()
    if candidate != reference:
        set_settings(before)
        raise Mismatch("settings", f"{names[0]} leaves {reference}\n{names[1]} leaves {candidate}")
