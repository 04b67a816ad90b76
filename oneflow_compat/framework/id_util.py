"""Names that are used once."""

import itertools

_numbers = itertools.count()


def UniqueStr(prefix: str) -> str:
    """`prefix` and a number that no other name of this process has."""
    return f"{prefix}{next(_numbers)}"
