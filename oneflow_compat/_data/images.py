"""Images: decoding, random crops, resizing, on the host in a pool of threads.

Decoding and resizing use OpenCV if it is installed. The results are bitwise equal to OneFlow's, except that
bicubic results differ by at most one level. Without OpenCV, Pillow decodes (bitwise equal) and torch resizes
(within one level of OpenCV). Images are numpy uint8 arrays (height, width, channels).
"""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._file_safety.errors import CheckpointError
from .._file_safety.shown import reason, shown
from . import image_sizes
from .records import CorruptRecord

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


INTERPOLATIONS = ("auto", "bilinear", "nearest_neighbor", "bicubic", "area")
CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}


@functools.cache
def opencv() -> Any:
    """Return the module cv2, or None."""
    try:
        import cv2
    except ImportError:
        return None
    cv2.setNumThreads(1)  # images are processed in parallel by the pool below
    return cv2


_WORKERS = max(1, min(32, os.cpu_count() or 1))


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process. A forked DataLoader worker cannot use its parent's threads."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_WORKERS, thread_name_prefix="oneflow-images")


def parallel(function: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
    """Return [function(*args) for args in zip(*items)], computed in threads."""
    tasks = list(zip(*items))
    size = -(-len(tasks) // (2 * _WORKERS))  # two chunks for each thread, because images differ in size
    if len(tasks) < 2:
        return [function(*args) for args in tasks]
    parts = [tasks[i : i + size] for i in range(0, len(tasks), size)]
    results = _pool(os.getpid()).map(lambda part: [function(*args) for args in part], parts)
    return [image for part in results for image in part]


def check_color_space(color_space: str) -> str:
    """Return the color space, or raise if it is unknown."""
    if color_space not in CHANNELS:
        raise ValueError(f"color_space must be one of {', '.join(CHANNELS)}, found {color_space!r}")
    return color_space


# --------------------------------------------------------------------------- decoding
class UndecodableImage(CheckpointError):
    """The bytes are not an image that the installed library can read, or one of too many pixels."""


def _undecodable(data: bytes, why: str) -> UndecodableImage:
    return UndecodableImage(
        f"not an image that can be decoded ({why}): {len(data)} bytes, {shown(data[:8])}..."
    )


def decode(data: bytes, color_space: str = "BGR", origin: str | None = None) -> np.ndarray:
    """Return the image in JPEG, PNG, ... bytes, as (height, width, 3), or (height, width, 1) for GRAY.

    If it cannot be decoded, CorruptRecord names `origin`: the file, and the record in it. An image may have
    64 MiB of pixels, and 64 bytes of pixels for each of its bytes.
    """
    try:
        image_sizes.check_size(data)
        cv2 = opencv()
        return _decode_pillow(data, color_space) if cv2 is None else _decode_opencv(cv2, data, color_space)
    except ValueError as error:
        undecodable = _undecodable(data, reason(error))
    except UndecodableImage as error:
        undecodable = error
    if origin is None:
        raise undecodable from None
    raise CorruptRecord(f"{origin} is {undecodable}") from None


def _decode_opencv(cv2: Any, data: bytes, color_space: str) -> np.ndarray:
    # OpenCV 4.11 decodes to RGB as well
    direct = getattr(cv2, "IMREAD_COLOR_RGB", None) if color_space == "RGB" else None
    color = cv2.IMREAD_COLOR if direct is None else direct
    flag = cv2.IMREAD_GRAYSCALE if color_space == "GRAY" else color
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    except (cv2.error, MemoryError) as error:
        raise _undecodable(data, f"OpenCV: {reason(error)}") from None
    if image is None:
        raise _undecodable(data, "OpenCV")
    if color_space == "GRAY":
        return image[:, :, None]
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB) if color_space == "RGB" and direct is None else image


def _decode_pillow(data: bytes, color_space: str) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        raise ModuleNotFoundError(
            "decoding images needs opencv-python-headless or pillow, and neither is installed: pip install"
            " oneflow-compat[data]"
        ) from None
    try:
        encoded = Image.open(io.BytesIO(data), formats=image_sizes.PILLOW_FORMATS)
        image = encoded.convert("L" if color_space == "GRAY" else "RGB")
    except Exception as error:  # Pillow's readers of formats raise anything
        raise _undecodable(data, f"Pillow: {reason(error)}") from None
    array = np.asarray(image)
    if color_space == "GRAY":
        return array[:, :, None]
    return np.ascontiguousarray(array[:, :, ::-1]) if color_space == "BGR" else array


# --------------------------------------------------------------------------- cropping
def random_crop_window(
    height: int,
    width: int,
    sampled: Sequence[float],
    area: tuple[float, float],
    aspect_ratio: tuple[float, float],
) -> tuple[int, int, int, int]:
    """Return (top, left, height, width) of a crop with a random area and a random width/height ratio, like
    torchvision's RandomResizedCrop.

    sampled: random values in [0, 1), two for the position and two for each attempt. If no attempt fits, the
    crop is the largest that the ratios allow.
    """
    down, right, *sizes = sampled
    low, high = math.log(aspect_ratio[0]), math.log(aspect_ratio[1])
    for share, ratio in zip(sizes[::2], sizes[1::2]):
        target = height * width * (area[0] + share * (area[1] - area[0]))
        ratio = math.exp(low + ratio * (high - low))
        w, h = max(1, round(math.sqrt(target * ratio))), max(1, round(math.sqrt(target / ratio)))
        if w <= width and h <= height:
            break
    else:
        h, w = height, width
        if width / height > aspect_ratio[1]:
            w = max(1, int(height * aspect_ratio[1]))
        elif width / height < aspect_ratio[0]:
            h = max(1, int(width / aspect_ratio[0]))
    return int(down * (height - h + 1)), int(right * (width - w + 1)), h, w


# --------------------------------------------------------------------------- resizing
def check_interpolation(interpolation_name: str) -> str:
    """Return the name of the interpolation that an alias stands for, or raise if it is unknown."""
    interpolation_name = {"nearest": "nearest_neighbor", "cubic": "bicubic", "linear": "bilinear"}.get(
        interpolation_name, interpolation_name
    )
    if interpolation_name not in INTERPOLATIONS:
        raise ValueError(
            f"interpolation_type must be one of {', '.join(INTERPOLATIONS)}, found {interpolation_name!r}"
        )
    return interpolation_name


def resize(
    image: np.ndarray, width: int, height: int, interpolation: str = "bilinear", out: np.ndarray | None = None
) -> np.ndarray:
    """Return the image resized, in `out` if passed. "auto" means area if the image gets smaller, else
    bilinear.
    """
    image_out = _resized(image, width, height, interpolation, out)
    if out is not None and image_out is not out:
        out[...] = image_out
        return out
    return image_out


def _resized(
    image: np.ndarray, width: int, height: int, interpolation: str, out: np.ndarray | None
) -> np.ndarray:
    rows, columns = image.shape[:2]
    if (rows, columns) == (height, width):
        return image
    if interpolation == "auto":
        interpolation = "bilinear" if width * height >= rows * columns else "area"
    cv2 = opencv()
    if cv2 is None:
        return _resize_torch(image, width, height, interpolation)
    flag = {
        "bilinear": cv2.INTER_LINEAR,
        "nearest_neighbor": cv2.INTER_NEAREST,
        "bicubic": cv2.INTER_CUBIC,
        "area": cv2.INTER_AREA,
    }[interpolation]
    in_place = out is not None and out.dtype == image.dtype and out.shape[2] == 3
    image_out: Any = cv2.resize(image, (width, height), dst=out if in_place else None, interpolation=flag)
    return (
        out if out is not None and in_place else image_out if image_out.ndim == 3 else image_out[:, :, None]
    )


def _resize_torch(image: np.ndarray, width: int, height: int, interpolation: str) -> np.ndarray:
    import torch

    rows, columns = image.shape[:2]
    if interpolation == "area" and width <= columns and height <= rows:
        out = np.einsum(
            "ij,jkc,lk->ilc",
            _shares(rows, height),
            image.astype(np.float32),
            _shares(columns, width),
            optimize=True,
        )
        out = torch.from_numpy(np.ascontiguousarray(out))
    else:
        mode = {"nearest_neighbor": "nearest", "bicubic": "bicubic"}.get(interpolation, "bilinear")
        align = {} if mode == "nearest" else {"align_corners": False}
        x = torch.from_numpy(image if image.flags.writeable else image.copy()).permute(2, 0, 1)[None]
        x = x if image.dtype == np.uint8 and mode == "bilinear" else x.float()
        out = torch.nn.functional.interpolate(x, size=(height, width), mode=mode, **align)[0].permute(1, 2, 0)
    if out.dtype is torch.uint8:
        return out.contiguous().numpy()
    if image.dtype != np.uint8:
        return out.contiguous().numpy().astype(image.dtype)
    return out.round().clamp(0, 255).to(torch.uint8).contiguous().numpy()


@functools.lru_cache(64)
def _shares(size: int, out: int) -> np.ndarray:
    """Return a matrix (out, size). Row i has the weight of each pixel in the i-th of `out` equal
    intervals.
    """
    edges = np.arange(out + 1) * (size / out)
    pixel = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return (np.clip(overlap, 0, None) * (out / size)).astype(np.float32)


def keep_aspect_size(
    width: int,
    height: int,
    target_size: int,
    min_size: int = 0,
    max_size: int = 0,
    resize_longer: bool = False,
) -> tuple[int, int]:
    """Return (width, height) whose shorter (longer) side is `target_size`. max_size (min_size) limits the
    other side.
    """
    short, long = min(width, height), max(width, height)
    if resize_longer:
        new_long, new_short = target_size, _scaled(short, target_size, long)
        if min_size and new_short < min_size:
            new_short, new_long = min_size, _scaled(long, min_size, short)
    else:
        new_short, new_long = target_size, _scaled(long, target_size, short)
        if max_size and new_long > max_size:
            new_long, new_short = max_size, _scaled(short, max_size, long)
    return (new_short, new_long) if width < height else (new_long, new_short)


def _scaled(side: int, new: int, old: int) -> int:
    return int(np.rint(side * new / old))
