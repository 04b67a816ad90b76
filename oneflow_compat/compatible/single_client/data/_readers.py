"""Readers (a job gets the next batch in each call) and decoders of their records."""

from collections.abc import Sequence
from typing import Any

import torch

from ...._errors import unsupported
from ....nn.modules.onerec import decode_onerec
from .. import image
from .._functions import initializers as _initializers
from .._functions.orders import takes_older_orders
from .._jobs import context as _context
from .._jobs import devices as _devices
from .._jobs.feeds import feed
from .._jobs.host import module, need_host, source, today
from .._jobs.update import outside_capture


def _unsupported(what: str, instead: str) -> Any:
    return unsupported(what, "legacy-data-readers", instead)


def ofrecord_reader(
    ofrecord_dir: str,
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    random_shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    name: str | None = None,
) -> Any:
    """Batches of records from the part files of a folder, for the decoders below."""
    return source(
        "flow.data.ofrecord_reader",
        lambda: today("OFRecordReader")(
            ofrecord_dir,
            batch_size=batch_size,
            data_part_num=data_part_num,
            part_name_prefix=part_name_prefix,
            part_name_suffix_length=part_name_suffix_length,
            random_shuffle=random_shuffle,
            shuffle_buffer_size=shuffle_buffer_size,
            shuffle_after_epoch=shuffle_after_epoch,
        ),
    )


def ofrecord_loader(
    ofrecord_dir: str,
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    name: str | None = None,
) -> Any:
    return ofrecord_reader(
        ofrecord_dir,
        batch_size,
        data_part_num,
        part_name_prefix,
        part_name_suffix_length,
        shuffle,
        shuffle_buffer_size,
    )


def _dense(blob: Any, compute: Any) -> torch.Tensor:
    trace = blob.trace
    return feed(trace, lambda: torch.as_tensor(compute(blob.value())), _devices.current(trace.job))


@takes_older_orders("data.OFRecordRawDecoder")
def OFRecordRawDecoder(
    input_blob: Any,
    blob_name: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    dim1_varying_length: bool = False,
    truncate: bool = False,
    auto_zero_padding: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """The numeric field `blob_name` of every record, of shape (batch, *shape)."""
    decoder = module(
        "flow.data.OFRecordRawDecoder",
        lambda: today("OFRecordRawDecoder")(
            blob_name, shape, dtype, dim1_varying_length, truncate, auto_zero_padding
        ),
    )
    return _dense(need_host(input_blob, "OFRecordRawDecoder"), decoder)


def OFRecordBytesDecoder(input_blob: Any, blob_name: str, name: str | None = None) -> Any:
    decoder = module("flow.data.OFRecordBytesDecoder", lambda: today("OFRecordBytesDecoder")(blob_name))
    return need_host(input_blob, "OFRecordBytesDecoder").map(decoder)


def OFRecordImageDecoder(
    input_blob: Any, blob_name: str, color_space: str = "BGR", name: str | None = None
) -> Any:
    """The images of the field `blob_name`, uint8 (h, w, c), which may differ in size."""
    decoder = module(
        "flow.data.OFRecordImageDecoder", lambda: today("OFRecordImageDecoder")(blob_name, color_space)
    )
    return need_host(input_blob, "OFRecordImageDecoder").map(decoder)


def OFRecordImageDecoderRandomCrop(
    input_blob: Any,
    blob_name: str,
    color_space: str = "BGR",
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: Sequence[float] = [0.08, 1.0],
    random_aspect_ratio: Sequence[float] = [0.75, 1.333333],
    name: str = "OFRecordImageDecoderRandomCrop",
) -> Any:
    """Decode, keeping a random part of the area and aspect ratio given."""
    decoder = module(
        "flow.data.OFRecordImageDecoderRandomCrop",
        lambda: today("OFRecordImageDecoderRandomCrop")(
            blob_name,
            color_space=color_space,
            num_attempts=num_attempts,
            random_seed=seed,
            random_area=random_area,
            random_aspect_ratio=random_aspect_ratio,
        ),
    )
    return need_host(input_blob, "OFRecordImageDecoderRandomCrop").map(decoder)


def ImageDecoderRandomCropResize(
    input_blob: Any,
    target_width: int,
    target_height: int,
    num_attempts: Any = None,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    num_workers: Any = None,
    warmup_size: Any = None,
    max_num_pixels: Any = None,
    name: str | None = None,
) -> Any:
    """Decode encoded images (a bytes decoder's buffer), crop them at random and resize them.

    The result is uint8 (batch, h, w, 3), RGB.
    """
    buffer = image.decode(need_host(input_blob, "ImageDecoderRandomCropResize"), color_space="RGB")
    crops = image.random_crop(buffer, num_attempts or 10, seed, random_area, random_aspect_ratio)
    return image.resize(crops, target_size=(target_width, target_height))[0]


def ofrecord_image_classification_reader(
    ofrecord_dir: str,
    image_feature_name: str,
    label_feature_name: str,
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    random_shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    color_space: str = "BGR",
    decode_buffer_size_per_thread: int = 32,
    num_decode_threads_per_machine: Any = None,
    name: str | None = None,
) -> tuple[Any, ...]:
    """(images, labels int32 (batch, 1)) of an image classification data set."""
    records = ofrecord_reader(
        ofrecord_dir,
        batch_size,
        data_part_num,
        part_name_prefix,
        part_name_suffix_length,
        random_shuffle,
        shuffle_buffer_size,
        shuffle_after_epoch,
    )
    return OFRecordImageDecoder(records, image_feature_name, color_space), OFRecordRawDecoder(
        records, label_feature_name, (1,), torch.int32
    )


def decode_random(
    shape: Sequence[int],
    dtype: torch.dtype,
    batch_size: int = 1,
    initializer: Any = None,
    tick: Any = None,
    name: str | None = None,
) -> torch.Tensor:
    """Synthetic data: (batch_size, *shape) sampled from the initializer, the same in each call.

    Without an initializer the values are uniform in [0, 1).
    """
    trace = _context.require_trace("flow.data.decode_random")
    initializer = initializer or _initializers.random_uniform_initializer()
    key = ("random", trace.sources)
    trace.sources += 1
    pipeline = trace.job.pipeline
    if key not in pipeline:
        with outside_capture(trace):
            pipeline[key] = torch.empty((batch_size, *shape), dtype=dtype)
            _initializers.fill(pipeline[key], initializer)
    value = pipeline[key]

    return feed(trace, lambda: value, _devices.current(trace.job))


@takes_older_orders("data.coco_reader")
def coco_reader(
    annotation_file: str,
    image_dir: str,
    batch_size: int,
    shuffle: bool = True,
    random_seed: Any = None,
    group_by_aspect_ratio: bool = True,
    stride_partition: bool = True,
    remove_images_without_annotations: bool = True,
    name: str | None = None,
) -> tuple[Any, ...]:
    """COCO detection data.

    Returns (images, image id, image size, bounding boxes, labels, segmentations, segmentation index).
    """
    examples = source(
        "flow.data.coco_reader",
        lambda: today("COCOReader")(
            annotation_file,
            image_dir,
            batch_size,
            shuffle,
            random_seed,
            group_by_aspect_ratio,
            remove_images_without_annotations,
            stride_partition,
        ),
    )
    return tuple(examples.map(lambda value, i=i: value[i]) for i in range(7))


@takes_older_orders("data.MegatronGPTMMapDataLoader")
def MegatronGPTMMapDataLoader(
    data_file_prefix: str,
    seq_length: int,
    num_samples: int,
    batch_size: int,
    dtype: torch.dtype = torch.int64,
    shuffle: bool = True,
    random_seed: int | None = None,
    split_sizes: Any = None,
    split_index: Any = None,
    nd_sbp: Any = None,
    start_from_saved_progress: bool = False,
    name: str | None = None,
) -> torch.Tensor:
    """Batches (batch_size, seq_length + 1) of token ids from Megatron's indexed binary files."""
    if start_from_saved_progress:
        raise _unsupported(
            "MegatronGPTMMapDataLoader(start_from_saved_progress=True)", "Start the data anew."
        )
    kwargs = {}
    if split_sizes is not None:
        kwargs = dict(split_sizes=split_sizes, split_index=split_index)
    tokens = source(
        "flow.data.megatron_gpt_mmap_data_loader",
        lambda: today("GPTIndexedBinDataReader")(
            data_file_prefix, seq_length, num_samples, batch_size, dtype, shuffle, random_seed, **kwargs
        ),
    )
    return tokens.dense()


def onerec_reader(
    files: Sequence[str],
    batch_size: int = 1,
    random_shuffle: bool = False,
    shuffle_mode: str = "instance",
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    verify_example: bool = True,
    name: str | None = None,
) -> Any:
    """Batches of OneRec messages from `files`, for onerec_decoder."""
    return source(
        "flow.data.onerec_reader",
        lambda: today("OneRecReader")(
            files,
            batch_size,
            random_shuffle,
            shuffle_mode,
            shuffle_buffer_size=shuffle_buffer_size,
            shuffle_after_epoch=shuffle_after_epoch,
            verify_example=verify_example,
        ),
    )


def OneRecDecoder(
    input_blob: Any,
    key: str,
    dtype: torch.dtype,
    shape: Sequence[int],
    is_dynamic: bool = False,
    reshape: Any = None,
    batch_padding: Sequence[int] | None = None,
    name: str | None = None,
) -> torch.Tensor:
    """The field `key` of every message, of shape (batch, *shape)."""
    return _dense(
        need_host(input_blob, "OneRecDecoder"),
        lambda batch: decode_onerec(batch, key, dtype, shape, is_dynamic, reshape, batch_padding),
    )


ofrecord_raw_decoder = OFRecordRawDecoder
ofrecord_bytes_decoder = OFRecordBytesDecoder
ofrecord_image_decoder = OFRecordImageDecoder
ofrecord_image_decoder_random_crop = OFRecordImageDecoderRandomCrop
image_decoder_random_crop_resize = ImageDecoderRandomCropResize
megatron_gpt_mmap_data_loader = MegatronGPTMMapDataLoader
onerec_decoder = OneRecDecoder
