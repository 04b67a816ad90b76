"""Small top-level names: type constructors, dtype lists, default types, trace queries, global tensors as
functions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy
import torch

from .._global.marks import OfSeveralRanks
from .._torchscript import teach
from . import partial_fc
from ._signature import spelled
from .core import get_dialect
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
    "is_tracing",
    "is_scripting",
    "ignore",
    "unused",
    "interface",
    "script",
    "Final",
    "global_to_global",
    "local_to_global",
    "normal_",
    "oneflow_internal_path",
    "oneflow_python_base_dir",
    "distributed_partial_fc_sample",
]


# --------------------------------------------------------------------------- FloatTensor and its kin
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


# --------------------------------------------------------------------------- dtypes
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


# --------------------------------------------------------------------------- jit
def is_tracing() -> bool:
    """Whether torch.jit is tracing."""
    return torch.jit.is_tracing()


def is_scripting() -> bool:
    """Whether the code is running as TorchScript."""
    return torch.jit.is_scripting()


def ignore(drop: bool | Callable[..., Any] = False, **kwargs: Any) -> Any:
    """torch.jit.ignore."""
    return torch.jit.ignore(drop, **kwargs)


def unused(fn: Any) -> Any:
    """torch.jit.unused."""
    return torch.jit.unused(fn)


def interface(fn: Any) -> Any:
    """The argument itself: OneFlow has no script interfaces."""
    return fn


def script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> Any:
    """The argument itself, as in OneFlow; torch.jit.script compiles."""
    return obj


def jit_script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> Any:
    """torch.jit.script(obj), or `obj` itself where TorchScript cannot compile it (an error in torch's
    dialect).
    """
    teach()
    try:
        return torch.jit.script(obj, optimize, _frames_up + 1, _rcb, example_inputs)
    except (
        RuntimeError,
        OSError,
        TypeError,
        ValueError,
        torch.jit.frontend.FrontendError,
    ):  # OSError: no source
        if get_dialect() == "torch":
            raise
        return obj


def Final(*args: Any, **kwargs: Any) -> Any:
    """typing.Final, or the argument itself when called."""
    return args[0] if args else None


# --------------------------------------------------------------------------- global tensors


def global_to_global(
    input: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    *,
    grad_sbp: Sbp | Sequence[Sbp] | None = None,
    check_meta: bool = False,
    copy: bool = False,
) -> torch.Tensor:
    """input.global_to_global(...).

    The global shape and the dtype stay; `Tensor.global_to_global` explains the arguments.
    """
    return input.global_to_global(placement, sbp, grad_sbp=grad_sbp, check_meta=check_meta, copy=copy)


def local_to_global(
    input: torch.Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> torch.Tensor:
    """input.local_to_global(...).

    The result has the dtype of input; `Tensor.local_to_global` explains the arguments.
    """
    return input.local_to_global(placement, sbp, check_meta=check_meta, copy=copy)


@spelled("input=x")
def normal_(
    x: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """x.normal_(mean, std); also on a leaf that requires grad."""
    return x.normal_(mean, std, generator=generator)


def distributed_partial_fc_sample(
    weight: torch.Tensor, label: torch.Tensor, num_sample: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Classes for a partial fully-connected layer: all labels' rows of `weight` and random others,
    `num_sample` in total.

    Returns (label numbered within the sample, the sampled class ids in ascending order, their rows of
    weight). With more positive classes than num_sample all of them are kept. A global weight split along
    dimension 0 is sampled by each rank, and the rows stay there.

    RuntimeError if `num_sample` exceeds the number of classes.
    """
    if isinstance(weight, OfSeveralRanks):
        return partial_fc.sample(weight, label, int(num_sample))
    classes, count, positive = weight.shape[0], int(num_sample), label.reshape(-1).long()
    # Read the labels only if they can exceed the sample. Otherwise the size is fixed: one graph program.
    if positive.numel() > count:
        count = max(count, positive.unique().numel())
    if count > classes:
        raise RuntimeError(f"distributed_partial_fc_sample: asked for {num_sample} of {classes} classes")
    chosen = torch.rand(classes, device=weight.device).index_fill(0, positive, 2.0)
    sampled = torch.topk(chosen, count).indices.sort().values
    return torch.searchsorted(sampled, label.long()).to(label.dtype), sampled.to(label.dtype), weight[sampled]


# --------------------------------------------------------------------------- paths
oneflow_python_base_dir = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
oneflow_internal_path = oneflow_python_base_dir
