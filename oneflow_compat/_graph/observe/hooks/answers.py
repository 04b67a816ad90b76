"""Questions that build() asks the interpreter, torch or a class: a guard asks them again before each call.

Their answers lie in no attribute that Python can see: the number of threads, the level of a logger, the
classes that are registered with an abstract class, the precision of decimal numbers.
"""

import contextvars
import decimal
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ...._active import outside_capture
from ...guards.sources import OF_CAPTURE, TYPE, Answer
from ...guards.values import FREE_BASES, arithmetic_of, is_a, is_plain
from ..instrumentation.instrument import Site
from .notes import Notes

_PACKAGES = (
    "torch",
    "_thread",
    "logging",
    "gc",
    "sys",
    "threading",
    "locale",
    "_locale",
    "os",
    "posix",
    "multiprocessing",
    "numpy",
)
_GETTER = re.compile(r"(get|is|are|has|initial|current).+|locked|cpu_count")
# A capture compares these modes itself (torch_settings.py, engine.py), or changes them while build() runs.
_COMPARED_ELSEWHERE = re.compile(r".*(grad|autocast|compiling|tracing|scripting).*|is_tensor")


def is_getter(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether a function of torch or of the standard library tells a setting, for plain arguments."""
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", None) or ""
    owner = getattr(function, "__self__", None)
    package = (module or getattr(owner, "__name__", "") or type(owner).__module__).partition(".")[0]
    if package not in _PACKAGES or not _GETTER.fullmatch(name) or _COMPARED_ELSEWHERE.fullmatch(name):
        return False
    return all(map(is_plain, arguments)) and _is_plain_answer(function, arguments)


def _is_plain_answer(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    try:
        with outside_capture():
            answer = function(*arguments)
            parts = (
                answer.values() if type(answer) is dict else answer if type(answer) is tuple else (answer,)
            )
            return all(map(is_plain, parts))
    except Exception:  # build() gets the same error in a moment
        return False


def decimal_context() -> tuple[Any, ...]:
    """Return what decides the results of decimal arithmetic in this thread."""
    return arithmetic_of(decimal.getcontext())


def is_warning_an_error(category: type[Warning]) -> bool:
    """Whether the first filter for a category raises its warnings."""
    actions = (action for action, _, cls, *_ in warnings.filters if issubclass(category, cls))
    return next(actions, None) == "error"


def has_rates_of_optimizer(scheduler: Any) -> bool:
    return bool(scheduler._last_lr == [group["lr"] for group in scheduler.optimizer.param_groups])


def context_variables() -> tuple[Any, ...]:
    return tuple(contextvars.copy_context().items())


def active_function_modes() -> tuple[TorchFunctionMode, ...]:
    """Return the modes that the caller has entered.

    Those of torch and of a capture are left out: torch keeps the default device as a mode.
    """
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return tuple(m for m in modes if type(m).__module__.partition(".")[0] not in ("torch", "oneflow"))


class AnswerReads:
    """Guards what functions answer, by asking them again."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def getter(self, function: Callable[..., Any], arguments: Sequence[Any], site: Site) -> None:
        """Guard the answer of a function that tells a setting."""
        of_tensor = isinstance(getattr(function, "__self__", None), FREE_BASES)
        if site.is_user and not of_tensor and is_getter(function, arguments):
            self.answer(function, tuple(arguments), f"{function.__name__}()", site)

    def function_modes(self, modes: tuple[TorchFunctionMode, ...], site: Site | None) -> None:
        """Guard which modes change what functions of torch do. One with equal attributes may replace them."""
        if modes:
            label = "the active torch function modes"
            self.notes.add(Answer((None, ())), active_function_modes, modes, label, site)
        for mode in modes:
            self.notes.add(TYPE, mode, type(mode), f"the class of {type(mode).__name__}", site)

    def warning(self, arguments: Sequence[Any], site: Site) -> None:
        """Guard whether warnings.warn(message, category) raises."""
        message, category = (*arguments, None, None)[:2]
        category = type(message) if is_a(message, Warning) else category or UserWarning
        if isinstance(category, type) and issubclass(category, Warning):
            self.answer(is_warning_an_error, (category,), "the filters of warnings", site)

    def answer(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], label: str, site: Site | None
    ) -> None:
        owner = getattr(function, "__self__", None)  # a bound method is another object each time
        owner, method = (function, None) if owner is None else (owner, function.__name__)
        self.notes.add(Answer((method, arguments)), owner, OF_CAPTURE, label, site)

    def text_of_arrays(self, arguments: Sequence[Any], site: Site) -> None:
        if any(is_a(argument, np.ndarray) for argument in arguments):
            self.answer(np.get_printoptions, (), "np.get_printoptions()", site)
