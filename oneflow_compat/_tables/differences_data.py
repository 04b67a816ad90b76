"""Differences of files, data and one_embedding; merged into `differences.DIFFERENCES`."""

_OE = "oneflow.one_embedding"

DATA = {
    "save-layout": {
        "names": ["oneflow.save", "oneflow.load"],
        "oneflow": (
            "0.9 writes a folder, 1.0 one pickle (a folder with save_as_external_data); load builds any"
            " object the file names"
        ),
        "here": (
            "one file in torch's format by default, OneFlow's folder with save_as_external_data (or where the"
            " path is a folder), its pickle with layout='pickle'; load is safe unless weights_only=False;"
            " CRC-32s are checked; saving is atomic"
        ),
        "reason": (
            "torch.load, this load, and OneFlow's load (which reads torch's files where torch is installed)"
            " all open the default; nothing runs on loading"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/files/test_save.py::test_which_layout",
    },
    "save-parameter-flag": {
        "names": ["oneflow.save", "oneflow.load"],
        "oneflow": "a frozen Parameter comes back with requires_grad=True",
        "here": "it stays frozen (a key that OneFlow does not look at)",
        "reason": "a frozen backbone should not start to train",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/files/test_save.py::test_frozen_parameters_and_one_tensor_twice",
    },
    "np-float64-collate": {
        "names": ["oneflow.utils.data.DataLoader", "oneflow.utils.data.default_collate"],
        "oneflow": "numpy float64 scalars are collated to float32 (torch: float64)",
        "here": "OneFlow's rule; torch's after set_dialect('torch')",
        "reason": "labels and scores computed with numpy keep the dtype a OneFlow model expects",
        "severity": {"oneflow": "superset", "torch": "changes numbers"},
        "test": "tests/data/test_loader.py::test_default_collate",
    },
    "sampler-init": {
        "names": ["oneflow.utils.data.Sampler"],
        "oneflow": "Sampler(data_source), and subclasses pass it on",
        "here": (
            "a subclass of torch's Sampler that accepts the argument; torch's samplers are instances of it"
        ),
        "reason": "turns an error into a result",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/data/test_loader.py::test_samplers",
    },
    "utils-vision": {
        "names": ["oneflow.utils.vision"],
        "oneflow": "transforms and data sets of 0.5, later moved to the package flowvision",
        "here": "flowvision's own objects; an error names the package where it is not installed",
        "reason": "one implementation, kept by others",
        "severity": {"oneflow": "superset", "torch": "superset"},
        "test": "tests/data/test_hub_vision.py::test_mnist_from_files",
    },
    "reader-in-graph": {
        "names": [
            "oneflow.nn.OFRecordReader",
            "oneflow.nn.OFRecordImageDecoder",
            "oneflow.nn.CropMirrorNormalize",
            "oneflow.nn.CoinFlip",
        ],
        "oneflow": "readers and decoders may be part of nn.Graph's build()",
        "here": (
            "they may, as host operators of the program; between them only their own outputs, unchanged, may"
            " pass (another tensor is an error), and they do not run ahead of the program"
        ),
        "reason": (
            "records and images are no tensors; only what leaves the last of them is part of the program"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/data/test_ofrecord.py::test_pipeline_inside_a_graph",
    },
    "random-crop-stream": {
        "names": [
            "oneflow.nn.CoinFlip",
            "oneflow.nn.OFRecordImageDecoderRandomCrop",
            "oneflow.nn.OFRecordImageGpuDecoderRandomCropResize",
        ],
        "oneflow": "flips and windows from its own random streams",
        "here": (
            "repeatable by random_seed, of the same distribution, but other ones; the order of records is"
            " OneFlow's"
        ),
        "reason": "the distribution is what is documented",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/data/test_ofrecord.py::test_random_crops",
    },
    "record-padding": {
        "names": ["oneflow.nn.OFRecordRawDecoder"],
        "oneflow": (
            "dim1_varying_length leaves what is behind the values uninitialised, and a bytes field that is"
            " too short is read beyond its end"
        ),
        "here": "zeros behind the values; too few bytes are an error",
        "reason": "uninitialised memory is a defect",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/data/test_ofrecord.py::test_values",
    },
    "batch-align-layout": {
        "names": ["oneflow.nn.image.batch_align"],
        "oneflow": (
            "in eager mode values lie as for the largest image of the batch, under the declared shape: mixed"
            " up unless both agree"
        ),
        "here": "each image in the upper left corner of the declared shape",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/data/test_ofrecord.py::test_decoded_images_are_oneflows",
    },
    "one-embedding-store": {
        "names": [
            f"{_OE}.make_device_mem_store_options",
            f"{_OE}.make_cached_host_mem_store_options",
            f"{_OE}.make_cached_ssd_store_options",
        ],
        "oneflow": "rows on the GPU, in host memory or in its own table on disk, cached on the GPU",
        "here": (
            "rows in host memory, or in LMDB with recent rows in host memory; looked-up rows go to the device"
            " of the ids"
        ),
        "reason": "a key-value store kept by others; the same rows whatever the store",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/embedding/test_one_embedding.py::test_disk_trains_as_memory",
    },
    "one-embedding-snapshots": {
        "names": [
            f"{_OE}.Embedding.save_snapshot",
            f"{_OE}.make_persistent_table_reader",
            f"{_OE}.make_persistent_table_writer",
        ],
        "oneflow": "its own binary format",
        "here": (
            "numpy files with a CRC-32 each, in a folder that appears whole or not at all; any store reads"
            " them"
        ),
        "reason": "OneFlow's format is tied to its table on disk",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/embedding/test_one_embedding.py::test_snapshots_move_between_stores",
    },
    "one-embedding-optimizers": {
        "names": [f"{_OE}.Optimizer"],
        "oneflow": "SGD, Adam, Adagrad, FTRL on rows",
        "here": "the same and AdamW; nesterov, dampening, amsgrad and other optimizers are an error",
        "reason": "a row keeps the states of these formulas",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/embedding/test_one_embedding.py::test_wrong_optimizers",
    },
    "one-embedding-shuffle": {
        "names": [f"{_OE}.MultiTableEmbedding", f"{_OE}.MultiTableMultiColumnEmbedding"],
        "oneflow": "rows are spread over ranks",
        "here": "one rank; more are an error",
        "reason": "no rows move between processes",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/embedding/test_one_embedding.py::test_more_ranks_are_refused",
    },
}
