"""TensorBuffer: a batch whose cells are arrays of any shape, and record batches.

In OneFlow these are tensors of dtype oneflow.tensor_buffer and oneflow.record. torch has no such dtypes, so
here they are small classes with a shape, dtype and device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from .images import parallel

__all__ = [
    "record",
    "of_record",
    "tensor_buffer",
    "gen_tensor_buffer",
    "tensor_to_tensor_buffer",
    "tensor_buffer_to_tensor",
    "tensor_buffer_to_list_of_tensors",
]


class CellType:
    """A dtype of OneFlow that no torch tensor has: oneflow.record, oneflow.tensor_buffer."""

    is_floating_point = is_complex = is_signed = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"oneflow.{self.name}"

    def __reduce__(self) -> str:
        return self.name


of_record = record = CellType("of_record")
tensor_buffer = CellType("tensor_buffer")


class _Batch:
    """Base class of both batches: cells in some shape, on the host."""

    dtype: CellType
    placement = sbp = None

    def __init__(self, cells: Iterable[Any], shape: Sequence[int] | None = None) -> None:
        self.cells = list(cells)
        self.shape = torch.Size(shape if shape is not None else (len(self.cells),))

    device = property(lambda self: torch.device("cpu"))
    ndim = property(lambda self: len(self.shape))
    is_cuda = requires_grad = is_global = False

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return len(self.cells)

    nelement = numel

    def __len__(self) -> int:
        return self.shape[0]

    def _same(self, *args: Any, **kwargs: Any) -> Any:
        """Return the batch itself. Cells stay on the host; tensors created from them can be moved."""
        return self

    to = cpu = cuda = to_global = detach = contiguous = _same

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={list(self.shape)}, dtype={self.dtype!r})"


class RecordBatch(_Batch):
    """A batch of records, as OFRecordReader returns."""

    dtype = record


class TensorBuffer(_Batch):
    """A batch of arrays (numpy), each with its own shape and dtype.

    `lazy` returns a batch of functions that compute the arrays. The next stage may call them one by one in
    its own threads, so that an image is resized while it is in the cache. `cells` calls all of them.
    """

    dtype = tensor_buffer

    def __init__(self, cells: Iterable[Any], shape: Sequence[int] | None = None) -> None:
        self._makers: list[Callable[[], np.ndarray]] | None = None
        self._cells: list[Any] | None = None
        self.origins: list[str] | None = None  # the file of each cell, and the record and field in it
        super().__init__(cells, shape)

    def cell_origins(self) -> list[str] | list[None]:
        """Return where each cell comes from, or None for each."""
        return [None] * len(self.cells) if self.origins is None else self.origins

    @classmethod
    def lazy(cls, makers: list[Callable[[], np.ndarray]], shape: Sequence[int]) -> TensorBuffer:
        buffer = cls((), shape)
        buffer._makers, buffer._cells = makers, None
        return buffer

    @property
    def cells(self) -> list[Any]:
        if self._cells is None:
            self._cells = parallel(lambda make: make(), self._makers or ())
            self._makers = None
        return self._cells

    @cells.setter
    def cells(self, cells: list[Any] | None) -> None:
        self._cells = cells

    def makers(self) -> list[Callable[[], np.ndarray]]:
        """Return a function for each cell that returns the cell."""
        if self._makers is not None:
            return self._makers
        constant = lambda cell: lambda: cell
        return [constant(cell) for cell in self.cells]

    @property
    def _tensor_buffer_shapes_and_dtypes(self) -> tuple[list[torch.Size], list[Any]]:
        """Return the shapes and the dtypes of the cells, as two lists."""
        dtypes = [torch.from_numpy(np.empty(0, cell.dtype)).dtype for cell in self.cells]
        return [torch.Size(cell.shape) for cell in self.cells], dtypes

    def numel(self) -> int:
        return len(self.makers() if self._cells is None else self._cells)

    nelement = numel

    def numpy(self) -> np.ndarray:
        """Return the arrays in an object array."""
        out = np.empty(len(self.cells), dtype=object)
        out[:] = self.cells
        return out.reshape(self.shape)

    def __getitem__(self, at: Any) -> torch.Tensor | TensorBuffer:
        picked = self.numpy()[at]
        if self._is_cell(at):
            return torch.from_numpy(np.ascontiguousarray(picked))
        return TensorBuffer(picked.ravel(), picked.shape)

    def _is_cell(self, at: Any) -> bool:
        index = at if isinstance(at, tuple) else (at,)
        return len(index) == len(self.shape) and all(isinstance(i, (int, np.integer)) for i in index)


def _need_buffer(function: str, value: object) -> TensorBuffer:
    if not isinstance(value, TensorBuffer):
        raise TypeError(
            f"{function}: expected a TensorBuffer (dtype oneflow.tensor_buffer), found {type(value).__name__}"
        )
    return value


def to_numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """Return numpy's dtype for a torch dtype."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def gen_tensor_buffer(
    shape: Sequence[int],
    shape_list: Sequence[Sequence[int]],
    value_list: Sequence[float],
    data_type: torch.dtype = torch.float32,
    dynamic_out: bool = False,
) -> TensorBuffer:
    """Return a TensorBuffer of `shape`; cell i has shape shape_list[i] and every element value_list[i].

    ValueError unless there is one shape and one value for each cell.
    """
    count, dtype = int(np.prod(shape)), to_numpy_dtype(data_type)
    if not len(shape_list) == len(value_list) == count:
        raise ValueError(
            f"gen_tensor_buffer: {count} cells need as many shapes and values, found {len(shape_list)} and"
            f" {len(value_list)}"
        )
    return TensorBuffer([np.full(tuple(s), v, dtype) for s, v in zip(shape_list, value_list)], shape)


def tensor_to_tensor_buffer(x: torch.Tensor, instance_dims: int) -> TensorBuffer:
    """Return a buffer with cells of the last `instance_dims` dimensions, in the shape of the others.

    RuntimeError unless `instance_dims` is from 0 to x.dim().
    """
    if not 0 <= instance_dims <= x.dim():
        raise RuntimeError(
            f"tensor_to_tensor_buffer: instance_dims must be in 0..{x.dim()} for {list(x.shape)}, found"
            f" {instance_dims}"
        )
    array = x.detach().cpu().numpy()
    shape = array.shape[: x.dim() - instance_dims]
    cells = array.reshape((-1,) + array.shape[x.dim() - instance_dims :])
    return TensorBuffer([cell.copy() for cell in cells], shape)


def tensor_buffer_to_tensor(
    x: TensorBuffer, dtype: torch.dtype, instance_shape: Sequence[int]
) -> torch.Tensor:
    """Return one tensor of cells that all have `instance_shape` elements and `dtype`.

    RuntimeError for a cell of another shape or dtype.
    """
    _need_buffer("tensor_buffer_to_tensor", x)
    target_dtype, count = to_numpy_dtype(dtype), int(np.prod(instance_shape))
    for i, cell in enumerate(x.cells):
        if cell.size != count or cell.dtype != target_dtype:
            raise RuntimeError(
                f"tensor_buffer_to_tensor: cell {i} is {list(cell.shape)} of {cell.dtype}, asked for"
                f" {list(instance_shape)} of {target_dtype}"
            )
    out = np.empty((len(x.cells), count), target_dtype)
    for row, cell in zip(out, x.cells):
        row[:] = cell.ravel()
    return torch.from_numpy(out.reshape(tuple(x.shape) + tuple(instance_shape)))


def tensor_buffer_to_list_of_tensors(
    tensor: TensorBuffer, out_shapes: Sequence[Sequence[int]], out_dtypes: Sequence[torch.dtype]
) -> tuple[torch.Tensor, ...]:
    """Return a tensor for each cell, in the cell's shape.

    out_shapes limit the number of elements; out_dtypes must match the dtypes of the cells.

    ValueError if the three lengths differ. RuntimeError for a cell that is larger or of another dtype.
    """
    _need_buffer("tensor_buffer_to_list_of_tensors", tensor)
    if not len(tensor.cells) == len(out_shapes) == len(out_dtypes):
        raise ValueError(
            f"tensor_buffer_to_list_of_tensors: {len(tensor.cells)} cells, {len(out_shapes)} out_shapes and"
            f" {len(out_dtypes)} out_dtypes must agree"
        )
    out = []
    for i, (cell, shape, dtype) in enumerate(zip(tensor.cells, out_shapes, out_dtypes)):
        if cell.dtype != to_numpy_dtype(dtype) or cell.size > int(np.prod(shape)):
            raise RuntimeError(
                f"tensor_buffer_to_list_of_tensors: cell {i} is {list(cell.shape)} of {cell.dtype}, asked for"
                f" at most {list(shape)} of {dtype}"
            )
        out.append(torch.from_numpy(np.array(cell, order="C")))
    return tuple(out)
