"""Differences of files, data and one_embedding."""

_OE = "oneflow.one_embedding"

DATA = {
    "save-layout": {
        "names": ["oneflow.save", "oneflow.load"],
        "oneflow": (
            "0.9 writes a folder, 1.0 one pickle (a folder with save_as_external_data); load builds any"
            " object the file names"
        ),
        "here": (
            "one file in torch's format by default, OneFlow's folder with save_as_external_data (or if the"
            " path is a folder), its pickle with layout='pickle'; load is safe unless weights_only=False,"
            " and constructs the layers of torch.nn unless weights_only=True; CRC-32s are checked; saving is"
            " atomic; a file object is read by read(), never by readinto()"
        ),
        "reason": (
            "torch.load, oneflow.load and the original OneFlow (which reads torch's files if torch is"
            " installed) all open the default; loading runs no code"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/files/test_save.py::test_save_writes_a_folder_only_on_request",
    },
    "save-parameter-flag": {
        "names": ["oneflow.save", "oneflow.load"],
        "oneflow": "a frozen Parameter comes back with requires_grad=True",
        "here": "it stays frozen (stored under a key that OneFlow ignores)",
        "reason": "a frozen backbone should stay frozen",
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
        "oneflow": "Sampler(data_source), and subclasses pass the argument on",
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
        "here": "flowvision's objects; if the package is not installed, an error names it",
        "reason": "flowvision maintains the implementation",
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
            "allowed, as host operators of the program; they accept only unchanged outputs of each other"
            " (a call that gives them another tensor runs in eager mode), and do not prefetch"
        ),
        "reason": (
            "records and images are not tensors; only the results of the last stage are part of the program"
        ),
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/data/test_record_images.py::test_pipeline_inside_a_graph",
    },
    "random-crop-stream": {
        "names": [
            "oneflow.nn.CoinFlip",
            "oneflow.nn.OFRecordImageDecoderRandomCrop",
            "oneflow.nn.OFRecordImageGpuDecoderRandomCropResize",
        ],
        "oneflow": "flips and crop windows from OneFlow's random streams",
        "here": (
            "other random values of the same distribution, repeatable with random_seed; the order of"
            " records is OneFlow's"
        ),
        "reason": "only the distribution is documented",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/data/test_record_images.py::test_random_crops",
    },
    "record-padding": {
        "names": ["oneflow.nn.OFRecordRawDecoder"],
        "oneflow": (
            "dim1_varying_length leaves the memory after the values uninitialized, and a bytes field that"
            " is too short is read beyond its end"
        ),
        "here": "zeros after the values; too few bytes are an error",
        "reason": "reading uninitialized memory is a defect",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/data/test_ofrecord.py::test_values",
    },
    "batch-align-layout": {
        "names": ["oneflow.nn.image.batch_align"],
        "oneflow": (
            "in eager mode values are laid out for the largest image of the batch but have the declared"
            " shape, so they are scrambled unless both agree"
        ),
        "here": "each image is in the upper left corner of the declared shape",
        "reason": "a defect of OneFlow 0.9.0",
        "severity": {"oneflow": "changes numbers", "torch": "superset"},
        "test": "tests/data/test_record_images.py::test_decoded_images_are_oneflows",
    },
    "one-embedding-store": {
        "names": [
            f"{_OE}.make_device_mem_store_options",
            f"{_OE}.make_cached_host_mem_store_options",
            f"{_OE}.make_cached_ssd_store_options",
        ],
        "oneflow": "rows are on the GPU, in host memory or in OneFlow's table on disk, cached on the GPU",
        "here": (
            "rows are in host memory, or in LMDB with recent rows in host memory; looked-up rows go to the"
            " device of the ids"
        ),
        "reason": "LMDB is maintained elsewhere; every store gives the same rows",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/embedding/test_embedding_training.py::test_disk_trains_as_memory",
    },
    "one-embedding-snapshots": {
        "names": [
            f"{_OE}.Embedding.save_snapshot",
            f"{_OE}.make_persistent_table_reader",
            f"{_OE}.make_persistent_table_writer",
        ],
        "oneflow": "a binary format of OneFlow",
        "here": (
            "numpy files, each with a CRC-32, in a folder that is written atomically; any store reads them"
        ),
        "reason": "OneFlow's format is tied to its table on disk",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/embedding/test_embedding_stores.py::test_snapshots_move_between_stores",
    },
    "one-embedding-optimizers": {
        "names": [f"{_OE}.Optimizer"],
        "oneflow": "SGD, Adam, Adagrad and FTRL for rows",
        "here": "the same and AdamW; nesterov, dampening, amsgrad and other optimizers are an error",
        "reason": "rows store the states of these optimizers",
        "severity": {"oneflow": "cosmetic", "torch": "superset"},
        "test": "tests/embedding/test_embedding_training.py::test_optimizers_that_do_not_fit_are_refused",
    },
    "one-embedding-shuffle": {
        "names": [f"{_OE}.MultiTableEmbedding", f"{_OE}.MultiTableMultiColumnEmbedding"],
        "oneflow": "rows are distributed over ranks",
        "here": "one rank; more are an error",
        "reason": "the exchange of rows between processes is not implemented",
        "severity": {"oneflow": "breaks", "torch": "superset"},
        "test": "tests/embedding/test_one_embedding.py::test_more_ranks_are_refused",
    },
}
