"""Images per second of the OFRecord training pipeline: read, decode, resize, flip, crop, normalise, label.

    python tests/benchmarks/ofrecord.py --make /tmp/records          # 512 JPEGs of about 400x350 pixels, once
    python tests/benchmarks/ofrecord.py /tmp/records                 # this package
    ORACLE-PYTHON tests/benchmarks/ofrecord.py /tmp/records          # real OneFlow, same program and records
    ... --pipeline random      random crops (training) instead of whole images (evaluation)
    ... --no-opencv            this package with Pillow and torch alone

Prints one line of JSON: images per second and per second of CPU time, each the best of several runs, after
one to warm up.
"""

import argparse
import json
import os
import time

import numpy as np


def make(folder, count=512):
    import io

    from PIL import Image

    from oneflow.utils.data import OFRecordWriter

    rng = np.random.RandomState(0)
    with OFRecordWriter(os.path.join(folder, "part-0")) as out:
        for k in range(count):
            h, w = rng.randint(300, 400), rng.randint(350, 450)
            y, x = np.mgrid[0:h, 0:w]
            picture = np.stack(
                [np.sin(x / (9 + k % 7)) * 90 + 128, np.cos(y / 13) * 90 + 120, (x + y * 2) % 251], -1
            )
            picture += rng.rand(h // 8 + 1, w // 8 + 1, 3).repeat(8, 0).repeat(8, 1)[:h, :w] * 40
            data = io.BytesIO()
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(data, "JPEG", quality=90)
            out.write({"encoded": data.getvalue(), "class/label": k % 1000})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--pipeline", choices=["whole", "random"], default="whole")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--no-opencv", action="store_true")
    options = parser.parse_args()
    if options.make:
        return make(options.folder)

    import oneflow as flow

    real = not hasattr(flow, "set_dialect")
    if not real:
        from oneflow._data import images

        if options.no_opencv:
            images.opencv = lambda: None
    nn = flow.nn
    reader = nn.OFRecordReader(
        options.folder, batch_size=options.batch_size, data_part_num=1, random_shuffle=False
    )
    label = (
        nn.OFRecordRawDecoder("class/label", shape=(), dtype=flow.int32)
        if not real
        else nn.OFRecordRawDecoder("class/label", shape=(1,), dtype=flow.int32)
    )
    if options.pipeline == "random":
        decode = nn.OFRecordImageDecoderRandomCrop("encoded", color_space="RGB", random_seed=1)
    else:
        decode = nn.OFRecordImageDecoder("encoded", color_space="RGB")
    resize = nn.image.Resize(target_size=[224, 224], interpolation_type="bilinear")
    coin = nn.CoinFlip(batch_size=options.batch_size, random_seed=1)
    normalise = nn.CropMirrorNormalize(
        color_space="RGB",
        output_layout="NCHW",
        mean=[123.68, 116.779, 103.939],
        std=[58.393, 57.12, 57.375],
        output_dtype=flow.float,
    )
    if real:
        normalise = nn.CropMirrorNormalize(
            color_space="RGB",
            crop_h=224,
            crop_w=224,
            mean=[123.68, 116.779, 103.939],
            std=[58.393, 57.12, 57.375],
            output_dtype=flow.float,
        )

    def run():
        start, cpu = time.perf_counter(), time.process_time()
        total = None
        for _ in range(options.batches):
            records = reader()
            x = normalise(resize(decode(records))[0], coin())
            y = label(records)
            total = (float(x[0, 0, 0, 0]), int(y.reshape(-1)[-1]))  # wait for the values
        count = options.batch_size * options.batches
        return count / (time.perf_counter() - start), count / (time.process_time() - cpu), total

    run()
    wall, cpu, _ = (max(values) for values in zip(*[run() for _ in range(options.runs)]))
    decoder = (
        "real OneFlow " + flow.__version__ if real else ("opencv" if images.opencv() else "pillow and torch")
    )
    print(
        json.dumps(
            {
                "library": decoder,
                "pipeline": options.pipeline,
                "images_per_second": round(wall, 1),
                "images_per_cpu_second": round(cpu, 1),
                "cpus": os.cpu_count(),
            }
        )
    )


if __name__ == "__main__":
    main()
