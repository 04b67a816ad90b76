"""Dtypes of OneFlow and numpy."""

from __future__ import annotations

import numpy as np
import torch

_NUMPY = {
    torch.bool: np.bool_,
    torch.uint8: np.uint8,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
_TORCH = {np.dtype(v): k for k, v in _NUMPY.items()}


def dtypes() -> list:
    """Every dtype a tensor may have."""
    return [*_NUMPY, torch.bfloat16]


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype):
    """numpy's type for a dtype; NotImplementedError for bfloat16, which numpy lacks."""
    if oneflow_dtype not in _NUMPY:
        raise NotImplementedError(f"numpy has no dtype for {oneflow_dtype}")
    return _NUMPY[oneflow_dtype]


def convert_numpy_dtype_to_oneflow_dtype(numpy_dtype):
    """The dtype for numpy's; NotImplementedError for one that tensors lack."""
    try:
        return _TORCH[np.dtype(numpy_dtype)]
    except KeyError:
        raise NotImplementedError(f"no tensor dtype for numpy's {np.dtype(numpy_dtype)}") from None


# in the order of OneFlow's numbers; what is None no tensor has
_BY_NUMBER = (
    None,
    "char",
    "float32",
    "float64",
    "int8",
    "int32",
    "int64",
    "uint8",
    "of_record",
    "float16",
    "tensor_buffer",
    "bfloat16",
    "bool",
    "uint16",
    "uint32",
    "uint64",
    None,
    "int16",
    None,
    "complex32",
    "complex64",
    "complex128",
)


def convert_proto_dtype_to_oneflow_dtype(proto_dtype: int):
    """The dtype with a number of OneFlow's files; NotImplementedError for one that tensors lack."""
    name = _BY_NUMBER[proto_dtype] if 0 <= proto_dtype < len(_BY_NUMBER) else None
    if name is None:
        raise NotImplementedError(f"no tensor dtype has the number {proto_dtype}")
    import oneflow

    return getattr(oneflow, name)
