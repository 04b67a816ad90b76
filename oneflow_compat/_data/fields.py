"""Fields of records as tensors."""

from collections.abc import Sequence

import numpy as np
import torch

from .buffers import RecordBatch, TensorBuffer, to_numpy_dtype
from .records import CorruptRecord, Record


def need_records(module: str, batch: object) -> RecordBatch:
    """Return the batch, or raise if it is no batch of records."""
    if not isinstance(batch, RecordBatch):
        raise TypeError(
            f"{module} takes what OFRecordReader gives (dtype oneflow.record), found {type(batch).__name__}"
        )
    return batch


def numeric(
    batch: RecordBatch, name: str, shape: Sequence[int], dtype: torch.dtype, pad: bool
) -> torch.Tensor:
    """Return a tensor (batch, *shape) of a numeric or bytes field.

    A list of another length is an error; with `pad` it is truncated or padded with zeros. Of a bytes field
    the first bytes are used, and too few bytes are an error. Values are converted as in C (0.7 becomes the
    int 0).
    """
    count, out_dtype = int(np.prod(shape)), to_numpy_dtype(dtype)
    out = np.zeros((len(batch.cells), count), out_dtype)
    for row, record in zip(out, batch.cells):
        list_name, values = record.field(name)
        if list_name == "bytes_list":
            if len(values) != 1:
                raise RuntimeError(
                    f"{record.where}: field {name!r} has {len(values)} byte strings; one is decoded"
                )
            values = np.frombuffer(values[0], np.uint8 if out_dtype == np.uint8 else np.int8)
            if len(values) >= count:
                values = values[:count]
        elif list_name is None:
            values = np.empty(0, out_dtype)
        if len(values) != count:
            if not pad:
                raise RuntimeError(
                    f"{record.where}: field {name!r} has {len(values)} values, asked for {count} (shape"
                    f" {tuple(shape)}); truncate=True or auto_zero_padding=True cuts and fills up"
                )
            values = values[:count]
        row[: len(values)] = values
    return torch.from_numpy(out.reshape((len(batch.cells), *shape)))


def raw_bytes(batch: RecordBatch, name: str) -> TensorBuffer:
    """Return the bytes of a field, each as a uint8 array."""
    buffer = TensorBuffer(
        [np.frombuffer(one_bytes(record, name), np.uint8) for record in batch.cells], batch.shape
    )
    buffer.origins = [f"{record.where}: field {name!r}" for record in batch.cells]
    return buffer


def one_bytes(record: Record, name: str) -> bytes:
    """Return the only byte string of a field."""
    list_name, values = record.field(name)
    if list_name != "bytes_list" or len(values) != 1:
        description = "no value" if list_name is None else f"{len(values)} values of {list_name}"
        raise CorruptRecord(f"{record.where}: field {name!r} should be one byte string, found {description}")
    return values[0]
