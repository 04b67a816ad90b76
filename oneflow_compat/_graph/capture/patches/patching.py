"""Change torch while a block runs, and undo every change on any exception.

A KeyboardInterrupt can arrive between any two bytecodes, also while a change is being undone. So each change
logs its undo function before it is made, and a capture runs what is left in the log when it ends.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

import torch
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack, _pop_torch_function_stack
from torch.utils._python_dispatch import _pop_mode

from ...._active import capturing
from ...._method import own_attribute
from ...._public_module import own_names
from ...code_origins import is_internal

_log: list[Any] = []  # undo functions of the changes in force, each safe to run again
log = _log.append
_MISSING = object()
_OF_LIBRARIES = ("torch", "oneflow")


def forget(undo: Callable[[], object]) -> None:
    """Take `undo` out of the log, where an interrupt may have left it or not."""
    with contextlib.suppress(ValueError):
        _log.remove(undo)


@contextlib.contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` at the end of the block. It must be safe to call twice, and before anything changed."""
    log(undo)
    try:
        yield
    finally:
        undo()
        forget(undo)


@contextlib.contextmanager
def everything_undone() -> Iterator[None]:
    """Undo at the end of the block what an interrupt left changed, the modes of dispatch included."""
    modes, functions = _len_torch_dispatch_stack(), _len_torch_function_stack()
    grad, outer = torch.is_grad_enabled(), len(_log)
    try:
        yield
    finally:
        while _len_torch_dispatch_stack() > modes:
            _pop_mode()
        while _len_torch_function_stack() > functions:
            _pop_torch_function_stack()
        torch.set_grad_enabled(grad)
        interrupt = None
        while len(_log) > outer:
            try:
                _log[-1]()
                _log.pop()
            except KeyboardInterrupt as error:  # the rest is undone first
                interrupt = error
        if interrupt is not None:
            raise interrupt


@contextlib.contextmanager
def patched_attributes(changes: Iterable[tuple[object, str, object]]) -> Iterator[None]:
    """Set `name` of `owner` to `value` for each (owner, name, value) while the block runs."""
    changes = list(changes)
    before = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in changes]

    def undo() -> None:
        for owner, name, value in reversed(before):
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):  # the attribute was inherited
                delattr(owner, name)

    with undone(undo):
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield


@contextlib.contextmanager
def global_hook(
    register: Callable[..., Any], hooks: dict[Any, Any], hook: Callable[..., Any], **options: Any
) -> Iterator[None]:
    """Register a hook of all modules or of all optimizers while the block runs.

    `hooks` is torch's table of these hooks. An interrupt may come after torch has stored the hook and before
    there is a handle, so the hook is looked for in the table.
    """
    handles: list[Any] = []

    def undo() -> None:
        for handle in handles:
            handle.remove()
        for key in [key for key, value in hooks.items() if value is hook]:
            hooks.pop(key, None)

    with undone(undo):
        handles.append(register(hook, **options))
        yield


def patched(owner: object, name: str, make: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Set `name` of `owner` to `make(its value)` while the block runs."""
    value = own_attribute(owner, name) if isinstance(owner, type) else getattr(owner, name)
    return patched_attributes([(owner, name, make(value))])


def answered_in_build(owner: object, name: str, answer: object) -> contextlib.AbstractContextManager[None]:
    """Let build() get `answer` from a function without arguments, for a setting that the capture changes.

    torch itself gets the present setting.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ask() -> object:
            asks = capturing() and not is_internal(sys._getframe(1).f_code.co_filename)
            return answer if asks else original()

        return ask

    return patched(owner, name, make)


Replacements: TypeAlias = dict[str, tuple[Any, Any]]  # {name: (original, new)}


@contextlib.contextmanager
def everywhere(changes: Replacements) -> Iterator[None]:
    """Each module that has an original under its name has the new one until the end.

    A process has thousands of modules, so a capture enters this once, with all its replacements.
    """
    back = {name: (new, original) for name, (original, new) in changes.items()}
    with undone(lambda: _exchange(back)):  # modules that looked the name up meanwhile get it back as well
        _exchange(changes)
        yield


def _exchange(changes: Replacements) -> None:
    for names in names_of_modules():
        if not changes.keys().isdisjoint(names.keys()):
            for name, (old, new) in changes.items():
                if names.get(name) is old:
                    names[name] = new


def names_of_modules() -> list[dict[str, Any]]:
    """Return the dicts of the modules that are loaded."""
    return [own_names(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def called_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that was called, which may not be the function that torch reports.

    A method written in C reports what lies under its name on torch.Tensor (torch 2.13). That is the user's
    function, which would run a second time.
    """
    if type(function) is not FunctionType or (function.__module__ or "").split(".")[0] in _OF_LIBRARIES:
        return function
    names = (name for name, value in vars(torch.Tensor).items() if value is function)
    return getattr(torch.Tensor.__base__, next(names, ""), function)
