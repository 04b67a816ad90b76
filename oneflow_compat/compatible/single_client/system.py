"""flow.system."""

from __future__ import annotations

from ..._errors import difference_hint
from . import _variables


def assign(ref, value, validate_shape=None, use_locking=None, name=None):
    """flow.assign; `validate_shape=False` is not supported, a variable keeps its shape."""
    if validate_shape is False:
        raise NotImplementedError(
            "system.assign(validate_shape=False): a variable keeps its shape"
            f" {difference_hint('legacy-assign-shape')}"
        )
    return _variables.assign(ref, value)
