"""Record the batches of real OneFlow 0.9.0's GPTIndexedBinDataReader and COCOReader. Run with its
interpreter:

    ORACLE-PYTHON tests/golden/record_readers.py tests/golden/readers.json

The test makes the same files with make_tokens and make_coco. Cases avoid inputs for which OneFlow aborts:
reading after the last sample, and polygons of fewer than four points.
"""

import json
import os
import struct
import sys
import tempfile

import numpy as np

TOKENS = [  # file, batches, positional arguments, options
    ("text", 3, (4, 7, 2), {"shuffle": False}),
    ("text", 3, (2, 6, 2), {"shuffle": False, "split_sizes": [3, 1], "split_index": 0}),
    ("text", 2, (4, 4, 2), {"shuffle": True, "random_seed": 1}),
    ("text", 2, (4, 16, 8), {"shuffle": True, "random_seed": 2}),
    ("big", 5, (10, 24, 2), {"shuffle": True, "random_seed": 12345}),
    ("big", 61, (10, 61, 1), {"shuffle": True, "random_seed": 12345}),
    ("big", 62, (10, 62, 1), {"shuffle": True, "random_seed": 12345}),
]
COCO = [  # batches, batch size, options
    (10, 2, {"shuffle": False}),
    (10, 2, {"shuffle": False, "group_by_aspect_ratio": False}),
    (6, 2, {"shuffle": False, "remove_images_without_annotations": False, "group_by_aspect_ratio": False}),
    (9, 3, {"shuffle": True, "random_seed": 5}),
    (6, 4, {"shuffle": True, "random_seed": 6, "stride_partition": False}),
    (36, 1, {"shuffle": True, "random_seed": 5, "group_by_aspect_ratio": False}),
]


def write_tokens(prefix, documents, dtype=np.uint16, code=8):
    """A Megatron index: magic, version, element type, counts, sizes, byte offsets, document numbers; and the
    tokens.
    """
    sizes = [len(d) for d in documents]
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])) * np.dtype(dtype).itemsize
    with open("%s.idx" % prefix, "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1))
        file.write(
            np.array(sizes, np.int32).tobytes()
            + starts.astype(np.int64).tobytes()
            + np.arange(len(documents) + 1, dtype=np.int64).tobytes()
        )
    with open("%s.bin" % prefix, "wb") as file:
        for d in documents:
            file.write(np.array(d, dtype).tobytes())


def make_tokens(folder):
    write_tokens(
        os.path.join(folder, "text"), [list(range(0, 5)), list(range(10, 13)), list(range(20, 29)), [30]]
    )
    edges = np.cumsum([0, *np.random.RandomState(0).randint(1, 12, 40)])
    write_tokens(os.path.join(folder, "big"), [list(range(a, b)) for a, b in zip(edges, edges[1:])])


def make_coco(folder):
    """Ten images (files of bytes that no one decodes) from very wide to very tall; boxes, one too small, one
    a crowd.
    """
    images, annotations = [], []
    for i, (w, h) in enumerate(
        [(8, 6), (6, 8), (8, 8), (10, 4), (4, 10), (9, 6), (5, 9), (12, 6), (6, 6), (7, 6)]
    ):
        images.append({"id": 100 - i * 7, "width": w, "height": h, "file_name": "%d.jpg" % i})
        with open(os.path.join(folder, "%d.jpg" % i), "wb") as file:
            file.write(bytes([i] * (i + 1)))
        for j in range([1, 2, 0, 1, 3, 1, 2, 1, 2, 1][i]):
            x, y = j * 0.5, j * 0.25
            polygons = [[x, y, x + 1, y, x + 1, y + 2, x, y + 3], [x, y, x + 2.5, y + 2, x, y + 2, x, y + 1]][
                : 1 + j % 2
            ]
            annotations.append(
                {
                    "image_id": 100 - i * 7,
                    "category_id": [1, 3, 7][(i + j) % 3],
                    "bbox": [x, y, 2 + j, 3 + i * 0.5],
                    "segmentation": polygons,
                }
            )
    annotations.append(
        {
            "image_id": 100,
            "category_id": 3,
            "bbox": [0, 0, 1, 0.5],
            "segmentation": [[0, 0, 1, 0, 1, 1, 0, 1]],
        }
    )
    annotations.append(
        {
            "image_id": 93,
            "category_id": 3,
            "bbox": [0, 0, 4, 4],
            "iscrowd": 1,
            "segmentation": {"counts": [1, 2], "size": [2, 2]},
        }
    )
    for k, item in enumerate(annotations):
        item.update(
            {"id": k + 1, "iscrowd": item.get("iscrowd", 0), "area": item["bbox"][2] * item["bbox"][3]}
        )
    with open(os.path.join(folder, "annotations.json"), "w") as file:
        json.dump(
            {
                "images": images,
                "annotations": annotations,
                "categories": [{"id": c, "name": str(c)} for c in (1, 3, 7)],
            },
            file,
        )


def coco_reader(flow, folder, batch, options):
    return flow.nn.COCOReader(os.path.join(folder, "annotations.json"), folder, batch, **options)


def main(path):
    import oneflow as flow

    folder = tempfile.mkdtemp()
    make_tokens(folder)
    make_coco(folder)
    recorded = {"tokens": [], "coco": []}
    for name, batches, arguments, options in TOKENS:
        reader = flow.nn.GPTIndexedBinDataReader(os.path.join(folder, name), *arguments, **options)
        recorded["tokens"].append([reader().numpy().tolist() for _ in range(batches)])
    for batches, size, options in COCO:
        reader = coco_reader(flow, folder, size, options)
        recorded["coco"].append([[t.numpy().tolist() for t in reader()[1:3]] for _ in range(batches)])
    with open(path, "w") as file:
        json.dump(recorded, file)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
