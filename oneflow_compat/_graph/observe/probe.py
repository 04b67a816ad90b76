"""A function with reads of many sorts: each of them must reach the hooks, or nothing is captured."""

from __future__ import annotations

from typing import Any

from .observer import Observer

_PROBE = """
class Owner:
    value = 1

    def method(self):
        return self.called

def closure(key):
    def generate(owner):
        yield owner.yielded[key]
    return generate

def read(owner, generate):
    return [owner.value, name, owner.method(), list(generate(owner)), generate.__defaults__]
"""
_PROBED = {
    "value": "an attribute",
    "name": "a global name",
    "called": "a read in a function that is called",
    "yielded": "a read in a generator",
    "key": "an item",
}


def unseen_reads() -> list[str]:
    """Return the reads of a function that runs now which do not reach the hooks."""
    scope: dict[str, Any] = {"name": 1}
    exec(compile(_PROBE, "<probe>", "exec"), scope)
    observer, owner = Observer(lambda: True, lambda module: None, ends_capture=False), scope["Owner"]()
    owner.called, owner.yielded = 1, {"key": 1}
    with observer:
        made = scope["read"](owner, scope["closure"]("key"))
        is_listed = id(made) in observer.ids_made_by_build()
    keys = {guard.source.key for guard in observer.reads.notes.guards.values()}
    unseen = [description for key, description in _PROBED.items() if key not in keys]
    return unseen if is_listed else [*unseen, "the objects that a function makes"]
