"""The oldest way to declare OFRecord fields: decode_ofrecord(dir, [BlobConf(...), ...])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import image, random
from . import _readers


class ImagePreprocessor:
    """ "bgr2rgb" or "mirror"."""

    def __init__(self, preprocessor: str) -> None:
        if preprocessor.lower() not in ("bgr2rgb", "mirror"):
            raise ValueError(f'ImagePreprocessor: "bgr2rgb" or "mirror", found {preprocessor!r}')
        self.preprocessor = preprocessor.lower()

    def is_rgb(self) -> bool:
        return self.preprocessor == "bgr2rgb"

    def is_mirror(self) -> bool:
        return self.preprocessor == "mirror"


class ImageResizePreprocessor:
    """Resize to width and height."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height


class ImageCodec:
    """An encoded image, with preprocessors."""

    def __init__(self, image_preprocessors: Sequence[Any] | None = None) -> None:
        self.image_preprocessors = [
            p for p in (image_preprocessors or []) if isinstance(p, ImagePreprocessor)
        ]
        self.resize = next(
            (p for p in (image_preprocessors or []) if isinstance(p, ImageResizePreprocessor)), None
        )

    def color_space(self) -> str:
        return "RGB" if any(p.is_rgb() for p in self.image_preprocessors) else "BGR"

    def do_mirror(self) -> bool:
        return any(p.is_mirror() for p in self.image_preprocessors)

    def do_resize(self) -> bool:
        return self.resize is not None


class RawCodec:
    """A numeric field."""

    def __init__(self, truncate: bool = False, auto_zero_padding: bool = False) -> None:
        self.truncate, self.auto_zero_padding = truncate, auto_zero_padding


class NormByChannelPreprocessor:
    """(x - mean) / std per channel."""

    def __init__(
        self,
        mean_values: Sequence[float],
        std_values: Sequence[float] = (1.0, 1.0, 1.0),
        data_format: str = "channels_last",
    ) -> None:
        self.mean_values, self.std_values, self.data_format = list(mean_values), list(std_values), data_format

    def output_layout(self) -> str:
        return "NHWC" if self.data_format == "channels_last" else "NCHW"


class BlobConf:
    """One field: its name, shape, dtype, codec (RawCodec, ImageCodec) and preprocessors."""

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        codec: ImageCodec | RawCodec,
        preprocessors: Sequence[Any] | None = None,
    ) -> None:
        self.name, self.shape, self.dtype, self.codec = name, tuple(shape), dtype, codec
        self.preprocessors = list(preprocessors or [])

    def decode_blob(self, input_blob: Any, batch_size: int) -> torch.Tensor:
        """The field of every record of a reader."""
        if isinstance(self.codec, RawCodec):
            return _readers.OFRecordRawDecoder(
                input_blob,
                self.name,
                self.shape,
                self.dtype,
                False,
                self.codec.truncate,
                self.codec.auto_zero_padding,
            )
        blob = _readers.OFRecordImageDecoder(input_blob, self.name, self.codec.color_space())
        if self.codec.do_resize():
            blob = image.resize(blob, target_size=(self.codec.resize.width, self.codec.resize.height))[0]
        norm = next((p for p in self.preprocessors if isinstance(p, NormByChannelPreprocessor)), None)
        mirror = None
        if self.codec.do_mirror():
            mirror = random.coin_flip(batch_size)
        if norm is None:
            return image.crop_mirror_normalize(
                blob, mirror, self.codec.color_space(), "NHWC", output_dtype=self.dtype
            )
        return image.crop_mirror_normalize(
            blob,
            mirror,
            self.codec.color_space(),
            norm.output_layout(),
            mean=norm.mean_values,
            std=norm.std_values,
            output_dtype=self.dtype,
        )


def decode_ofrecord(
    ofrecord_dir: str,
    blobs: Sequence[Any],
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    shuffle: bool = False,
    buffer_size: int = 1024,
    name: str | None = None,
) -> tuple[torch.Tensor, ...]:
    """One blob per BlobConf from an OFRecord data set."""
    records = _readers.ofrecord_reader(
        ofrecord_dir,
        batch_size,
        data_part_num,
        part_name_prefix,
        part_name_suffix_length,
        shuffle,
        buffer_size,
    )
    return tuple(conf.decode_blob(records, batch_size) for conf in blobs)
