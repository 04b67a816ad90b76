"""Annotations of job functions.

They declare inputs (`Numpy.Placeholder(...)`) and results (`Numpy`, `Callback[...]`).
"""

from __future__ import annotations

import math as _math
import typing as _typing
from typing import TYPE_CHECKING

import numpy as _np
import torch

from ..._errors import unsupported
from ._functions.orders import takes_older_orders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    import numpy as np


_T = _typing.TypeVar("_T")


class _Placeholder:
    """One declared input. Calling it is not meant: it is callable because `typing.Tuple[...]` insists."""

    type_name = "Numpy"

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
        batch_axis: Any = None,
        name: str | None = None,
    ) -> None:
        self.shape = tuple(int(d) for d in shape)
        self.dtype = torch.float32 if dtype is None else dtype
        if not isinstance(self.dtype, torch.dtype):
            raise TypeError(
                f"{self.type_name}.Placeholder: dtype must be a OneFlow dtype such as flow.float, found"
                f" {dtype!r}"
            )
        self._numpy_type = None if self.dtype == torch.bfloat16 else _numpy_dtype(self.dtype)
        self._from_numpy = torch.from_numpy

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self!r} is a declaration; it is not called")

    def __repr__(self) -> str:
        return f"{self.type_name}.Placeholder({self.shape}, dtype={self.dtype})"

    def check(self, where: str, value: np.ndarray) -> torch.Tensor:
        """The tensor of one argument, or an error that names the argument."""
        if (
            type(value) is _np.ndarray
            and value.shape == self.shape
            and value.dtype == self._numpy_type
            and value.flags.carray
        ):
            return self._from_numpy(value)
        array = self._array(where, value)
        if tuple(array.shape) != self.shape:
            raise ValueError(
                f"{where}: declared shape {self.shape}, got an array of shape {tuple(array.shape)}"
            )
        return _tensor(where, array, self.dtype)

    def _array(self, where: str, value: np.ndarray) -> np.ndarray:
        if hasattr(value, "numpy") and not isinstance(value, _np.ndarray):
            value = value.numpy()
        if isinstance(value, _np.generic):
            value = _np.asarray(value)
        if not isinstance(value, _np.ndarray):
            raise TypeError(f"{where}: declared {self!r}, got {type(value).__name__}; pass a numpy.ndarray")
        return value


class _ListPlaceholder(_Placeholder):
    """A list with one array per device, with as many dimensions as declared and at most as many elements."""

    type_name = "ListNumpy"

    def check(self, where: Any, value: Any) -> Any:
        value = self._only(where, value)
        array = self._array(where, value)
        if array.ndim != len(self.shape) or array.size > _math.prod(self.shape):
            raise ValueError(
                f"{where}: declared {len(self.shape)} dimensions and at most the elements of {self.shape},"
                f" got an array of shape {tuple(array.shape)}"
            )
        return _tensor(where, array, self.dtype)

    def _only(self, where: Any, value: Sequence[Any]) -> Any:
        if not isinstance(value, (list, tuple)):
            raise TypeError(
                f"{where}: declared {self!r}, got {type(value).__name__}; pass a list with one numpy.ndarray"
                " per device"
            )
        if len(value) != 1:
            raise unsupported(
                f"{where}: a list of {len(value)} arrays, one per device,",
                "legacy-one-device",
                "Jobs run on one device here: pass a list of one array.",
            )
        return value[0]


class _ListListPlaceholder(_ListPlaceholder):
    """A list per device of arrays of shape (1, ...).

    There are at most `shape[0]` arrays, each at most of shape[1:].
    """

    type_name = "ListListNumpy"

    def check(self, where: Any, value: Any) -> Any:
        """[an empty tensor of shape (n, 0), array 1, ..., array n]; n is part of the job's signature."""
        arrays = self._only(where, value)
        if not isinstance(arrays, (list, tuple)) or not 0 < len(arrays) <= self.shape[0]:
            raise ValueError(
                f"{where}: declared a list per device of at most {self.shape[0]} arrays, got"
                f" {type(arrays).__name__} {len(arrays) if hasattr(arrays, '__len__') else ''}"
            )
        out = [torch.empty(len(arrays), 0)]
        for array in arrays:
            array = self._array(where, array)
            if (
                array.ndim != len(self.shape)
                or array.shape[0] != 1
                or any(a > d for a, d in zip(array.shape[1:], self.shape[1:]))
            ):
                raise ValueError(
                    f"{where}: declared arrays of at most {(1, *self.shape[1:])}, got one of shape"
                    f" {tuple(array.shape)}"
                )
            out.append(_tensor(where, array, self.dtype))
        return out


def _tensor(where: str, array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    declared = _numpy_dtype(dtype)
    if array.dtype != declared:
        if not _np.can_cast(array.dtype, declared, "same_kind"):
            raise TypeError(
                f"{where}: declared dtype {dtype}, got an array of {array.dtype}; convert it with"
                f" .astype(np.{declared})"
            )
        original, array = array, array.astype(declared)
        if declared.kind in "iu" and not _np.array_equal(original, array):
            raise ValueError(
                f"{where}: declared dtype {dtype}, got {original.dtype} numbers from {original.min()} to"
                f" {original.max()}, which do not all fit it"
            )
    if dtype == torch.bfloat16:
        return torch.from_numpy(_np.ascontiguousarray(array)).to(dtype)
    if not (array.flags.c_contiguous and array.flags.writeable):
        array = _np.array(array, order="C")
    return torch.from_numpy(array)


_numpy_of: dict[torch.dtype, Any] = {}


def _numpy_dtype(dtype: torch.dtype) -> Any:
    numpy_dtype = _numpy_of.get(dtype)
    if numpy_dtype is None:
        import torch

        numpy_dtype = (
            _np.dtype(_np.float32) if dtype == torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype
        )
        _numpy_of[dtype] = numpy_dtype
    return numpy_dtype


class Numpy:
    """One ndarray. As a return annotation: the call returns an ndarray."""

    Placeholder = _Placeholder


class ListNumpy:
    """A list with one ndarray per device (mirrored view). As a return annotation: the call returns a list."""

    Placeholder = _ListPlaceholder


class ListListNumpy:
    """A list per device of lists of ndarrays."""

    Placeholder = _ListListPlaceholder


class Bundle(_typing.Generic[_T]):
    """Bundle[X]: X, or tuples, lists and dicts of X, nested as the function likes."""


class Callback(_typing.Generic[_T]):
    """Callback[X]: the call returns a function that takes a handler, which gets X."""


ALLOWED = (
    "numpy results (tp.Numpy, tp.ListNumpy), Tuple/List/Dict of them, tp.Bundle[...], tp.Callback[...] or"
    " None"
)


def check_return_annotation(annotation: Any, function: str) -> None:
    """Refuse a return annotation that says nothing a job can return."""
    if (
        annotation is _typing.Any
        or annotation is None
        or annotation is type(None)
        or annotation in (Numpy, ListNumpy, ListListNumpy)
    ):
        return
    origin, args = _typing.get_origin(annotation), _typing.get_args(annotation)
    if origin in (tuple, list, Bundle, Callback) and args:
        for a in args:
            if a is not Ellipsis:
                check_return_annotation(a, function)
        return
    if origin is dict and len(args) == 2 and args[0] is str:
        check_return_annotation(args[1], function)
        return
    if annotation is Bundle or annotation is Callback:
        return
    raise TypeError(
        f"job function {function}: the return annotation {annotation!r} is not allowed; allowed are {ALLOWED}"
    )


def convert(value: Any, annotation: Any, function: str) -> dict[str, Any] | np.ndarray | Sequence[Any] | None:
    """Return job results (nested LocalBlobs) as the return annotation says."""
    origin, args = _typing.get_origin(annotation), _typing.get_args(annotation)
    by_annotation = _CONVERSIONS.get(annotation if origin is None else origin)
    if by_annotation is not None:
        return by_annotation(value, annotation, args, function)
    check_return_annotation(annotation, function)
    return value


def _to_none(value: Any, annotation: Any, args: Any, function: Any) -> None:
    if value is not None:
        raise TypeError(
            f"job function {function} is annotated to return None, it returned {type(value).__name__}"
        )


def _to_list_list_numpy(value: Any, annotation: Any, args: Any, function: Any) -> Any:
    if hasattr(value, "numpy_lists"):
        return value.numpy_lists()
    return [_leaf(value, annotation, function).numpy_list()]


def _to_bundle(
    value: Any, annotation: Any, args: Sequence[Any], function: str
) -> dict[str, Any] | np.ndarray | Sequence[Any] | None:
    inner = args[0] if args else Numpy
    return _map(value, lambda leaf: convert(leaf, inner, function))


def _to_callback(value: Any, annotation: Any, args: Any, function: Any) -> Any:
    inner = args[0] if args else Bundle
    return lambda handler: handler(convert(value, inner, function))


def _to_tuple(value: Any, annotation: Any, args: Any, function: Any) -> Any:
    items = _sequence(value, function, annotation)
    annotations = [args[0]] * len(items) if len(args) == 2 and args[1] is Ellipsis else args
    if len(annotations) != len(items):
        raise TypeError(
            f"job function {function}: annotated {len(annotations)} results, it returned {len(items)}"
        )
    return tuple(convert(v, a, function) for v, a in zip(items, annotations))


def _to_dict(value: Any, annotation: Any, args: Any, function: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(
            f"job function {function}: annotated {annotation}, it returned {type(value).__name__}"
        )
    return {k: convert(v, args[1], function) for k, v in value.items()}


# annotation, or the generic that it is made of -> conversion
_CONVERSIONS = {
    None: _to_none,
    type(None): _to_none,
    Numpy: lambda value, annotation, args, function: _leaf(value, annotation, function).numpy(),
    ListNumpy: lambda value, annotation, args, function: _leaf(value, annotation, function).numpy_list(),
    ListListNumpy: _to_list_list_numpy,
    Bundle: _to_bundle,
    Callback: _to_callback,
    tuple: _to_tuple,
    list: lambda value, annotation, args, function: [
        convert(v, args[0], function) for v in _sequence(value, function, annotation)
    ],
    dict: _to_dict,
}


def _leaf(value: Any, annotation: type, function: str) -> Any:
    if not hasattr(value, "numpy_list"):
        raise TypeError(
            f"job function {function}: annotated {annotation.__name__}, it returned {type(value).__name__}"
        )
    return value


def _sequence(value: Sequence[Any], function: Any, annotation: Any) -> Any:
    if not isinstance(value, (tuple, list)):
        raise TypeError(
            f"job function {function}: annotated {annotation}, it returned {type(value).__name__}"
        )
    return value


def _map(value: Any, leaf: Callable[..., Any]) -> dict[str, Any] | np.ndarray | Sequence[Any] | None:
    if value is None:
        return None
    if isinstance(value, (tuple, list)):
        return type(value)(_map(v, leaf) for v in value)
    if isinstance(value, dict):
        return {k: _map(v, leaf) for k, v in value.items()}
    return leaf(value)


# ------------------- Declarations of inputs in the oldest style: `def job(x=flow.FixedTensorDef((2, 3)))`


@takes_older_orders("FixedTensorDef")
def FixedTensorDef(
    shape: Any, dtype: torch.dtype | None = None, batch_axis: Any = None, name: str | None = None
) -> Any:
    """FixedTensorDef(shape, dtype=flow.float): one array of exactly this shape."""
    return _Placeholder(shape, dtype, batch_axis, name)


def MirroredTensorDef(*args: Any, **kwargs: Any) -> Any:
    """MirroredTensorDef(shape, dtype=flow.float): a list with one array per device.

    Each array is at most of this shape.
    """
    return _ListPlaceholder(*args, **kwargs)


def MirroredTensorListDef(*args: Any, **kwargs: Any) -> Any:
    """MirroredTensorListDef(shape, dtype=flow.float): a list per device of arrays."""
    return _ListListPlaceholder(*args, **kwargs)
