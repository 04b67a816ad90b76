"""flow.detection: boxes and polygons of detection data, one tensor per image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..._errors import difference_hint
from ._functions.buffers import each_with

if TYPE_CHECKING:
    from typing import Any


def object_bbox_flip(
    bbox: Any, image_size: torch.Tensor, flip_code: torch.Tensor | int, name: str | None = None
) -> Any:
    """Boxes (n, 4) as (x1, y1, x2, y2) of an image flipped left-right (flip_code 1).

    image_size (batch, 2) is (height, width).
    """
    _left_right("object_bbox_flip", flip_code)

    def flip_boxes(boxes: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        left, top, right, bottom = boxes.unbind(-1)
        width = size[1].to(boxes.dtype)
        return torch.stack([width - right - 1, top, width - left - 1, bottom], -1)

    return each_with(bbox, image_size, flip_boxes)


def object_bbox_scale(bbox: Any, scale: Any, name: str | None = None) -> Any:
    """Boxes times the scale (batch, 2) as (height, width)."""

    def scale_boxes(boxes: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return boxes * torch.stack([factor[1], factor[0], factor[1], factor[0]]).to(boxes.dtype)

    return each_with(bbox, scale, scale_boxes)


def object_segmentation_polygon_flip(
    poly: Any, image_size: torch.Tensor, flip_code: int, name: str | None = None
) -> Any:
    """Points (n, 2) as (x, y) of an image flipped left-right."""
    _left_right("object_segmentation_polygon_flip", flip_code)

    def flip_polygon(points: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        x, y = points.unbind(-1)
        return torch.stack([size[1].to(points.dtype) - x, y], -1)

    return each_with(poly, image_size, flip_polygon)


def object_segmentation_polygon_scale(poly: Any, scale: torch.Tensor, name: str | None = None) -> Any:
    """Points times the scale (batch, 2) as (height, width)."""

    def scale_polygon(points: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return points * torch.stack([factor[1], factor[0]]).to(points.dtype)

    return each_with(poly, scale, scale_polygon)


def object_segmentation_polygon_to_mask(
    poly: Any, poly_index: Any, image_size: torch.Tensor, name: str | None = None
) -> Any:
    """int8 masks (objects, height, width) from points and their index (n, 3) = (point, polygon, object).

    A pixel belongs to an object if its center is inside one of the polygons of the object, by the even-odd
    rule. The job runs op by op.
    """
    pairs = each_with(
        poly, poly_index, lambda p, i: torch.cat([p.double(), i.double()], -1), needs_values=True
    )

    def object_segmentation_polygon_to_mask(rows: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        height, width = (int(s) for s in size)
        count = int(rows[:, 4].max()) + 1 if len(rows) else 0
        masks = torch.zeros(count, height, width, dtype=torch.int8)
        y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        for obj in range(count):
            own = rows[rows[:, 4] == obj]
            for contour in own[:, 3].unique():
                masks[obj] |= _inside(own[own[:, 3] == contour][:, :2], x, y).to(torch.int8)
        return masks

    return each_with(pairs, image_size, object_segmentation_polygon_to_mask, needs_values=True)


def _inside(points: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    inside = torch.zeros_like(x, dtype=torch.bool)
    for (x1, y1), (x2, y2) in zip(points.tolist(), points.roll(-1, 0).tolist()):
        if y1 != y2:
            crosses = (y1 > y) != (y2 > y)
            inside ^= crosses & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
    return inside


def _left_right(what: str, flip_code: torch.Tensor | int) -> None:
    if not isinstance(flip_code, int):
        raise NotImplementedError(
            f"{what}: flip_code must be the number 1 (left-right); a blob of codes is not supported"
            f" {difference_hint('legacy-bbox-flip')}"
        )
    if flip_code != 1:
        raise ValueError(f"{what}: only flip_code 1 (left-right) is defined, found {flip_code}")
