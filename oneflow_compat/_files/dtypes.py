"""OneFlow's numbers and names of dtypes, and how each is stored on disk."""

import numpy as np
import torch

# name in the meta file: (number in pickles, torch dtype, numpy dtype on disk)
PROTO = {
    "kChar": (1, torch.int8, np.int8),
    "kFloat": (2, torch.float32, np.float32),
    "kDouble": (3, torch.float64, np.float64),
    "kInt8": (4, torch.int8, np.int8),
    "kInt32": (5, torch.int32, np.int32),
    "kInt64": (6, torch.int64, np.int64),
    "kUInt8": (7, torch.uint8, np.uint8),
    "kFloat16": (9, torch.float16, np.float16),
    # OneFlow stores bfloat16 as float32
    "kBFloat16": (11, torch.bfloat16, np.float32),
    "kBool": (12, torch.bool, np.bool_),
    "kUInt16": (13, torch.uint16, np.uint16),
    "kUInt32": (14, torch.uint32, np.uint32),
    "kUInt64": (15, torch.uint64, np.uint64),
    "kInt16": (17, torch.int16, np.int16),
    "kComplex64": (20, torch.complex64, np.complex64),
    "kComplex128": (21, torch.complex128, np.complex128),
}
NUMBER_TO_DTYPE = {code: dtype for code, dtype, _ in PROTO.values()}
DTYPE_TO_NAME = {dtype: name for name, (_, dtype, _) in PROTO.items() if name != "kChar"}


def number_of(dtype: torch.dtype) -> int:
    """Return OneFlow's number of a dtype, which its pickles use."""
    return PROTO[name_of(dtype)][0]


def name_of(dtype: torch.dtype) -> str:
    """Return OneFlow's name of a dtype, which its meta files use."""
    try:
        return DTYPE_TO_NAME[dtype]
    except KeyError:
        raise NotImplementedError(
            f"OneFlow's file format has no element type for {dtype}; save with save_as_external_data=False"
            " and no layout"
        ) from None


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return the values for a file: contiguous, on the host, bfloat16 as float32."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotImplementedError(
            "OneFlow's file format holds dense tensors only, found layout"
            f" {tensor.layout}{' (quantized)' if tensor.is_quantized else ''}; save with"
            " save_as_external_data=False and no layout"
        )
    tensor = tensor.detach()
    name_of(tensor.dtype)
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().cpu().contiguous().numpy()


def from_numpy(array: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor with a copy of the values."""
    array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    tensor = torch.from_numpy(array)
    return tensor if dtype is None or tensor.dtype is dtype else tensor.to(dtype)
