"""Questions of user code whether its tensors are traced. In build() they have the answers of eager mode.

    isinstance(x, FakeTensor)             False
    is_fake(x), detect_fake_mode([x])     False, None
    _get_current_dispatch_mode()          the caller's mode

    is_tracing(x) of transformers         False

torch itself gets the true answers. Installed packages do, too: transformers leaves out a look at the values
of a mask, which a program does not have, if a tensor is traced. A question of an installed package that the
user calls is a question of the user.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, is_fake
from torch.overrides import _get_current_function_mode, _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode, _get_current_dispatch_mode_stack

from ...._active import capturing
from ...._public_module import own_names
from ...code_origins import is_of_user
from .patching import Replacements, names_of_modules, patched

_MODES: tuple[Callable[[], Any], ...] = (
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _get_current_function_mode,
    _get_current_function_mode_stack,
)
_OF_TENSORS: tuple[tuple[Any, Any], ...] = ((is_fake, False), (detect_fake_mode, None))
# (module, function that the questions of this module call)
_OF_PACKAGES = (("transformers.utils.import_utils", "is_fake_tensor"),)
_ASKING_MODULES = frozenset(module for module, _ in _OF_PACKAGES)


@contextlib.contextmanager
def answers_of_eager() -> Iterator[Replacements]:
    """Answer as in eager mode. This is entered before a capture enters modes of its own."""
    questions = (*_OF_TENSORS, *((question, question()) for question in _MODES))
    changes = {question.__name__: (question, _answered(question, answer)) for question, answer in questions}
    for module, name in _OF_PACKAGES:
        ask = own_names(sys.modules[module]).get(name) if module in sys.modules else None
        if ask is not None:
            changes[name] = ask, _answered(ask, False)
    with contextlib.ExitStack() as stack:
        if any(map(_names_class_of_fakes, names_of_modules())):  # the patch slows each isinstance() down
            stack.enter_context(patched(builtins, "isinstance", _isinstance))
        yield changes


def _answered(original: Callable[..., Any], answer: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        return answer if capturing() and _is_asked_by_user() else original(*args, **kwargs)

    return ask


def _names_class_of_fakes(names: dict[str, Any]) -> bool:
    """Whether they are the names of a module of the user's that has the class FakeTensor under its name."""
    if names.get("FakeTensor") is not FakeTensor:
        return False
    file = names.get("__file__")
    return not isinstance(file, str) or is_of_user(file)


def _isinstance(original: Callable[..., bool]) -> Callable[..., bool]:
    def isinstance(instance: object, classes: Any, /) -> bool:
        answer = original(instance, classes)
        if not answer or type(instance) is not FakeTensor or classes is torch.Tensor:
            return answer
        others = [cls for cls in flat_classes(classes) if cls is not FakeTensor]
        if len(others) == len([*flat_classes(classes)]) or not capturing() or not _is_asked_by_user():
            return answer
        return original(instance, tuple(others))

    return isinstance


def flat_classes(classes: Any) -> Iterator[Any]:
    """Yield the classes of isinstance(), out of tuples and unions."""
    parts = classes if type(classes) is tuple else getattr(classes, "__args__", None)
    if type(parts) is not tuple:
        yield classes
        return
    for part in parts:
        yield from flat_classes(part)


def _is_asked_by_user() -> bool:
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__") in _ASKING_MODULES:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return name.startswith("<") or is_of_user(name)
