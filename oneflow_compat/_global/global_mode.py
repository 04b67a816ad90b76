"""The stack behind utils.global_view.global_mode; creation functions read `current()`."""

from __future__ import annotations

from typing import NamedTuple


class Mode(NamedTuple):
    enabled: bool
    placement: object = None
    sbp: tuple | None = None


stack: list[Mode] = []
OFF = Mode(False)
SYMBOLIC = Mode(False, "symbolic")  # torch's symbolic kernels run: their tensors are not the user's


def current() -> Mode:
    return stack[-1] if stack else OFF
