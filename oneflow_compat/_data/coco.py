"""COCO detection data sets: annotations and encoded images in batches."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .shuffle import MersenneTwister


def _read_annotations(path: str | os.PathLike[str]) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if missing := {"images", "annotations", "categories"} - set(content):
        raise ValueError(f"{path}: not a COCO annotation file: {', '.join(sorted(missing))} missing")
    return content


def _aspect(image: dict[str, Any]) -> int:
    """Return the aspect group of an image: 0 for landscape, 1 or more for portrait."""
    return image["height"] // image["width"]


class BatchStream:
    """Endless batches (images, ids, sizes, boxes, labels, polygon points, indices of the points)."""

    def __init__(
        self,
        annotation_file: str | os.PathLike[str],
        image_dir: str | os.PathLike[str],
        batch_size: int,
        shuffled: bool,
        seed: int,
        group_by_aspect_ratio: bool,
        remove_empty: bool,
        stride_partition: bool,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        content = _read_annotations(annotation_file)
        self._dir, self._batch_size, self._grouped = image_dir, batch_size, group_by_aspect_ratio
        self._seed = seed if shuffled else None
        categories = sorted(category["id"] for category in content["categories"])
        self._labels = {category: label for label, category in enumerate(categories, 1)}
        self._objects: dict[str, Any] = {}
        for annotation in content["annotations"]:
            if not annotation.get("iscrowd", 0):
                self._objects.setdefault(annotation["image_id"], []).append(annotation)
        images = sorted(content["images"], key=lambda i: i["id"])
        if remove_empty:
            images = [i for i in images if any(self._has_area(o) for o in self._objects.get(i["id"], ()))]
        share = -(-len(images) // ranks)
        self._images = images[rank::ranks] if stride_partition else images[rank * share : (rank + 1) * share]
        if not self._images:
            raise ValueError(
                f"{annotation_file}: no image is left (remove_images_without_annotations={remove_empty}, rank"
                f" {rank} of {ranks})"
            )

    @staticmethod
    def _has_area(item: Mapping[str, Any]) -> bool:
        return item["bbox"][2] > 1 and item["bbox"][3] > 1

    def _stream(self) -> Iterator[Any]:
        order = list(self._images)
        for epoch in itertools.count():
            if self._seed is not None:
                MersenneTwister(self._seed + epoch).shuffle(order)
            yield from order

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield batches. The image that has waited longest decides the group of the next batch."""
        stream = self._stream()
        waiting: list[dict[str, Any]] = []
        while True:
            batch: list[dict[str, Any]] = []
            rest: list[dict[str, Any]] = []
            for image in itertools.chain(waiting, stream):
                fits = not batch or not self._grouped or _aspect(image) == _aspect(batch[0])
                (batch if fits and len(batch) < self._batch_size else rest).append(image)
                if len(batch) == self._batch_size and len(batch) + len(rest) >= len(waiting):
                    break
            waiting = rest
            yield self._batch(batch)

    def _batch(self, images: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
        loaded = [self._encoded(i) for i in images]
        ids, sizes = [i["id"] for i in images], [(i["height"], i["width"]) for i in images]
        return (loaded, ids, sizes, *zip(*[self._annotations(i) for i in images]))

    def _encoded(self, image: dict[str, Any]) -> np.ndarray:
        with open(os.path.join(self._dir, image["file_name"]), "rb") as file:
            return np.frombuffer(file.read(), np.uint8)

    def _annotations(self, image: dict[str, Any]) -> tuple[np.ndarray, ...]:
        boxes, labels, points, indices = [], [], [], []
        objects = [o for o in self._objects.get(image["id"], ()) if self._has_area(o)]
        for k, item in enumerate(objects):
            x, y, w, h = item["bbox"]
            boxes.append((x, y, min(x + w, image["width"]) - 1, min(y + h, image["height"]) - 1))
            labels.append(self._labels[item["category_id"]])
            segments = item.get("segmentation", [])
            for j, polygon in enumerate(segments if isinstance(segments, list) else ()):
                for p in range(len(polygon) // 2):
                    points.append(polygon[2 * p : 2 * p + 2])
                    indices.append((p, j, k))
        array = lambda rows, columns, dtype: np.array(rows, dtype).reshape(-1, columns)
        return (
            array(boxes, 4, np.float32),
            np.array(labels, np.int32),
            array(points, 2, np.float32),
            array(indices, 3, np.int32),
        )
