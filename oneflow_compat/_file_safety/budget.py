"""The memory that a load may allocate for a file, counted before each allocation."""

import collections
import dataclasses
import enum
from collections.abc import Callable, Hashable
from typing import Any

import torch

from .errors import RefusedError
from .shown import shown

ALLOWANCE = 64 << 20  # bytes that any file may need
DATA_FACTOR = 4  # bytes of values for each byte of the file: read, unpacked, converted
OBJECT_FACTOR = 64  # bytes of Python objects for each byte of a pickle; an empty dict is two bytes there
COLLISIONS = 32  # different keys that share one hash
KEY_ELEMENTS = 256  # values in a key that is a tuple


class Budget:
    """Two allowances of one load: bytes of values, and bytes of Python objects. The second also limits the
    time.

    `late_values`: the file stores the values of storages after the pickle. `restore_tensor(tensor, location)`
    moves a tensor that has no storage to the device that the load asks for.
    """

    def __init__(
        self,
        file_size: int,
        pickle_size: int | None = None,
        late_values: bool = False,
        restore_tensor: Callable[[torch.Tensor, str], torch.Tensor] | None = None,
    ) -> None:
        self._late_values = late_values
        self._checks: list[Callable[[], object]] = []
        self.restore_tensor = restore_tensor or (lambda tensor, location: tensor)
        self._data = ALLOWANCE + DATA_FACTOR * file_size
        self._objects = ALLOWANCE + OBJECT_FACTOR * (file_size if pickle_size is None else pickle_size)
        self._file_size = file_size
        self._keys = Keys()

    def charge_data(self, amount: int, subject: str) -> None:
        """Count `amount` bytes of values; RefusedError if the file may not have them."""
        self._data -= amount
        if self._data < 0:
            raise RefusedError(self._excess(amount, subject))

    def charge_objects(self, amount: int, subject: str) -> None:
        """Count `amount` bytes of Python objects; RefusedError if the file may not have them."""
        self._objects -= amount
        if self._objects < 0:
            raise RefusedError(self._excess(amount, subject))

    def _excess(self, amount: int, subject: str) -> str:
        return (
            f"altered or hostile: {subject} needs {shown(amount)} bytes more than a file of"
            f" {self._file_size} bytes may take. If you trust the file, load it with weights_only=False"
        )

    def check_later(self, check: Callable[[], object]) -> None:
        """Run `check()` after all values are read."""
        self._checks.append(check)

    def finish(self) -> None:
        """Run the checks that needed values."""
        for check in self._checks:
            check()

    def require_values(self, subject: str) -> None:
        """Refuse an object that depends on values, if the file stores the values after the pickle."""
        if self._late_values:
            raise RefusedError(f"altered: {subject} in a file of a torch that could not write one")

    def check_key(self, key: Hashable) -> None:
        """Refuse a key of a dict or set whose hash is slow, recursive or shared by many other keys."""
        if type(key) is not str and type(key) is not bytes:
            self.charge_objects(key_size(key), "a key")
            self._keys.check(key)


class Keys:
    """The keys of the dicts and sets of one file. Many different keys of one hash would take endless time."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._sharing: collections.Counter[int] = collections.Counter()

    def check(self, key: Hashable) -> None:
        """Refuse a plain key whose hash many other keys share. `key_size` must have accepted the key."""
        if key in self._seen:
            return
        self._sharing[hash(key)] += 1
        if self._sharing[hash(key)] > COLLISIONS:
            raise RefusedError(
                f"altered or hostile: more than {COLLISIONS} keys have one hash, {shown(key)} is one of them"
            )
        self._seen.add(key)


def key_size(key: object) -> int:
    """Return the bytes that hashing a key reads. Raise RefusedError for a key that is no plain value.

    The values of a tuple are counted before anything is hashed: a tuple that holds one tuple many times has
    more values than a loop can visit, if these tuples do the same. A deep one overflows the stack of hash().
    """
    size, elements, waiting = 0, 0, [key]
    while waiting:
        item: Any = waiting.pop()
        if dataclasses.is_dataclass(item) and type(item) in torch.serialization.get_safe_globals():
            # torch.compile's marks of dynamic dimensions
            item = tuple(getattr(item, field.name) for field in dataclasses.fields(item))
        size += _hashed_bytes(item)
        if isinstance(item, tuple | frozenset):
            elements += len(item)
            if elements > KEY_ELEMENTS:
                raise RefusedError(
                    f"altered or hostile: a key of a dict or set has more than {KEY_ELEMENTS} values"
                )
            waiting.extend(item)
    return size


def _hashed_bytes(item: Any) -> int:
    if isinstance(item, int):
        return 32 + item.bit_length() // 8
    if isinstance(item, str | bytes):
        return 32 + len(item)
    is_plain = item is None or isinstance(
        item, tuple | frozenset | float | complex | type | enum.Enum | torch.dtype | torch.device
    )
    if is_plain or type(item).__module__.split(".")[0] in _KEY_MODULES:
        return 256
    raise RefusedError(f"it has a {type(item).__name__} as a key of a dict or set; keys are plain values")


_KEY_MODULES = ("pathlib", "datetime", "uuid", "decimal", "fractions", "numpy")
