"""The data pipeline: OFRecord files, their records, image decoding, batches of values of any shape.

`wire` has protobuf's encoding of records, `records` the files of OFRecords, read in OneFlow's order, and
`onerec` those of OneRec. `shuffle` has the random engines of that order, `fields` makes tensors of numeric
and bytes fields, `images` decodes, crops and resizes, `buffers` has TensorBuffer, `gpt` reads Megatron's
token files,
`coco` detection data sets.
"""
