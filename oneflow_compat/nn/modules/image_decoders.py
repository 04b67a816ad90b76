"""Images of records: decoding, random crops, normalization."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ..._data import fields, images
from ..._data.buffers import TensorBuffer
from ..._kernels.image import crop_mirror_normalize
from .record_sources import Decoder, MadeOnce, from_reader_of, seed_or_fresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._data.buffers import RecordBatch


__all__ = [
    "CropMirrorNormalize",
    "OFRecordImageDecoder",
    "OFRecordImageDecoderRandomCrop",
    "OFRecordImageGpuDecoderRandomCropResize",
]


def _decode_field(record: Any, name: str, color_space: str) -> np.ndarray:
    return images.decode(fields.one_bytes(record, name), color_space, f"{record.where}: field {name!r}")


class OFRecordImageDecoder(Decoder):
    """An image field of records, a TensorBuffer of uint8 (height, width, channels); color_space BGR, RGB or
    GRAY.

    An image is decoded when the next stage asks for it; a corrupt one raises there, naming file and offset.
    """

    def __init__(self, blob_name: str, color_space: Literal["BGR", "RGB", "GRAY"] = "BGR") -> None:
        super().__init__()
        self.blob_name, self.color_space = blob_name, images.check_color_space(color_space)

    def forward(self, input: RecordBatch) -> TensorBuffer:
        batch = fields.need_records("OFRecordImageDecoder", input)
        makers = [
            functools.partial(_decode_field, record, self.blob_name, self.color_space)
            for record in batch.cells
        ]
        return from_reader_of(batch, TensorBuffer.lazy(makers, batch.shape))


class OFRecordImageDecoderRandomCrop(Decoder):
    """An image field, each image cropped to a random window: a share `random_area` of its area, width/height
    in `random_aspect_ratio`.

    The windows are not those of OneFlow for the same random_seed (difference row random-crop-stream).
    """

    def __init__(
        self,
        blob_name: str,
        color_space: Literal["BGR", "RGB", "GRAY"] = "BGR",
        num_attempts: int = 10,
        random_seed: int | None = None,
        random_area: Sequence[float] = [0.08, 1.0],
        random_aspect_ratio: Sequence[float] = [0.75, 1.333333],
    ) -> None:
        super().__init__()
        self.blob_name, self.color_space, self.num_attempts = (
            blob_name,
            images.check_color_space(color_space),
            num_attempts,
        )
        self.random_area, self.random_aspect_ratio = (
            _pair("random_area", random_area),
            _pair("random_aspect_ratio", random_aspect_ratio),
        )
        self.random_seed = random_seed
        self._random: MadeOnce[np.random.Generator] = MadeOnce()

    def forward(self, input: RecordBatch) -> Any:
        batch = fields.need_records("OFRecordImageDecoderRandomCrop", input)
        decode_and_crop = lambda record, drawn: self._crop(
            _decode_field(record, self.blob_name, self.color_space), drawn
        )
        makers = [
            functools.partial(decode_and_crop, *pair)
            for pair in zip(batch.cells, self._draw(len(batch.cells)))
        ]
        return from_reader_of(batch, TensorBuffer.lazy(makers, batch.shape))

    def _draw(self, count: int) -> list[list[float]]:
        """Each image's random numbers, so that the windows do not depend on which thread is first."""
        return self._random.get(self._generator).random((count, 2 * self.num_attempts + 2)).tolist()

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(seed_or_fresh(self.random_seed))

    def _crop(self, image: np.ndarray, drawn: Sequence[float]) -> np.ndarray:
        top, left, height, width = images.random_crop_window(
            *image.shape[:2], drawn, self.random_area, self.random_aspect_ratio
        )
        return image[top : top + height, left : left + width]


def _pair(name: str, value: Sequence[float]) -> tuple[float, float]:
    low, high = value
    if not 0 < low <= high:
        raise ValueError(f"{name} must be two numbers 0 < low <= high, found {value!r}")
    return float(low), float(high)


class OFRecordImageGpuDecoderRandomCropResize(OFRecordImageDecoderRandomCrop):
    """Decode (from a TensorBuffer of bytes), random crop, resize to one size: uint8 (batch, height, width,
    3), RGB.

    Works on the host in threads; num_workers, warmup_size and max_num_pixels size OneFlow's GPU decoder and
    are not used.
    """

    def __init__(
        self,
        target_width: int,
        target_height: int,
        num_attempts: int = 10,
        seed: int = 0,
        random_area: Sequence[float] = [0.08, 1.0],
        random_aspect_ratio: Sequence[float] = [0.75, 1.333333],
        num_workers: int = 3,
        warmup_size: int = 6400,
        max_num_pixels: int = 67108864,
    ) -> None:
        super().__init__("", "RGB", num_attempts, seed, random_area, random_aspect_ratio)
        self.size = (target_width, target_height)

    def forward(self, input: Any) -> torch.Tensor:
        out = np.empty((len(input.cells), *reversed(self.size), 3), np.uint8)
        decode_and_resize = lambda data, origin, drawn, to: images.resize(
            self._crop(images.decode(data.tobytes(), "RGB", origin), drawn), *self.size, out=to
        )
        drawn = self._draw(len(input.cells))
        images.parallel(decode_and_resize, input.cells, input.cell_origins(), drawn, out)
        return self._place(torch.from_numpy(out), input)


class CropMirrorNormalize(Decoder):
    """Crop a window, mirror left-right where `mirror` is 1, subtract mean, divide by std: (batch, channels,
    height, width).

    Takes a uint8 tensor (batch, height, width, channels) or a TensorBuffer of such images, and mirror, an
    int8 tensor (batch,) or None. crop_h, crop_w of 0 keep the size; crop_pos_y, crop_pos_x in 0..1 say where
    the window lies. mean and std have one number per channel or one for all. output_layout="NHWC" is
    deprecated in OneFlow, which warns and gives NCHW; so does this.

    ValueError unless crop_pos_y and crop_pos_x are from 0 to 1.
    """

    def __init__(
        self,
        color_space: Literal["BGR", "RGB", "GRAY"] = "BGR",
        output_layout: str = "NCHW",
        crop_h: int = 0,
        crop_w: int = 0,
        crop_pos_y: float = 0.5,
        crop_pos_x: float = 0.5,
        mean: Sequence[float] = [0.0],
        std: Sequence[float] = [1.0],
        output_dtype: torch.dtype = torch.float,
    ) -> None:
        super().__init__()
        if output_layout != "NCHW":
            import warnings

            warnings.warn(
                "CropMirrorNormalize: output_layout is deprecated and has no effect; the output is NCHW",
                stacklevel=2,
            )
        if not (0 <= crop_pos_y <= 1 and 0 <= crop_pos_x <= 1):
            raise ValueError(
                f"CropMirrorNormalize: crop_pos_y and crop_pos_x must be in 0..1, found {crop_pos_y} and"
                f" {crop_pos_x}"
            )
        self.channels = images.CHANNELS[images.check_color_space(color_space)]
        self.crop, self.position, self.output_dtype = (crop_h, crop_w), (crop_pos_y, crop_pos_x), output_dtype
        self._mean = self._per_channel("mean", mean)
        self._scale = (1 / np.asarray(self._per_channel("std", std), np.float32)).tolist()

    def _per_channel(self, name: str, values: Sequence[float]) -> list[float]:
        if len(values) not in (1, self.channels):
            raise ValueError(
                f"CropMirrorNormalize: {name} has {len(values)} numbers for {self.channels} channels; give"
                f" one or {self.channels}"
            )
        return list(values) * (self.channels // len(values))

    def forward(self, input: torch.Tensor | TensorBuffer, mirror: torch.Tensor | None = None) -> torch.Tensor:
        cells = input.cells if isinstance(input, TensorBuffer) else input.detach()
        if mirror is not None:
            if mirror.numel() != len(cells):
                raise ValueError(
                    f"CropMirrorNormalize: {mirror.numel()} mirror flags for {len(cells)} images"
                )
            mirror = (mirror.detach().cpu().reshape(-1) != 0).to(torch.int8)
        height, width = self.crop[0] or cells[0].shape[0], self.crop[1] or cells[0].shape[1]
        # numpy asks for huge pages
        out = torch.from_numpy(np.empty((len(cells), self.channels, height, width), np.float32))
        if isinstance(cells, torch.Tensor):
            self._normalize(cells.cpu(), mirror, out)
        else:
            flags = [None] * len(cells) if mirror is None else mirror.split(1)
            images.parallel(
                lambda cell, flag, to: self._normalize(torch.from_numpy(cell)[None], flag, to),
                cells,
                flags,
                out.split(1),
            )
        return self._place(out.to(self.output_dtype), input)

    def _normalize(self, batch: torch.Tensor, mirror: torch.Tensor | None, out: torch.Tensor) -> None:
        _, rows, columns, channels = batch.shape
        height, width = out.shape[2:]
        if rows < height or columns < width or channels != self.channels:
            raise ValueError(
                f"CropMirrorNormalize: an image of {rows}x{columns}x{channels} has no window of"
                f" {height}x{width}x{self.channels}"
            )
        top, left = int((rows - height) * self.position[0]), int((columns - width) * self.position[1])
        crop_mirror_normalize(batch, mirror, top, left, self._mean, self._scale, out)
