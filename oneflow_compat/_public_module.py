"""The class of the public modules that a module of torch backs.

A program that patches `torch.nn.functional.linear` expects torch's own layers to call the patch. So a write
to a name that is torch's own object goes through to torch's module, and the write that undoes it, too.
`vars(module)` holds torch's names, although they are bound at their first use.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

_MISSING = object()
_backing: dict[str, str] = {}  # public module -> torch's module
_fillers: dict[
    str, Callable[[], None]
] = {}  # public module -> the function that adds torch's names to its dict
_deleted: set[tuple[str, str]] = set()  # (public module, name) that was deleted from torch's module as well
# (public module, name) -> (our object that stands for torch's, torch's object), while torch's is overwritten
_overwritten: dict[tuple[str, str], tuple[Any, Any]] = {}
_dict_of: Any = vars(ModuleType)["__dict__"]


def own_names(module: ModuleType) -> dict[str, Any]:
    """Return the dict of a module as it is, without torch's names that were not used yet."""
    names: dict[str, Any] = _dict_of.__get__(module)
    return names


class _NamedModule:
    """A module in a pickle, which has no form for modules."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self._name,)


class StandIn:
    """A function of ours that stands for torch's in torch's dialect; its pickle names torch's function."""

    def __init__(self, function: Callable[..., Any], theirs: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._home, self._name = _NamedModule(theirs.__module__), theirs.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._home, self._name)


class PublicModule(ModuleType):
    """A module of ours with the names of a module of torch."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        _fillers[self.__name__]()
        return own_names(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not _is_submodule(self, name, value) and _is_of_torch(self, name):
            _write(self, name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if _is_of_torch(self, name):
            theirs = sys.modules[_backing[self.__name__]]
            delattr(theirs, name)
            _deleted.add((self.__name__, name))
            own_names(self).pop(name, None)
        else:
            super().__delattr__(name)


def back_with_torch(module: ModuleType, torch_name: str, fill: Callable[[], None]) -> None:
    """Make writes to `module` reach torch's module; `fill` adds torch's names to its dict."""
    _backing[module.__name__] = torch_name
    _fillers[module.__name__] = fill
    module.__class__ = PublicModule


def _is_submodule(module: ModuleType, name: str, value: Any) -> bool:
    """Whether the import system binds a submodule of ours."""
    return isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}"


def _is_of_torch(module: ModuleType, name: str) -> bool:
    """Whether a name is torch's own object in both modules, or was before it was deleted."""
    theirs = sys.modules.get(_backing[module.__name__])
    if theirs is None or name.startswith("__"):
        return False
    if (module.__name__, name) in _deleted:
        return True
    torchs = vars(theirs).get(name, _MISSING)
    if torchs is _MISSING:
        return False
    ours = own_names(module).get(name, _MISSING)
    ours = getattr(module, name, _MISSING) if ours is _MISSING else ours
    return ours is torchs or isinstance(ours, StandIn)


def _write(module: ModuleType, name: str, value: Any) -> None:
    """Bind a name of torch's module; for an object that stands for torch's, bind torch's."""
    key, theirs = (module.__name__, name), sys.modules[_backing[module.__name__]]
    current = own_names(module).get(name)
    if isinstance(current, StandIn):
        _overwritten[key] = current, vars(theirs)[name]
    stand_in, torchs = _overwritten.get(key, (_MISSING, None))
    _deleted.discard(key)
    setattr(theirs, name, torchs if value is stand_in else value)
