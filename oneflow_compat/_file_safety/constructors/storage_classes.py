"""The classes of storages that a torch file names, by the dtypes that they mean."""

from __future__ import annotations

import torch


class StorageClass:
    """The dtype that a torch file gives a storage."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


STORAGE_CLASSES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "QInt8Storage": torch.qint8,
    "QUInt8Storage": torch.quint8,
    "QInt32Storage": torch.qint32,
    "QUInt4x2Storage": torch.quint4x2,
    "QUInt2x4Storage": torch.quint2x4,
    "UntypedStorage": torch.uint8,
}


def storage_class(module: str, name: str) -> StorageClass | None:
    """Return the storage class of that global name, or None."""
    is_storage = module in ("torch", "torch.cuda", "torch.storage") and name in STORAGE_CLASSES
    return StorageClass(STORAGE_CLASSES[name]) if is_storage else None
