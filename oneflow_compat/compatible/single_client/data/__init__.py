"""flow.data: readers and decoders inside job functions.

They use the pipeline of oneflow.nn (OFRecordReader and so on).
"""

from ._codecs import (
    BlobConf,
    ImageCodec,
    ImagePreprocessor,
    ImageResizePreprocessor,
    NormByChannelPreprocessor,
    RawCodec,
    decode_ofrecord,
)
from ._mnist import load_mnist
from ._readers import (
    ImageDecoderRandomCropResize,
    MegatronGPTMMapDataLoader,
    OFRecordBytesDecoder,
    OFRecordImageDecoder,
    OFRecordImageDecoderRandomCrop,
    OFRecordRawDecoder,
    OneRecDecoder,
    coco_reader,
    decode_random,
    image_decoder_random_crop_resize,
    megatron_gpt_mmap_data_loader,
    ofrecord_bytes_decoder,
    ofrecord_image_classification_reader,
    ofrecord_image_decoder,
    ofrecord_image_decoder_random_crop,
    ofrecord_loader,
    ofrecord_raw_decoder,
    ofrecord_reader,
    onerec_decoder,
    onerec_reader,
)

__all__ = [
    "BlobConf",
    "ImageCodec",
    "ImageDecoderRandomCropResize",
    "ImagePreprocessor",
    "ImageResizePreprocessor",
    "MegatronGPTMMapDataLoader",
    "NormByChannelPreprocessor",
    "OFRecordBytesDecoder",
    "OFRecordImageDecoder",
    "OFRecordImageDecoderRandomCrop",
    "OFRecordRawDecoder",
    "OneRecDecoder",
    "RawCodec",
    "coco_reader",
    "decode_ofrecord",
    "decode_random",
    "image_decoder_random_crop_resize",
    "load_mnist",
    "megatron_gpt_mmap_data_loader",
    "ofrecord_bytes_decoder",
    "ofrecord_image_classification_reader",
    "ofrecord_image_decoder",
    "ofrecord_image_decoder_random_crop",
    "ofrecord_loader",
    "ofrecord_raw_decoder",
    "ofrecord_reader",
    "onerec_decoder",
    "onerec_reader",
]
