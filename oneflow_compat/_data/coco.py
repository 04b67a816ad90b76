"""COCO detection data sets: annotations and encoded images in batches."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._file_safety.errors import CheckpointError, named_errors
from .._file_safety.opening import open_regular
from .._file_safety.shown import shown
from .shuffle import MersenneTwister


def _read_annotations(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of an annotation file, of which every field that is read later has its type."""
    path = os.fspath(path)
    with open_regular(path) as file, named_errors(path):
        content = json.load(file)
        if type(content) is not dict or (missing := {"images", "annotations", "categories"} - set(content)):
            lacking = ", ".join(sorted(missing)) if type(content) is dict else "an object is"
            raise CheckpointError(f"not a COCO annotation file: {lacking} missing")
        for name, is_valid in (("images", _is_image), ("annotations", _is_object), ("categories", _has_id)):
            entries = content[name]
            if type(entries) is not list:
                raise CheckpointError(f"altered: {name} is no list")
            for entry in entries:
                if type(entry) is not dict or not is_valid(entry):
                    raise CheckpointError(f"altered: {name} has {shown(entry)}")
        known = {category["id"] for category in content["categories"]}
        for entry in content["annotations"]:
            if entry["category_id"] not in known:
                raise CheckpointError(
                    f"altered: an annotation has the category {shown(entry['category_id'])}"
                )
    return content


def _is_integer(value: object, least: int = -(2**63)) -> bool:
    return type(value) is int and least <= value < 2**63


def _has_id(entry: dict[str, Any]) -> bool:
    return _is_integer(entry.get("id"))


def _is_image(entry: dict[str, Any]) -> bool:
    name = entry.get("file_name")
    has_sizes = all(_is_integer(entry.get(k), 1) and entry[k] < 2**31 for k in ("height", "width"))
    return _has_id(entry) and has_sizes and type(name) is str and _stays_inside(name)


def _stays_inside(name: str) -> bool:
    """Whether a file name does not lead out of the folder of images."""
    parts = name.replace("\\", "/").split("/")
    return bool(name) and not os.path.isabs(name) and ".." not in parts and "\0" not in name


def _is_object(entry: dict[str, Any]) -> bool:
    segments = entry.get("segmentation", [])
    are_polygons = type(segments) is not list or all(map(_are_numbers, segments))
    box = entry.get("bbox", [])
    has_ids = _is_integer(entry.get("image_id")) and _is_integer(entry.get("category_id"))
    return has_ids and _are_numbers(box) and len(box) == 4 and are_polygons


def _are_numbers(values: Any) -> bool:
    return type(values) is list and all(type(v) is float or _is_integer(v) for v in values)


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

    def _encoded(self, image: dict[str, Any]) -> tuple[np.ndarray, str]:
        """Return (the bytes of an image, its path)."""
        path = os.path.join(self._dir, image["file_name"])
        with open_regular(path) as file:
            return np.frombuffer(file.read(), np.uint8), path

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
