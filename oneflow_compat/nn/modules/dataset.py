"""Readers and decoders of data files as modules: oneflow.nn.OFRecordReader, OFRecordImageDecoder,
CropMirrorNormalize, ...

They work on the host; with `placement` and `sbp` their tensors are global. Inside nn.Graph's build()
they become part of the program (`_data/ingraph.py`).
"""

from __future__ import annotations

import itertools
import numbers
import os
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ... import _processes
from ..._data import fields, records, shuffle
from ..._data.buffers import RecordBatch, TensorBuffer, to_numpy_dtype
from ..._data.coco import BatchStream
from ..._data.gpt import SampleStream, TokenFile
from ..._global.tensor import local_shard
from .image_decoders import (
    CropMirrorNormalize,
    OFRecordImageDecoder,
    OFRecordImageDecoderRandomCrop,
    OFRecordImageGpuDecoderRandomCropResize,
)
from .onerec import OneRecReader, decode_onerec, read_onerec
from .record_sources import Decoder, MadeOnce, Source, from_reader_of, seed_or_fresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


__all__ = [
    "OFRecordReader",
    "OfrecordReader",
    "OFRecordRawDecoder",
    "OfrecordRawDecoder",
    "OFRecordBytesDecoder",
    "OFRecordImageDecoder",
    "OFRecordImageDecoderRandomCrop",
    "OFRecordImageGpuDecoderRandomCropResize",
    "CropMirrorNormalize",
    "CoinFlip",
    "GPTIndexedBinDataReader",
    "COCOReader",
    "OneRecReader",
    "decode_onerec",
    "read_onerec",
]


class OFRecordReader(Source):
    """Batches of records from <ofrecord_dir>/<part_name_prefix><number>, without end and without a gap
    between epochs.

    data_part_num files are read; part_name_suffix_length pads their numbers with zeros. random_shuffle
    draws from a buffer of shuffle_buffer_size records; shuffle_after_epoch reorders the files from the
    second epoch on. Orders are real OneFlow's for the same random_seed (-1 or None: drawn from torch's
    generator). Under a launcher each rank reads its share of the files. on_corrupt="skip" leaves corrupt
    records out with a warning; "raise" (the default) is an error with file and offset.

    ValueError unless batch_size and data_part_num are positive.
    """

    def __init__(
        self,
        ofrecord_dir: str | os.PathLike[str],
        batch_size: int = 1,
        data_part_num: int = 1,
        part_name_prefix: str = "part-",
        part_name_suffix_length: int = -1,
        random_shuffle: bool = False,
        shuffle_buffer_size: int = 1024,
        shuffle_after_epoch: bool = False,
        random_seed: int | None = -1,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
        name: str | None = None,
        *,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> None:
        super().__init__(device, placement, sbp)
        if not all(isinstance(n, numbers.Integral) and n > 0 for n in (batch_size, data_part_num)):
            raise ValueError(
                "OFRecordReader: batch_size and data_part_num must be positive whole numbers, found"
                f" {batch_size!r} and {data_part_num!r}"
            )
        names = records.part_names(part_name_prefix, data_part_num, part_name_suffix_length)
        paths = [os.path.join(ofrecord_dir, n) for n in names]
        self.batch_size, self.ofrecord_dir = batch_size, ofrecord_dir
        self._stream = records.RecordStream(
            paths, shuffle_after_epoch, _processes.get_rank(), _processes.get_world_size(), on_corrupt
        )
        self._options = (random_shuffle, shuffle_buffer_size, random_seed)
        self._records: MadeOnce[Iterator[Any]] = MadeOnce()

    def forward(self) -> RecordBatch:
        batch = RecordBatch(itertools.islice(self._records.get(self._start), self.batch_size))
        batch.source = self
        return batch

    def _start(self) -> Iterator[Any]:
        shuffled, size, seed = self._options
        stream = iter(self._stream)
        return shuffle.ShuffleBuffer(stream, size, seed_or_fresh(seed)) if shuffled else stream

    @property
    def epoch(self) -> int:
        """Epochs finished by the stream (a shuffle buffer runs ahead of the batches)."""
        return self._stream.epoch


class OFRecordRawDecoder(Decoder):
    """A numeric field of records as a tensor (batch, *shape) of `dtype`.

    A list whose length is not that of `shape` is an error; truncate, auto_zero_padding or
    dim1_varying_length cut it or fill it up with zeros. Bytes are read as numbers of one byte each.
    """

    def __init__(
        self,
        blob_name: str,
        shape: int | Sequence[int],
        dtype: torch.dtype,
        dim1_varying_length: bool = False,
        truncate: bool = False,
        auto_zero_padding: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.blob_name, self.shape, self.dtype = blob_name, tuple(np.atleast_1d(shape).tolist()), dtype
        self.pad = bool(dim1_varying_length or truncate or auto_zero_padding)

    def forward(self, input: RecordBatch) -> torch.Tensor:
        batch = fields.need_records("OFRecordRawDecoder", input)
        return self._place(fields.numeric(batch, self.blob_name, self.shape, self.dtype, self.pad), batch)


class OFRecordBytesDecoder(Decoder):
    """The bytes of a field, a TensorBuffer of uint8 arrays."""

    def __init__(self, blob_name: str, name: str | None = None) -> None:
        super().__init__()
        self.blob_name = blob_name

    def forward(self, input: RecordBatch) -> TensorBuffer:
        batch = fields.need_records("OFRecordBytesDecoder", input)
        return from_reader_of(batch, fields.raw_bytes(batch, self.blob_name))


class CoinFlip(Source):
    """An int8 tensor (batch_size,) of ones with `probability`, else zeros; a given random_seed repeats the
    same flips.

    With `placement` and `sbp`, batch_size counts the flips of all ranks together.

    The flips are not those of OneFlow for the same random_seed (difference row random-crop-stream).

    ValueError unless `probability` is from 0 to 1.
    """

    def __init__(
        self,
        batch_size: int = 1,
        random_seed: int | None = None,
        probability: float = 0.5,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__(device, placement, sbp)
        if not 0 <= probability <= 1:
            raise ValueError(f"CoinFlip: probability must be between 0 and 1, found {probability}")
        self.batch_size, self.probability, self.random_seed = batch_size, probability, random_seed
        self._random: MadeOnce[torch.Generator] = MadeOnce()

    def forward(self) -> torch.Tensor:
        flips = (
            torch.rand(self.batch_size, generator=self._random.get(self._generator)) < self.probability
        ).to(torch.int8)
        return self.to_destination(
            flips if self.placement is None else local_shard(flips, self.placement, self.sbp)
        )

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(seed_or_fresh(self.random_seed))


class GPTIndexedBinDataReader(Source):
    """Token sequences (batch_size, seq_length + 1) from Megatron's <prefix>.idx and <prefix>.bin, without
    end.

    num_samples per epoch; documents are joined and cut every seq_length tokens, neighbours sharing one token.
    split_sizes and split_index pick a share of the documents. shuffle reorders documents and samples each
    epoch;
    the first epoch's order is real OneFlow's for the same random_seed (which ends there).
    """

    def __init__(
        self,
        data_file_prefix: str | os.PathLike[str],
        seq_length: int,
        num_samples: int,
        batch_size: int,
        dtype: torch.dtype = torch.int64,
        shuffle: bool = True,
        random_seed: int | None = None,
        split_sizes: Sequence[int] | None = None,
        split_index: int | None = None,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__(device, placement, sbp)

        self.batch_size, self.seq_length, self._dtype = batch_size, seq_length, to_numpy_dtype(dtype)
        tokens = TokenFile(data_file_prefix)
        self._samples = iter(
            SampleStream(
                tokens,
                seq_length,
                num_samples,
                shuffle,
                seed_or_fresh(random_seed),
                split_sizes,
                split_index,
                _processes.get_rank(),
                _processes.get_world_size(),
            )
        )

    def forward(self) -> torch.Tensor:
        rows = np.stack([next(self._samples) for _ in range(self.batch_size)])
        return self.to_destination(torch.from_numpy(rows.astype(self._dtype)))


class COCOReader(Source):
    """Detection batches of a COCO annotation file, without end.

    Gives (image, image_id, image_size, gt_bbox, gt_label, gt_segm, gt_segm_index): a TensorBuffer of encoded
    image bytes, int64 ids, int32 (height, width), and TensorBuffers of boxes (n, 4 float32: x1, y1, x2, y2),
    labels (n int32, contiguous from 1), polygon points (m, 2 float32) and their (point, polygon, object)
    numbers (m, 3 int32).
    group_by_aspect_ratio makes batches of images whose height // width is the same. Orders are real
    OneFlow's.
    """

    def __init__(
        self,
        annotation_file: str | os.PathLike[str],
        image_dir: str | os.PathLike[str],
        batch_size: int,
        shuffle: bool = True,
        random_seed: int | None = None,
        group_by_aspect_ratio: bool = True,
        remove_images_without_annotations: bool = True,
        stride_partition: bool = True,
        device: torch.device | str | int | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__(device, placement, sbp)

        self._batches = iter(
            BatchStream(
                annotation_file,
                image_dir,
                batch_size,
                shuffle,
                seed_or_fresh(random_seed),
                group_by_aspect_ratio,
                remove_images_without_annotations,
                stride_partition,
                _processes.get_rank(),
                _processes.get_world_size(),
            )
        )

    def forward(self) -> tuple[Any, ...]:
        images_, ids, sizes, *rest = next(self._batches)
        encoded = TensorBuffer([data for data, _ in images_])
        encoded.origins = [path for _, path in images_]
        return (
            encoded,
            self.to_destination(torch.tensor(ids)),
            self.to_destination(torch.tensor(sizes, dtype=torch.int32)),
            *map(TensorBuffer, rest),
        )


OfrecordReader, OfrecordRawDecoder = OFRecordReader, OFRecordRawDecoder
