"""Small helpers of OneFlow's older tests: argument grids, dtype names, flat indices."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import _env

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_NUMPY = {
    "bool": np.bool_,
    "float16": np.float16,
    "float32": np.float32,
    "float": np.float32,
    "double": np.float64,
    "float64": np.float64,
    "int8": np.int8,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
type_name_to_np_type = dict(_NUMPY)
type_name_to_flow_type = {name: getattr(torch, name) for name in _NUMPY}
type_name_to_flow_type["bfloat16"] = torch.bfloat16


def _without_cuda() -> bool:
    return _env.is_set("ONEFLOW_TEST_CPU_ONLY") or not torch.cuda.is_available()


def GenCartesianProduct(sets: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """All combinations of one element of each set; "cuda" is left out where there is no CUDA device."""
    sets = [list(s) for s in sets]
    if _without_cuda():
        sets = [[e for e in s if not (isinstance(e, str) and e == "cuda")] for s in sets]
    return itertools.product(*sets)


def GenArgList(arg_dict: Mapping[str, Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """All combinations of {name: list of values}, as tuples in the order of the names.

    AssertionError for values that are not lists.
    """
    wrong = [k for k, v in arg_dict.items() if not isinstance(v, (list, tuple))]
    if wrong:
        raise AssertionError(f"GenArgList: the values of {wrong} are not lists")
    return GenCartesianProduct(arg_dict.values())


def GenArgDict(arg_dict: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """The same combinations as dicts."""
    return [dict(zip(arg_dict.keys(), values)) for values in GenArgList(arg_dict)]


class Args:
    """Arguments for OneFlow and, where they differ, for the other library."""

    def __init__(self, flow_args: Any, tf_args: Any = None) -> None:
        self.flow_args = flow_args
        self.tf_args = flow_args if tf_args is None else tf_args

    def __repr__(self) -> str:
        return f"flow_args={self.flow_args} tf_args={self.tf_args}"


def FlattenArray(input_array: Any) -> list[Any]:
    """The elements of an array as a flat list of Python numbers, in memory order."""
    return np.asarray(input_array).ravel(order="K").tolist()


def Array2Numpy(input_array: Any, target_shape: Sequence[int]) -> np.ndarray:
    """A (flat) list as an array of the shape, row by row."""
    return np.array(input_array).reshape(target_shape, order="C")


def Index2Coordinate(idx: int, tensor_shape: Sequence[int]) -> list[int]:
    """The coordinates of the idx-th element, row by row."""
    return [int(c) for c in np.unravel_index(int(idx), tuple(tensor_shape))] if len(tensor_shape) else []


def Coordinate2Index(coordinate: Sequence[int], tensor_shape: Sequence[int]) -> int:
    """The place of the element at these coordinates, row by row.

    ValueError unless there is one coordinate for each dimension.
    """
    if len(coordinate) != len(tensor_shape):
        raise ValueError(
            f"Coordinate2Index: {len(coordinate)} coordinates for {len(tensor_shape)} dimensions"
        )
    return int(np.ravel_multi_index(tuple(coordinate), tuple(tensor_shape))) if len(tensor_shape) else 0


__all__ = [
    "GenCartesianProduct",
    "GenArgList",
    "GenArgDict",
    "Args",
    "type_name_to_flow_type",
    "type_name_to_np_type",
    "FlattenArray",
    "Array2Numpy",
    "Index2Coordinate",
    "Coordinate2Index",
]
