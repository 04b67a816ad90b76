"""The results that a job returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np


class LocalBlob:
    """A result of a job call.

    It has `numpy()` and `numpy_list()`. Everything else (shape, dtype, arithmetic) works as on an ndarray.
    """

    def __init__(self, array: np.ndarray, is_dynamic: bool = False) -> None:
        self._array, self.is_dynamic = array, is_dynamic

    def numpy(self, parallel_id: Any = None) -> np.ndarray:
        return self._array

    def ndarray(self) -> Any:
        return self._array

    def numpy_list(self) -> Any:
        return [self._array]

    ndarray_list = numpy_list
    parallel_num = lambda self: 1

    def __array__(self, dtype: torch.dtype | None = None, copy: Any = None) -> Any:
        return self._array if dtype is None else self._array.astype(dtype)

    def __len__(self) -> int:
        return len(self._array)

    def __getattr__(self, attr: Any) -> Any:
        if attr.startswith("__"):
            raise AttributeError(attr)
        return getattr(self._array, attr)

    def __getitem__(self, index: Any) -> Any:
        return self._array[index]

    def __iter__(self) -> Any:
        return iter(self._array)

    def __float__(self) -> Any:
        return float(self._array)

    def __repr__(self) -> str:
        return repr(self._array)

    __hash__ = object.__hash__


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Any, *operands: Any) -> Any:
        others = [o._array if isinstance(o, LocalBlob) else o for o in operands]
        return getattr(self._array, name)(*others)

    method.__name__ = name
    return method


for _name in """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul
rmatmul and or xor neg pos abs invert
        eq ne lt le gt ge int bool index complex contains format setitem""".split():
    setattr(LocalBlob, f"__{_name}__", _forward(f"__{_name}__"))
LocalBlob.__div__ = LocalBlob.__truediv__  # type: ignore[operator]  # made above
