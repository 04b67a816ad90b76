"""The operator that does nothing."""

from __future__ import annotations

from ..._errors import unsupported


def no_op(name):
    return unsupported(
        f"the operator {name!r} by name",
        "legacy-user-ops",
        "Call the function of the API that does the same.",
    )
