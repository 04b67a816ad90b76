"""The data pipeline: OFRecord files, their records, image decoding, batches of values of any shape.

`records` reads OFRecord files in OneFlow's order, `wire` has their protobuf encoding, and `shuffle` the
random engines behind that order. `onerec` reads OneRec files, `gpt` Megatron's token files, and `coco`
detection data sets. `fields` converts numeric and bytes fields to tensors, `images` decodes, crops and
resizes, and `buffers` has TensorBuffer.
"""
