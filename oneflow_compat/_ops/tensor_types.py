"""Constructors of tensors of one dtype, such as FloatTensor; the default tensor type, and lists of dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import torch

from .creation import make
from .from_data import tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._global.placement import placement as Placement
    from ..sbp import sbp as Sbp


__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "BFloat16Tensor",
    "ComplexFloatTensor",
    "ComplexDoubleTensor",
    "char",
    "dtypes",
    "convert_oneflow_dtype_to_numpy_dtype",
    "set_default_tensor_type",
]


class _TensorType(type):
    def __instancecheck__(cls, obj: object) -> bool:
        return isinstance(obj, torch.Tensor) and obj.dtype is cls.dtype and obj.device.type == cls.device_type

    def __repr__(cls) -> str:
        return f"<class '{cls.type_name()}'>"

    def type_name(cls) -> str:
        return f"{cls.__module__}.{cls.__name__}"


def _by_torchs_constructor(
    constructor: Callable[..., Any],
    args: tuple[Any, ...],
    dtype: torch.dtype,
    device: torch.device | str | int | None,
) -> torch.Tensor:
    """Return torch's result, or that of OneFlow's `tensor` for a sequence or an array that torch refuses."""
    try:
        result = constructor(*args) if device is None else constructor(*args, device=device)
    except (TypeError, ValueError):
        if len(args) != 1 or not isinstance(args[0], (list, tuple, numpy.ndarray, numpy.generic)):
            raise
        result = tensor(args[0], dtype=dtype, device=device)
    shares_memory = args and hasattr(args[0], "__array_interface__")  # torch shares an array's memory
    return result.clone() if shares_memory else result


def _of_type(
    args: tuple[Any, ...], dtype: torch.dtype, device: torch.device | str | int | None
) -> torch.Tensor:
    """Return the values of one argument in this dtype, or an uninitialised tensor of the given size."""
    if len(args) != 1 or isinstance(args[0], (int, torch.Size)):
        return torch.empty(*args or (0,), dtype=dtype, device=device)
    if isinstance(args[0], torch.Tensor):
        return args[0].to(device, dtype, copy=True)  # torch shares a tensor's memory
    constructor = torch.as_tensor if isinstance(args[0], float) else torch.tensor
    return constructor(args[0], dtype=dtype, device=device)


def _tensor_type(name: str, dtype: torch.dtype, where: str = "cpu") -> _TensorType:
    theirs = getattr(torch, name, None) if where == "cpu" else None

    def __new__(
        cls: type,
        *args: Any,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> torch.Tensor:
        """Return an uninitialised tensor of the given size, or the values of a sequence, array, number or
        tensor converted to this type. placement= and sbp= make it global.
        """
        if placement is not None or sbp is not None:
            return make(name, cls, args, {"device": device, "placement": placement, "sbp": sbp})
        if theirs is None or len(args) == 1 and isinstance(args[0], (torch.Tensor, float)):
            return _of_type(args, dtype, device or where)
        return _by_torchs_constructor(theirs, args, dtype, device)

    space = "oneflow" if where == "cpu" else f"oneflow.{where}"
    return _TensorType(
        name,
        (),
        {
            "__new__": __new__,
            "__module__": space,
            "dtype": dtype,
            "device_type": where,
            "__doc__": (
                f"Constructor of {where} tensors of dtype {str(dtype)[6:]}; isinstance() asks for dtype and"
                " device."
            ),
        },
    )


FloatTensor = _tensor_type("FloatTensor", torch.float32)
DoubleTensor = _tensor_type("DoubleTensor", torch.float64)
HalfTensor = _tensor_type("HalfTensor", torch.float16)
BFloat16Tensor = _tensor_type("BFloat16Tensor", torch.bfloat16)
BoolTensor = _tensor_type("BoolTensor", torch.bool)
ByteTensor = _tensor_type("ByteTensor", torch.uint8)
CharTensor = _tensor_type("CharTensor", torch.int8)
ShortTensor = _tensor_type("ShortTensor", torch.int16)
IntTensor = _tensor_type("IntTensor", torch.int32)
LongTensor = _tensor_type("LongTensor", torch.int64)
ComplexFloatTensor = _tensor_type("ComplexFloatTensor", torch.complex64)
ComplexDoubleTensor = _tensor_type("ComplexDoubleTensor", torch.complex128)


def set_default_tensor_type(tensor_type: str | type) -> None:
    """torch.set_default_tensor_type; also with OneFlow's spelling ("oneflow.DoubleTensor") and our
    constructors.
    """
    if isinstance(tensor_type, str) and tensor_type.startswith("oneflow."):
        tensor_type = "torch." + tensor_type[len("oneflow.") :]
    elif isinstance(tensor_type, _TensorType):
        tensor_type = tensor_type.type_name().replace("oneflow", "torch")
    torch.set_default_tensor_type(tensor_type)


char = torch.int8


def dtypes() -> list[torch.dtype]:
    """The dtypes OneFlow has, as a list."""
    return [
        torch.bool,
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bfloat16,
    ]


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: torch.dtype) -> type[numpy.generic]:
    """The NumPy scalar type of a dtype; float32 for bfloat16, as `Tensor.numpy` widens it."""
    return torch.empty(0, dtype=oneflow_dtype).numpy().dtype.type
