"""The memory that a load may allocate for a file, counted before each allocation."""

from collections.abc import Callable, Hashable
from typing import Any

import torch

from .errors import RefusedError

ALLOWANCE = 64 << 20  # bytes that any file may need
DATA_FACTOR = 4  # bytes of values for each byte of the file: read, unpacked, converted
OBJECT_FACTOR = 64  # bytes of Python objects for each byte of a pickle; an empty dict is two bytes there
COLLISIONS = 32  # different keys that share one hash


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
        self._hashes: dict[int, list[Any]] = {}

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
            f"altered or hostile: {subject} needs {amount} bytes more than a file of {self._file_size} bytes"
            " may take. If you trust the file, load it with weights_only=False"
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
        if type(key) is str or type(key) is bytes:
            return
        self.charge_objects(_key_cost(key), "a key")
        same_hash = self._hashes.setdefault(hash(key), [])
        if key not in same_hash:
            same_hash.append(key)
            if len(same_hash) > COLLISIONS:
                raise RefusedError(
                    f"altered or hostile: more than {COLLISIONS} keys have one hash, {key!r} is one of them"
                )


def _key_cost(key: Any, depth: int = 0) -> int:
    """Return the bytes that hashing a key reads. Raise RefusedError for a key that is no plain value."""
    if isinstance(key, tuple | frozenset):
        if depth > 16:
            raise RefusedError("altered or hostile: a key of a dict is a tuple of tuples, more than 16 deep")
        return 64 + sum(_key_cost(item, depth + 1) for item in key)
    if isinstance(key, int):
        return 32 + key.bit_length() // 8
    if isinstance(key, str | bytes):
        return 32 + len(key)
    is_plain = key is None or isinstance(key, float | complex | type | torch.dtype | torch.device)
    if is_plain or type(key).__module__.split(".")[0] in _KEY_MODULES:
        return 256
    raise RefusedError(f"it has a {type(key).__name__} as a key of a dict or set; keys are plain values")


_KEY_MODULES = ("pathlib", "datetime", "uuid", "decimal", "fractions", "numpy")
