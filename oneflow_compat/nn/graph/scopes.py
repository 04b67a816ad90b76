"""Scopes: name prefix, pipeline stage and recomputation of a block while build() runs.

Scopes are reported, never acted on: the engine takes stage and recomputation from the blocks themselves.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ... import _active
from ..._message import Message
from .multi_client_session import GetDefaultSession

__all__ = ["Scope", "ScopeContext", "current_scope"]

_numbers = itertools.count(1)


class AttrValue(Message):
    """One attribute of a scope; either at_bool or at_int64 is set, or neither."""

    FIELDS = {"at_bool": False, "at_int64": 0}

    def WhichOneof(self, group: str) -> str | None:
        """The name of the field that was set, or None."""
        return next((name for name in self.FIELDS if self.HasField(name)), None)


class ScopeProto(Message):
    """A scope as a message."""

    FIELDS = {
        "symbol_id": 0,
        "parent_scope_symbol_id": 0,
        "session_id": 0,
        "module_name": "",
        "scope_op_name_prefixes": [],
        "device": "",
    }

    def __init__(self, attributes: Mapping[str, AttrValue] | tuple[()] = (), **values: Any) -> None:
        super().__init__(**values)
        object.__setattr__(self, "_attributes", dict(attributes))

    @property
    def attr_name2attr_value(self) -> _Attributes:
        """{attribute: AttrValue}; asking for one that is not set gives an empty AttrValue."""
        return _Attributes(self._attributes)


class _Attributes(dict[str, Any]):
    def __missing__(self, name: str) -> AttrValue:
        return AttrValue()


class Scope:
    """One scope: its number, its parent, its name, and attributes that it hands down."""

    def __init__(
        self, parent: Scope | None = None, name: str = "", device: Any = "cpu", **attributes: Any
    ) -> None:
        self.parent, self.name, self.device, self.symbol_id = parent, name, device, next(_numbers)
        inherited: dict[str, Any] = {} if parent is None else parent.attributes
        self.attributes: dict[str, Any] = {
            **inherited,
            **{k: v for k, v in attributes.items() if v is not None},
        }

    @property
    def parent_scope_symbol_id(self) -> int:
        return 0 if self.parent is None else self.parent.symbol_id

    def proto(self) -> ScopeProto:
        kinds = {
            k: AttrValue(at_bool=v) if isinstance(v, bool) else AttrValue(at_int64=v)
            for k, v in self.attributes.items()
        }
        return ScopeProto(
            kinds,
            symbol_id=self.symbol_id,
            parent_scope_symbol_id=self.parent_scope_symbol_id,
            session_id=GetDefaultSession().id,
            module_name=self.name,
            scope_op_name_prefixes=[self.name]
            if self.parent is not None and self.parent.parent is not None
            else [],
            device=self.device,
        )


_outermost = Scope()
# name of the graph whose build() runs in this thread
graph_name = contextvars.ContextVar("graph", default=None)


def current_scope() -> Scope:
    """The innermost scope of this thread: that of the block being built, or the one around everything."""
    scope = _current()
    if not isinstance(scope, Scope):
        scope = scope()
        _active.REPORTED_SCOPE.set(scope)
    return scope


def _current() -> Scope | Callable[[], Scope]:
    scope: Scope | Callable[[], Scope] | None = _active.REPORTED_SCOPE.get()
    return _outermost if scope is None else scope


def set_current_scope(scope: Scope | Callable[[], Scope]) -> Scope | Callable[[], Scope]:
    """Make `scope` the current one of this thread, and return the one before.

    A function makes the scope when the scope is asked for.
    """
    outer = _current()
    _active.REPORTED_SCOPE.set(scope)
    return outer


@contextlib.contextmanager
def ScopeContext(scope: Scope) -> Iterator[None]:
    """Make `scope` the current one in the block."""
    outer = set_current_scope(scope)
    try:
        yield
    finally:
        set_current_scope(outer)
