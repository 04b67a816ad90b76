"""The data pipeline: OFRecord files, their records, image decoding, batches of values of any shape.

`wire` protobuf's encoding of records; `records` files of them, read in OneFlow's order; `onerec` the other
format; `shuffle` the
random engines that order comes from; `fields` numeric and bytes fields as tensors; `images` decoding,
cropping, resizing; `buffers` TensorBuffer; `gpt` Megatron's token files; `coco` detection data sets.
"""
