"""Boolean environment variables of programs that use OneFlow; the package's own are in `_env.py`."""

from __future__ import annotations

import os

from .._errors import RefusedType

__all__ = ["parse_boolean_from_env", "string_to_bool"]


def string_to_bool(env_str: str) -> bool:
    """Return True for "1", "true", "yes", "on" and "y", in any case."""
    return env_str.lower() in ("1", "true", "yes", "on", "y")


def parse_boolean_from_env(env_var: str, defalut_value: bool) -> bool:
    """Return the value of an environment variable, or the default if it is not set.

    OneFlow spells the second argument so.
    """
    if not isinstance(env_var, str) or not isinstance(defalut_value, bool):
        raise RefusedType(
            f"parse_boolean_from_env() takes a name and a bool, found {env_var!r} and {defalut_value!r}"
        )
    value = os.environ.get(env_var)
    return defalut_value if value is None else string_to_bool(value)
