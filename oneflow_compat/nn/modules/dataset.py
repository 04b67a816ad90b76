"""Readers and decoders of data files as modules: oneflow.nn.OFRecordReader, OFRecordImageDecoder,
CropMirrorNormalize, ...

They work on the host; with `placement` and `sbp` their tensors are global. Inside nn.Graph's build()
they become part of the program (`_data/ingraph.py`).
"""

from __future__ import annotations

import functools
import itertools
import numbers
import os

import numpy as np
import torch

from ... import _processes
from ..._data import fields, images, onerec, records, shuffle
from ..._data.buffers import RecordBatch, TensorBuffer, to_numpy_dtype
from ..._data.ingraph import Promised, Stage
from ..._global.tensor import part_of_rank
from ..._kernels.image import crop_mirror_normalize

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
]


class Source(Stage):
    """Base of the modules that make data: where it goes."""

    def __init__(self, device=None, placement=None, sbp=None):
        super().__init__()
        if placement is not None and device is not None:
            raise ValueError(f"{type(self).__name__}: give device or placement and sbp, not both")
        if (placement is None) != (sbp is None):
            raise ValueError(f"{type(self).__name__}: placement and sbp go together")
        self.device, self.placement, self.sbp = device, placement, sbp

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.placement is not None:
            return tensor.to_global(placement=self.placement, sbp=self.sbp)
        return tensor if self.device is None else tensor.to(self.device)


def _seed(random_seed) -> int:
    """The seed, or a fresh one for None and -1."""
    return shuffle.fresh_seed() if random_seed is None or random_seed == -1 else int(random_seed)


class OFRecordReader(Source):
    """Batches of records from <ofrecord_dir>/<part_name_prefix><number>, without end and without a gap
    between epochs.

    data_part_num files are read; part_name_suffix_length pads their numbers with zeros. random_shuffle
    draws from a buffer of shuffle_buffer_size records; shuffle_after_epoch reorders the files from the
    second epoch on. Orders are real OneFlow's for the same random_seed (-1 or None: drawn from torch's
    generator). Under a launcher each rank reads its share of the files. on_corrupt="skip" leaves corrupt
    records out with a warning; "raise" (the default) is an error with file and offset.
    """

    def __init__(
        self,
        ofrecord_dir,
        batch_size=1,
        data_part_num=1,
        part_name_prefix="part-",
        part_name_suffix_length=-1,
        random_shuffle=False,
        shuffle_buffer_size=1024,
        shuffle_after_epoch=False,
        random_seed=-1,
        device=None,
        placement=None,
        sbp=None,
        name=None,
        *,
        on_corrupt="raise",
    ):
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
        self._records = None

    def forward(self) -> RecordBatch:
        if self._records is None:
            shuffled, size, seed = self._options
            stream = iter(self._stream)
            self._records = shuffle.ShuffleBuffer(stream, size, _seed(seed)) if shuffled else stream
        batch = RecordBatch(itertools.islice(self._records, self.batch_size))
        batch.source = self
        return batch

    @property
    def epoch(self) -> int:
        """Epochs finished by the stream (a shuffle buffer runs ahead of the batches)."""
        return self._stream.epoch


class OneRecReader(Source):
    """Batches of OneRec messages from `files`, a TensorBuffer for oneflow.decode_onerec, without end and
    without a gap between epochs.

    shuffle draws from a buffer of shuffle_buffer_size records (shuffle_mode "instance") or batches ("batch");
    shuffle_after_epoch reorders the files in each epoch. Orders are real OneFlow's for the same random_seed.
    Digests are
    always checked, with verify_example the message too: CorruptRecord names file and offset. Needs
    flatbuffers and xxhash.
    """

    def __init__(
        self,
        files,
        batch_size,
        shuffle,
        shuffle_mode,
        random_seed=None,
        shuffle_buffer_size=1024,
        shuffle_after_epoch=False,
        verify_example=True,
        placement=None,
        sbp=None,
    ):
        super().__init__(None, placement, sbp)
        if shuffle_mode not in ("batch", "instance"):
            raise ValueError(f"OneRecReader: shuffle_mode is 'batch' or 'instance', found {shuffle_mode!r}")
        if batch_size < 1:
            raise ValueError(f"OneRecReader: batch_size must be positive, found {batch_size}")
        self.files, self.batch_size, self.shuffle_mode = list(files), batch_size, shuffle_mode
        self._stream = onerec.OneRecStream(
            self.files,
            shuffle_after_epoch,
            _processes.get_rank(),
            _processes.get_world_size(),
            verify_example,
        )
        self._options = (shuffle, shuffle_buffer_size, random_seed)
        self._batches = None

    def forward(self) -> TensorBuffer:
        if self._batches is None:
            self._batches = self._start(*self._options)
        batch = onerec.Batch(next(self._batches))
        batch.source = self
        return batch

    def _start(self, shuffled, size, seed):
        drawn = lambda stream: shuffle.ShuffleBuffer(stream, size, _seed(seed)) if shuffled else stream
        stream = iter(self._stream)
        if self.shuffle_mode == "instance":
            stream = drawn(stream)
        batches = iter(lambda: list(itertools.islice(stream, self.batch_size)), None)
        return batches if self.shuffle_mode == "instance" else drawn(batches)


class _Decoder(Source):
    def _place(self, tensor, batch):
        source = getattr(batch, "source", None)
        return tensor if source is None else source.place(tensor)


class OFRecordRawDecoder(_Decoder):
    """A numeric field of records as a tensor (batch, *shape) of `dtype`.

    A list whose length is not that of `shape` is an error; truncate, auto_zero_padding or
    dim1_varying_length cut it or fill it up with zeros. Bytes are read as numbers of one byte each.
    """

    def __init__(
        self,
        blob_name,
        shape,
        dtype,
        dim1_varying_length=False,
        truncate=False,
        auto_zero_padding=False,
        name=None,
    ):
        super().__init__()
        self.blob_name, self.shape, self.dtype = blob_name, tuple(np.atleast_1d(shape).tolist()), dtype
        self.pad = bool(dim1_varying_length or truncate or auto_zero_padding)

    def forward(self, input):
        batch = fields.need_records("OFRecordRawDecoder", input)
        return self._place(fields.numeric(batch, self.blob_name, self.shape, self.dtype, self.pad), batch)


class OFRecordBytesDecoder(_Decoder):
    """The bytes of a field, a TensorBuffer of uint8 arrays."""

    def __init__(self, blob_name, name=None):
        super().__init__()
        self.blob_name = blob_name

    def forward(self, input):
        batch = fields.need_records("OFRecordBytesDecoder", input)
        return _from(batch, fields.raw_bytes(batch, self.blob_name))


def _from(batch, buffer):
    """A buffer made of a batch; its tensors go where the reader says."""
    buffer.source = getattr(batch, "source", None)
    return buffer


def _decode_field(record, name, color_space):
    try:
        return images.decode(fields.one_bytes(record, name), color_space)
    except images.UndecodableImage as error:
        raise records.CorruptRecord(f"{record.where}: field {name!r} is {error}") from None


class OFRecordImageDecoder(_Decoder):
    """An image field of records, a TensorBuffer of uint8 (height, width, channels); color_space BGR, RGB or
    GRAY.

    An image is decoded when the next stage asks for it; a corrupt one raises there, naming file and offset.
    """

    def __init__(self, blob_name, color_space="BGR"):
        super().__init__()
        self.blob_name, self.color_space = blob_name, images.check_color_space(color_space)

    def forward(self, input):
        batch = fields.need_records("OFRecordImageDecoder", input)
        makers = [
            functools.partial(_decode_field, record, self.blob_name, self.color_space)
            for record in batch.cells
        ]
        return _from(batch, TensorBuffer.lazy(makers, batch.shape))


class OFRecordImageDecoderRandomCrop(_Decoder):
    """An image field, each image cropped to a random window: a share `random_area` of its area, width/height
    in `random_aspect_ratio`.

    The windows are not those of OneFlow for the same random_seed (difference row random-crop-stream).
    """

    def __init__(
        self,
        blob_name,
        color_space="BGR",
        num_attempts=10,
        random_seed=None,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[0.75, 1.333333],
    ):
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
        self.random_seed, self._random = random_seed, None

    def forward(self, input):
        batch = fields.need_records("OFRecordImageDecoderRandomCrop", input)
        decode_and_crop = lambda record, drawn: self._crop(
            _decode_field(record, self.blob_name, self.color_space), drawn
        )
        makers = [
            functools.partial(decode_and_crop, *pair)
            for pair in zip(batch.cells, self._draw(len(batch.cells)))
        ]
        return _from(batch, TensorBuffer.lazy(makers, batch.shape))

    def _draw(self, count):
        """Each image's random numbers, so that the windows do not depend on which thread is first."""
        if self._random is None:
            self._random = np.random.default_rng(_seed(self.random_seed))
        return self._random.random((count, 2 * self.num_attempts + 2)).tolist()

    def _crop(self, image, drawn):
        top, left, height, width = images.random_crop_window(
            *image.shape[:2], drawn, self.random_area, self.random_aspect_ratio
        )
        return image[top : top + height, left : left + width]


def _pair(name, value):
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
        target_width,
        target_height,
        num_attempts=10,
        seed=0,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[0.75, 1.333333],
        num_workers=3,
        warmup_size=6400,
        max_num_pixels=67108864,
    ):
        super().__init__("", "RGB", num_attempts, seed, random_area, random_aspect_ratio)
        self.size = (target_width, target_height)

    def forward(self, input):
        out = np.empty((len(input.cells), *reversed(self.size), 3), np.uint8)
        decode_and_resize = lambda data, drawn, to: images.resize(
            self._crop(images.decode(data.tobytes(), "RGB"), drawn), *self.size, out=to
        )
        images.parallel(decode_and_resize, input.cells, self._draw(len(input.cells)), out)
        return self._place(torch.from_numpy(out), input)


class CropMirrorNormalize(_Decoder):
    """Crop a window, mirror left-right where `mirror` is 1, subtract mean, divide by std: (batch, channels,
    height, width).

    Takes a uint8 tensor (batch, height, width, channels) or a TensorBuffer of such images, and mirror, an
    int8 tensor (batch,) or None. crop_h, crop_w of 0 keep the size; crop_pos_y, crop_pos_x in 0..1 say where
    the window lies. mean and std have one number per channel or one for all. output_layout="NHWC" is
    deprecated in OneFlow, which warns and gives NCHW; so does this.
    """

    def __init__(
        self,
        color_space="BGR",
        output_layout="NCHW",
        crop_h=0,
        crop_w=0,
        crop_pos_y=0.5,
        crop_pos_x=0.5,
        mean=[0.0],
        std=[1.0],
        output_dtype=torch.float,
    ):
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
        self._scale = (1 / np.float32(self._per_channel("std", std))).tolist()

    def _per_channel(self, name, values):
        if len(values) not in (1, self.channels):
            raise ValueError(
                f"CropMirrorNormalize: {name} has {len(values)} numbers for {self.channels} channels; give"
                f" one or {self.channels}"
            )
        return list(values) * (self.channels // len(values))

    def forward(self, input, mirror=None):
        cells = input.cells if isinstance(input, TensorBuffer) else input.detach()
        if mirror is not None:
            if mirror.numel() != len(cells):
                raise ValueError(
                    f"CropMirrorNormalize: {mirror.numel()} mirror flags for {len(cells)} images"
                )
            mirror = (mirror.detach().cpu().reshape(-1) != 0).to(torch.int8)
        height, width = self.crop[0] or cells[0].shape[0], self.crop[1] or cells[0].shape[1]
        out = torch.from_numpy(
            np.empty((len(cells), self.channels, height, width), np.float32)
        )  # numpy asks for huge pages
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

    def _normalize(self, batch, mirror, out):
        _, rows, columns, channels = batch.shape
        height, width = out.shape[2:]
        if rows < height or columns < width or channels != self.channels:
            raise ValueError(
                f"CropMirrorNormalize: an image of {rows}x{columns}x{channels} has no window of"
                f" {height}x{width}x{self.channels}"
            )
        top, left = int((rows - height) * self.position[0]), int((columns - width) * self.position[1])
        crop_mirror_normalize(batch, mirror, top, left, self._mean, self._scale, out)


class CoinFlip(Source):
    """An int8 tensor (batch_size,) of ones with `probability`, else zeros; a given random_seed repeats the
    same flips.

    With `placement` and `sbp`, batch_size counts the flips of all ranks together.

    The flips are not those of OneFlow for the same random_seed (difference row random-crop-stream).
    """

    def __init__(
        self, batch_size=1, random_seed=None, probability=0.5, device=None, placement=None, sbp=None
    ):
        super().__init__(device, placement, sbp)
        if not 0 <= probability <= 1:
            raise ValueError(f"CoinFlip: probability must be between 0 and 1, found {probability}")
        self.batch_size, self.probability, self.random_seed, self._random = (
            batch_size,
            probability,
            random_seed,
            None,
        )

    def forward(self):
        if self._random is None:
            self._random = torch.Generator().manual_seed(_seed(self.random_seed))
        flips = (torch.rand(self.batch_size, generator=self._random) < self.probability).to(torch.int8)
        return self.place(flips if self.placement is None else part_of_rank(flips, self.placement, self.sbp))


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
        data_file_prefix,
        seq_length,
        num_samples,
        batch_size,
        dtype=torch.int64,
        shuffle=True,
        random_seed=None,
        split_sizes=None,
        split_index=None,
        device=None,
        placement=None,
        sbp=None,
    ):
        super().__init__(device, placement, sbp)
        from ..._data.gpt import SampleStream, TokenFile

        self.batch_size, self.seq_length, self._dtype = batch_size, seq_length, to_numpy_dtype(dtype)
        tokens = TokenFile(data_file_prefix)
        self._samples = iter(
            SampleStream(
                tokens,
                seq_length,
                num_samples,
                shuffle,
                _seed(random_seed),
                split_sizes,
                split_index,
                _processes.get_rank(),
                _processes.get_world_size(),
            )
        )

    def forward(self):
        rows = np.stack([next(self._samples) for _ in range(self.batch_size)])
        return self.place(torch.from_numpy(rows.astype(self._dtype)))


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
        annotation_file,
        image_dir,
        batch_size,
        shuffle=True,
        random_seed=None,
        group_by_aspect_ratio=True,
        remove_images_without_annotations=True,
        stride_partition=True,
        device=None,
        placement=None,
        sbp=None,
    ):
        super().__init__(device, placement, sbp)
        from ..._data.coco import BatchStream

        self._batches = iter(
            BatchStream(
                annotation_file,
                image_dir,
                batch_size,
                shuffle,
                _seed(random_seed),
                group_by_aspect_ratio,
                remove_images_without_annotations,
                stride_partition,
                _processes.get_rank(),
                _processes.get_world_size(),
            )
        )

    def forward(self):
        images_, ids, sizes, *rest = next(self._batches)
        return (
            TensorBuffer(images_),
            self.place(torch.tensor(ids)),
            self.place(torch.tensor(sizes, dtype=torch.int32)),
            *map(TensorBuffer, rest),
        )


class _OneRecDecoder(_Decoder):
    def __init__(self, *options):
        super().__init__()
        self.options = options

    def forward(self, input):
        return self._place(onerec.decode(input, *self.options), input)


def decode_onerec(
    input, key, dtype, shape, is_dynamic=False, reshape=None, batch_padding=None
) -> torch.Tensor:
    """The field `key` of a batch of OneRec messages (what OneRecReader gives) as a tensor (batch, *shape).

    dtype: int8, int32, int64, float32 or float64, and the field must hold it. reshape (one -1 allowed) is
    applied to each
    record's value. batch_padding=[n, 0, ...] fills the first dimension up to n with zeros. is_dynamic lets
    the shape be
    the batch's own, of at most as many elements as `shape`. RuntimeError where a record does not fit, naming
    it.
    """
    decoder = _OneRecDecoder(key, dtype, shape, is_dynamic, reshape, batch_padding)
    if isinstance(input, Promised):  # inside build(): lives as long as the reader
        input.link.node.stage.__dict__.setdefault("_graph_decoders", []).append(decoder)
    return decoder(input)


_of_functions: dict = {}  # read_onerec's arguments -> reader


def read_onerec(
    files,
    batch_size,
    random_shuffle,
    shuffle_mode,
    shuffle_buffer_size=1024,
    shuffle_after_epoch=False,
    verify_example=True,
    placement=None,
    sbp=None,
) -> TensorBuffer:
    """The next batch of OneRec messages of `files` (OneFlow 0.5 and 0.6): calls with equal arguments go on
    with one OneRecReader.
    """
    options = (shuffle_mode, None, shuffle_buffer_size, shuffle_after_epoch, verify_example, placement, sbp)
    key = repr((list(files), batch_size, random_shuffle, options))
    if key not in _of_functions:
        _of_functions[key] = OneRecReader(files, batch_size, random_shuffle, *options)
    return _of_functions[key]()


OfrecordReader, OfrecordRawDecoder = OFRecordReader, OFRecordRawDecoder
