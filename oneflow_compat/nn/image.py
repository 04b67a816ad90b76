"""oneflow.nn.image: modules on batches of images (TensorBuffer of numpy arrays, height x width x
channels).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from .._data import images
from .._data.buffers import TensorBuffer, to_numpy_dtype
from .._data.ingraph import Stage
from .modules.record_sources import from_reader_of, placed_by_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["Resize", "batch_align", "decode", "flip", "normalize"]


def _need(module: str, value: object) -> TensorBuffer:
    if not isinstance(value, TensorBuffer):
        raise TypeError(f"nn.image.{module}: expected a TensorBuffer of images, found {type(value).__name__}")
    return value


def _made_of(buffer: TensorBuffer, cells: Sequence[np.ndarray]) -> TensorBuffer:
    return from_reader_of(buffer, TensorBuffer(cells, buffer.shape))


class Resize(Stage):
    """Resize each image: to one size, or one side with the aspect ratio kept.

    Gives (images, scale, new_size).

    target_size=(width, height): images is one tensor (batch, height, width, channels), new_size None.
    keep_aspect_ratio with target_size an int for the resize_side ("shorter" or "longer"), the other side
    bounded by max_size or min_size: images is a TensorBuffer, new_size an int32 tensor (batch, 2) of width
    and height. scale is float32 (batch, 2): new width and height over old. interpolation_type: auto,
    bilinear, nearest_neighbor, bicubic, area. Older arguments: color_space, interp_type, resize_x, resize_y,
    resize_shorter.
    """

    def __init__(
        self,
        target_size: int | Sequence[int] | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        keep_aspect_ratio: bool = False,
        resize_side: Literal["shorter", "longer"] = "shorter",
        channels: int = 3,
        dtype: torch.dtype | None = None,
        interpolation_type: str = "auto",
        name: str | None = None,
        color_space: str | None = None,
        interp_type: str | None = None,
        resize_shorter: int = 0,
        resize_x: int = 0,
        resize_y: int = 0,
    ) -> None:
        super().__init__()
        if color_space is not None:
            channels = images.CHANNELS[images.check_color_space(color_space)]
        if interp_type is not None:
            interpolation_type = {"Linear": "bilinear", "NN": "nearest_neighbor", "Cubic": "bicubic"}.get(
                interp_type, interp_type
            )
        if resize_x > 0 and resize_y > 0:
            target_size, keep_aspect_ratio = (resize_x, resize_y), False
        if resize_shorter > 0:
            target_size, keep_aspect_ratio, resize_side = resize_shorter, True, "shorter"
        self.interpolation, self.keep = images.check_interpolation(interpolation_type), keep_aspect_ratio
        self.dtype = torch.uint8 if dtype is None else dtype
        self.target_size = self._checked_size(target_size, keep_aspect_ratio, resize_side)
        self.bounds = (min_size or 0, max_size or 0)
        self.longer, self.channels = resize_side == "longer", channels

    @staticmethod
    def _checked_size(target_size: Any, keep_aspect_ratio: bool, resize_side: str) -> Any:
        """Return the target size: one side with the aspect ratio kept, (width, height) otherwise."""
        if not keep_aspect_ratio:
            if not isinstance(target_size, (list, tuple)) or len(target_size) != 2:
                raise ValueError(f"Resize: target_size is (width, height), found {target_size!r}")
            return target_size
        if isinstance(target_size, (list, tuple)) and len(target_size) == 1:
            target_size = target_size[0]
        if not isinstance(target_size, int) or resize_side not in ("shorter", "longer"):
            raise ValueError(
                "Resize with keep_aspect_ratio: target_size is an int and resize_side shorter or longer;"
                f" found {target_size!r}, {resize_side!r}"
            )
        return target_size

    def forward(self, input: TensorBuffer) -> tuple[Any, torch.Tensor, torch.Tensor | None]:
        makers = _need("Resize", input).makers()
        fixed = (
            None
            if self.keep
            else np.empty((len(makers), *reversed(self.target_size), self.channels), np.uint8)
        )
        done = images.parallel(self._one, makers, [None] * len(makers) if fixed is None else fixed)
        scale = placed_by_reader(
            torch.tensor([[n[0] / o[0], n[1] / o[1]] for _, o, n in done], dtype=torch.float32), input
        )
        dtype = to_numpy_dtype(self.dtype)
        if fixed is not None:
            return placed_by_reader(torch.from_numpy(fixed.astype(dtype, copy=False)), input), scale, None
        out = [cell.astype(dtype, copy=False) for cell, _, _ in done]
        return (
            _made_of(input, out),
            scale,
            placed_by_reader(torch.tensor([n for _, _, n in done], dtype=torch.int32), input),
        )

    def _one(
        self, make: Callable[[], np.ndarray], target: np.ndarray | None
    ) -> tuple[np.ndarray | None, tuple[int, int], tuple[int, int]]:
        """(resized image or None when it went to target, old size, new size); sizes are (width, height)."""
        cell = make()
        rows, columns, channels = cell.shape
        if channels != self.channels:
            raise ValueError(f"Resize: channels is {self.channels}, found an image of {cell.shape}")
        new = (
            images.keep_aspect_size(columns, rows, self.target_size, *self.bounds, self.longer)
            if target is None
            else tuple(self.target_size)
        )
        out = images.resize(cell, *new, self.interpolation, target)
        return out if target is None else None, (columns, rows), new


class batch_align(Stage):
    """Images of different sizes as one tensor (batch, *shape), each in the upper left corner of zeros.

    shape is (height, width, channels), at least the largest image; alignment, to which OneFlow rounds the
    sizes it uses
    inside, does not change the result here.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, alignment: int) -> None:
        super().__init__()
        self.shape, self.dtype, self.alignment = tuple(shape), dtype, alignment

    def forward(self, input: TensorBuffer) -> torch.Tensor:
        cells = _need("batch_align", input).cells
        out = np.zeros((len(cells), *self.shape), to_numpy_dtype(self.dtype))
        for target, cell in zip(out, cells):
            if any(c > s for c, s in zip(cell.shape, self.shape)):
                raise ValueError(f"batch_align: an image of {cell.shape} does not fit in {self.shape}")
            target[: cell.shape[0], : cell.shape[1], : cell.shape[2]] = cell
        return placed_by_reader(torch.from_numpy(out.reshape(tuple(input.shape) + self.shape)), input)


class decode(Stage):
    """Encoded bytes (a TensorBuffer of uint8 arrays) to images of `dtype`."""

    def __init__(
        self, dtype: torch.dtype = torch.uint8, color_space: Literal["BGR", "RGB", "GRAY"] = "BGR"
    ) -> None:
        super().__init__()
        self.dtype, self.color_space = to_numpy_dtype(dtype), images.check_color_space(color_space)

    def forward(self, input: TensorBuffer) -> TensorBuffer:
        buffer = _need("decode", input)
        decode_cell = lambda cell, origin: images.decode(cell.tobytes(), self.color_space, origin).astype(
            self.dtype, copy=False
        )
        return _made_of(input, images.parallel(decode_cell, buffer.cells, buffer.cell_origins()))


class flip(Stage):
    """Flip each image by its code: 0 not, 1 left-right, 16 upside down, 17 both."""

    _STEPS = {0: (1, 1), 1: (1, -1), 16: (-1, 1), 17: (-1, -1)}

    def forward(self, images: TensorBuffer, flip_code: int | torch.Tensor) -> TensorBuffer:
        cells = _need("flip", images).cells
        codes = [flip_code] * len(cells) if isinstance(flip_code, int) else flip_code.reshape(-1).tolist()
        if len(codes) != len(cells) or not set(codes) <= set(self._STEPS):
            raise ValueError(
                f"nn.image.flip: one code of {sorted(self._STEPS)} per image, found {codes} for {len(cells)}"
                " images"
            )
        return _made_of(
            images,
            [
                np.ascontiguousarray(c[:: self._STEPS[f][0], :: self._STEPS[f][1]])
                for c, f in zip(cells, codes)
            ],
        )


class normalize(Stage):
    """(image - mean) / std per channel, on float images."""

    def __init__(self, std: Sequence[float], mean: Sequence[float]) -> None:
        super().__init__()
        self.std, self.mean = np.asarray(std, np.float32), np.asarray(mean, np.float32)

    def forward(self, input: TensorBuffer) -> TensorBuffer:
        return _made_of(input, [(c - self.mean) / self.std for c in _need("normalize", input).cells])
