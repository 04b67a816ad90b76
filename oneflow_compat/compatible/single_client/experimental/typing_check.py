"""The switch of annotation checks; they are always on here."""

from __future__ import annotations

from .. import _session


def enable_typing_check(val):
    """Recorded; annotations are always checked."""
    _session.default().settings["typing_check"] = bool(val)


def api_enable_typing_check(val=True):
    enable_typing_check(val)
