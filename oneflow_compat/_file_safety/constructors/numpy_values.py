"""Checked constructors of numpy's arrays, scalars and dtypes.

Only plain dtypes are supported: no objects, no fields, no subarrays.

numpy's own `__setstate__` trusts its arguments (a wrong one crashes the process), so it is never called. An
array is an `Array` shell until its state is read; then it is created from bytes of exactly the right length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..budget import Budget
from ..errors import RefusedError
from ..shown import shown
from .plain_values import refuse

_PLAIN = re.compile(
    r"[<>|=]?(b1|\?|[iu][1248]|f[248]|c8|c16|[US]\d{1,6}"
    r"|bool|float(16|32|64)|u?int(8|16|32|64)|complex(64|128))"
)
_STRINGS = "US"


class Shell:
    """An object of a pickle whose state is not read yet.

    `memo_keys` are the keys of the object in the memo of the pickle.
    """

    memo_keys: list[int]
    takes_arguments = False  # whether a pickle may pass arguments, which are not used
    size = 400  # bytes of the object

    def __new__(cls, *arguments: Any) -> Any:
        shell = super().__new__(cls)
        shell.memo_keys = []
        return shell

    def build(self, state: Any, budget: Budget) -> Any:
        """Return the object of a pickled state."""
        raise RefusedError(f"altered: a {type(self).__name__} has a state")


class Array(Shell):
    """An array without its values."""

    def build(self, state: Any, budget: Budget) -> np.ndarray:
        return build_array(budget, state)


class DType(Shell):
    """A dtype without its byte order."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    def build(self, state: Any, budget: Budget) -> np.dtype:
        return build_dtype(self, state)


def _plain_dtype(budget: Budget, *arguments: Any) -> DType:
    """Return a dtype of numbers, or of text of fixed length, by its name."""
    name = arguments[0] if arguments else None
    if not 1 <= len(arguments) <= 3 or type(name) is not str or not _PLAIN.fullmatch(name):
        raise RefusedError(
            f"it holds the numpy dtype {shown(name)}; a safe load makes plain numbers and text. If you"
            " trust the"
            " file, load it with weights_only=False"
        )
    return DType(np.dtype(name))


def check_dtype(dtype: Any) -> np.dtype:
    """Return the dtype. Raise RefusedError unless it is a plain one."""
    dtype = dtype.dtype if isinstance(dtype, DType) else dtype
    is_compound = not isinstance(dtype, np.dtype) or dtype.hasobject or dtype.fields or dtype.subdtype
    if is_compound or dtype.kind not in "biufcUS":
        raise RefusedError(
            f"it holds numpy values of {shown(dtype)}; a safe load makes plain numbers and text. If you"
            " trust the"
            " file, load it with weights_only=False"
        )
    return dtype


def build_dtype(shell: DType, state: Any) -> np.dtype:
    """Return the dtype in the byte order of its pickled state. Refuse any other state."""
    dtype = shell.dtype
    strings = dtype.kind in _STRINGS
    width = {"U": 4, "S": 1}.get(dtype.kind, 0)
    expected = (dtype.itemsize, width, 8 if width == 4 else 0) if strings else (-1, -1, 0)
    if (
        type(state) is not tuple
        or not 8 <= len(state) <= 9
        or any(type(v) is not int for v in (state[0], *state[5:8]))
        or state[0] not in (3, 4)
        or state[1] not in ("<", ">", "|", "=", "little", "big")
        or any(v is not None for v in (*state[2:5], *state[8:]))
        or state[5:8] != expected
    ):
        raise RefusedError(f"altered or hostile: the state of a numpy dtype {dtype} is {shown(state)}")
    return dtype if state[1] == "|" else dtype.newbyteorder(state[1])


def _reconstruct(budget: Budget, cls: type, shape: Any, typecode: Any) -> Any:
    if cls is not np.ndarray or shape != (0,) or typecode not in (b"b", "b"):
        refuse("numpy.ndarray", (cls, shape, typecode))
    budget.charge_objects(200, "an array")
    return Array()


def _dimensions(shape: Any) -> tuple[int, ...]:
    if type(shape) is int:
        shape = (shape,)
    if (
        type(shape) is not tuple
        or len(shape) > 32
        or any(type(d) is not int or not 0 <= d < 1 << 62 for d in shape)
    ):
        raise RefusedError(f"altered: the shape of an array is {shown(shape)}")
    return shape


def _from_bytes(budget: Budget, shape: Any, dtype: Any, data: Any, order: Any) -> np.ndarray:
    """Return a fresh array. The number of bytes must match the shape."""
    shape, dtype = _dimensions(shape), check_dtype(dtype)
    count = 1
    for d in shape:
        count *= d
    if type(data) not in (bytes, bytearray) or len(data) != count * dtype.itemsize:
        size = len(data) if isinstance(data, bytes | bytearray) else type(data).__name__
        raise RefusedError(
            f"altered: an array of shape {shown(shape)} and {dtype} has {shown(count * dtype.itemsize)}"
            f" bytes, found {size}"
        )
    if order not in ("C", "F"):
        raise RefusedError(f"altered: the order of an array is {shown(order)}")
    if not count:
        return np.empty(_small(shape), dtype)
    budget.charge_data(len(data), "an array")
    return np.frombuffer(bytearray(data), dtype).reshape(shape, order=order)


def _small(shape: Any) -> Any:
    """Return the shape of an array without elements. Limit its other dimensions, because numpy multiplies
    them.
    """
    if any(d > 1 << 31 for d in shape):
        raise RefusedError(f"altered: the shape of an array is {shown(shape)}")
    return shape


def build_array(budget: Budget, state: Any) -> np.ndarray:
    """Return the array of a pickled state: (version, shape, dtype, column-major, bytes)."""
    is_state = type(state) is tuple and len(state) == 5
    if not is_state or type(state[0]) is not int or type(state[3]) not in (bool, int):
        raise RefusedError(
            f"altered: the state of an array is a {type(state).__name__} that numpy does not write"
        )
    _, shape, dtype, columns, data = state
    return _from_bytes(budget, shape, dtype, data, "F" if columns else "C")


def _from_buffer(budget: Budget, buffer: Any, dtype: Any, shape: Any, order: Any, *axes: Any) -> Any:
    if axes and axes != (None,):
        refuse("numpy.ndarray", (buffer, dtype, shape, order, *axes))
    return _from_bytes(budget, shape, dtype, buffer, order)


def _scalar(budget: Budget, dtype: Any, *data: Any) -> Any:
    if len(data) != 1 or type(data[0]) is not bytes or len(data[0]) != check_dtype(dtype).itemsize:
        refuse("numpy scalar", (dtype, *data))
    dtype = check_dtype(dtype)
    return np.frombuffer(data[0], dtype)[0] if dtype.itemsize else dtype.type()


CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": _plain_dtype,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _from_buffer,
}
