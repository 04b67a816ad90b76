"""Record the results of OneFlow 0.9.0's OFRecord pipeline for small record files. Run with its interpreter:

    ORACLE-PYTHON tests/golden/record_ofrecord.py tests/golden/ofrecord

The folder holds numbers/part-* (18 records in 3 files, 8 files of 2 for orders) and images/part-0 (4 JPEGs);
without them, `python tests/golden/record_ofrecord.py --make tests/golden/ofrecord` (ours) writes them first.
"""

import json
import os
import sys

import numpy as np

import oneflow as flow

nn = flow.nn


def make(folder):
    import io

    from PIL import Image

    from oneflow._data.records import RecordWriter

    for sub, shares in (
        ("numbers", [(0, 7), (7, 11), (11, 18)]),
        ("many", [(2 * i, 2 * i + 2) for i in range(8)]),
    ):
        for part, (a, b) in enumerate(shares):
            with RecordWriter(os.path.join(folder, sub, "part-%d" % part)) as out:
                for i in range(a, b):
                    out.write(
                        {
                            "x": np.float32([i + 0.25, -i - 0.75]),
                            "y": i,
                            "n": b"name%d" % (i % 10),
                            "l": np.arange(i) * 1000,
                            "d": np.float64([i / 3]),
                            "u": bytes([i, 200, 255]),
                        }
                    )
    rng = np.random.RandomState(0)
    with RecordWriter(os.path.join(folder, "images", "part-0")) as out:
        for k, (h, w) in enumerate([(48, 64), (60, 40), (33, 47), (50, 50)]):
            y, x = np.mgrid[0:h, 0:w]
            picture = (
                np.stack([np.sin(x / (5 + k)) * 100 + 128, np.cos(y / 7) * 90 + 120, (x * y) % 251], -1)
                + rng.rand(h, w, 3) * 20
            )
            data = io.BytesIO()
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(data, "JPEG", quality=90)
            out.write({"encoded": data.getvalue(), "class/label": k})


def main(folder):
    def order(sub, parts, batches, **options):
        reader = nn.OFRecordReader(os.path.join(folder, sub), batch_size=4, data_part_num=parts, **options)
        decoder = nn.OFRecordRawDecoder("y", shape=(1,), dtype=flow.int32)
        return [decoder(reader()).numpy().ravel().tolist() for _ in range(batches)]

    orders = []
    for options in (
        {},
        {"random_shuffle": True, "shuffle_buffer_size": 3, "random_seed": 5},
        {"random_shuffle": True, "random_seed": 5},
        {"shuffle_after_epoch": True},
        {
            "shuffle_after_epoch": True,
            "random_shuffle": True,
            "shuffle_buffer_size": 7,
            "random_seed": 12345678901,
        },
    ):
        for sub, parts in (("numbers", 3), ("numbers", 2), ("many", 8), ("many", 5)):
            orders.append([sub, parts, options, order(sub, parts, 25, **options)])
    values = []  # not dim1_varying_length: OneFlow leaves what is behind the values uninitialised
    for field, dtype, shape, options in (
        ("x", "float32", [2], {}),
        ("x", "float64", [2], {}),
        ("x", "int32", [2], {}),
        ("y", "float32", [1], {}),
        ("y", "int64", [1], {}),
        ("y", "uint8", [1], {}),
        ("d", "float64", [1], {}),
        ("d", "float32", [1], {}),
        ("n", "uint8", [5], {}),
        ("n", "float32", [4], {}),
        ("u", "uint8", [3], {}),
        ("u", "int32", [3], {}),
        ("u", "float32", [3], {}),
        ("l", "int64", [3], {"truncate": True}),
        ("l", "int64", [2], {"auto_zero_padding": True}),
        ("x", "float32", [1], {"truncate": True}),
    ):
        reader = nn.OFRecordReader(os.path.join(folder, "numbers"), batch_size=5, data_part_num=3)
        out = nn.OFRecordRawDecoder(field, shape=shape, dtype=getattr(flow, dtype), **options)(
            reader()
        ).numpy()
        values.append([field, dtype, shape, options, out.tolist()])
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump({"orders": orders, "values": values}, file)

    arrays = {}

    def decoded():
        return nn.OFRecordImageDecoder("encoded", color_space="RGB")(
            nn.OFRecordReader(os.path.join(folder, "images"), batch_size=4, data_part_num=1)()
        )

    arrays["decoded"] = nn.image.batch_align(shape=(64, 64, 3), dtype=flow.uint8, alignment=16)(
        decoded()
    ).numpy()
    for kind in ("auto", "bilinear", "nearest_neighbor", "bicubic", "area"):
        for name, size in (("down", (20, 24)), ("up", (100, 90))):
            image, scale, _ = nn.image.Resize(target_size=size, interpolation_type=kind)(decoded())
            arrays["resize/%s/%s" % (kind, name)] = image.numpy()
            arrays["scale/%s" % name] = scale.numpy()
    for name, options in (
        ("30", {"target_size": 30}),
        ("30-longer", {"target_size": 30, "resize_side": "longer"}),
        ("30-max35", {"target_size": 30, "max_size": 35}),
        ("30-longer-min25", {"target_size": 30, "resize_side": "longer", "min_size": 25}),
    ):
        _, scale, new_size = nn.image.Resize(keep_aspect_ratio=True, **options)(decoded())
        arrays["keep/%s/scale" % name], arrays["keep/%s/size" % name] = scale.numpy(), new_size.numpy()
    flags = flow.tensor([0, 1, 1, 0], dtype=flow.int8)
    for name, options in (
        ("centre", {"mean": [123.68, 116.779, 103.939], "std": [58.393, 57.12, 57.375]}),
        ("corner", {"crop_pos_y": 0.3, "crop_pos_x": 0.9, "mean": [10.0], "std": [2.0]}),
    ):
        module = nn.CropMirrorNormalize(color_space="RGB", crop_h=16, crop_w=18, **options)
        image = nn.image.Resize(target_size=(20, 24), interpolation_type="bilinear")(decoded())[0]
        arrays["cmn/%s" % name], arrays["cmn/%s/mirror" % name] = (
            module(image).numpy(),
            module(image, flags).numpy(),
        )
        arrays["cmn/%s/buffer" % name] = module(decoded(), flags).numpy()
    floats = nn.image.decode(color_space="RGB", dtype=flow.float)(
        nn.OFRecordBytesDecoder("encoded")(
            nn.OFRecordReader(os.path.join(folder, "images"), batch_size=4, data_part_num=1)()
        )
    )
    normal = nn.image.normalize(std=(102.9801, 115.9465, 122.7717), mean=(1.0, 2.0, 3.0))(floats)
    arrays["normalized"] = (
        nn.image.batch_align(shape=(64, 64, 3), dtype=flow.float, alignment=16)(normal)
        .numpy()
        .astype(np.float16)
    )
    np.savez_compressed(os.path.join(folder, "expected.npz"), **arrays)


if __name__ == "__main__":
    make(sys.argv[2]) if sys.argv[1] == "--make" else main(sys.argv[1])
