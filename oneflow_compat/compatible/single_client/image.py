"""flow.image: decoding, resizing and normalizing images inside job functions.

Pillow is needed for decoding and resizing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..._data import images as _images
from ._functions.buffers import each, each_with
from ._functions.orders import takes_older_orders
from ._jobs import context as _context
from ._jobs import devices as _devices
from ._jobs.feeds import feed
from ._jobs.host import HostBlob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


_MODES = {
    "nearest_neighbor": "nearest",
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "area": "area",
    "auto": "auto",
}


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("flow.image needs Pillow for decoding and resizing: pip install pillow") from None
    return Image


def _resized(item: torch.Tensor, width: int, height: int, how: str) -> torch.Tensor:
    """Resize (h, w, c).

    Real images use the pipeline's resize, blobs of a captured job use torch's.
    """
    if how not in _MODES:
        raise ValueError(f"interpolation_type must be one of {', '.join(_MODES)}, found {how!r}")
    if type(item) is torch.Tensor:
        return torch.from_numpy(_images.resize(item.numpy(), width, height, how))
    if how == "auto":
        how = "bilinear" if width * height >= item.shape[0] * item.shape[1] else "area"
    kwargs = {} if _MODES[how] in ("nearest", "area") else {"align_corners": False}
    y = torch.nn.functional.interpolate(
        item.permute(2, 0, 1).unsqueeze(0).float(), size=(height, width), mode=_MODES[how], **kwargs
    )
    if not item.is_floating_point():
        info = torch.iinfo(item.dtype)
        y = y.round().clamp(info.min, info.max)
    return y.squeeze(0).permute(1, 2, 0).to(item.dtype).contiguous()


def _resize_target(
    h: int, w: int, target: int, resize_side: str, min_size: Any, max_size: int | None
) -> tuple[int, ...]:
    """Return the (height, width) that makes the shorter (or longer) side `target`.

    The sides stay within min_size and max_size.
    """
    short, long = (h, w) if h < w else (w, h)
    if resize_side == "shorter":
        new_short = target
        new_long = int(round(new_short * long / short))
        if max_size is not None and new_long > max_size:
            new_long = max_size
            new_short = int(round(new_long * short / long))
    elif resize_side == "longer":
        new_long = target
        new_short = int(round(new_long * short / long))
        if min_size is not None and new_short < min_size:
            new_short = min_size
            new_long = int(round(new_short * long / short))
    else:
        raise ValueError(f'resize_side must be "shorter" or "longer", found {resize_side!r}')
    return (new_short, new_long) if h < w else (new_long, new_short)


@takes_older_orders("image.resize")
def resize(
    image: Any,
    target_size: int | Sequence[int] | None = None,
    min_size: Any = None,
    max_size: Any = None,
    keep_aspect_ratio: bool = False,
    resize_side: str = "shorter",
    channels: int = 3,
    dtype: torch.dtype | None = None,
    interpolation_type: str = "auto",
    name: str | None = None,
    color_space: str | None = None,
    interp_type: Any = None,
    resize_shorter: int = 0,
    resize_x: int = 0,
    resize_y: int = 0,
) -> Any:
    """Return (images, scale (batch, 2) as (width, height), new size or None).

    The images are resized to `target_size` (width, height). With keep_aspect_ratio the chosen side gets the
    length target_size. color_space, interp_type and resize_* are the older spelling; a call with one of them
    returns the images alone.
    """
    if color_space is not None or interp_type is not None or resize_shorter or resize_x and resize_y:
        return _resize(
            image,
            target_size,
            min_size,
            max_size,
            keep_aspect_ratio,
            resize_side,
            interpolation_type,
            interp_type,
            resize_shorter,
            resize_x,
            resize_y,
        )[0]
    return _resize(image, target_size, min_size, max_size, keep_aspect_ratio, resize_side, interpolation_type)


def _resize(
    image: Any,
    target_size: int | Sequence[int] | None,
    min_size: Any,
    max_size: Any,
    keep_aspect_ratio: bool,
    resize_side: str,
    interpolation_type: str,
    interp_type: Any = None,
    resize_shorter: int = 0,
    resize_x: int = 0,
    resize_y: int = 0,
) -> tuple[Any, ...]:
    how = {"Linear": "bilinear", "NN": "nearest_neighbor", "Cubic": "bicubic"}.get(
        interp_type, interpolation_type
    )
    if resize_shorter:
        target_size, keep_aspect_ratio = resize_shorter, True
    elif resize_x and resize_y:
        target_size, keep_aspect_ratio = (resize_x, resize_y), False
    if target_size is None:
        raise ValueError("image.resize: give target_size")
    if keep_aspect_ratio:
        if not isinstance(target_size, int):
            (target_size,) = target_size

        def resize_one_image(item: torch.Tensor) -> torch.Tensor:
            h, w = _resize_target(item.shape[0], item.shape[1], target_size, resize_side, min_size, max_size)
            return _resized(item, w, h, how)

        out = each(image, resize_one_image)
        sizes = each(out, lambda item: torch.tensor([item.shape[1], item.shape[0]], dtype=torch.int32))
        return out, _scales(image, out), _stack(sizes)
    width, height = (target_size, target_size) if isinstance(target_size, int) else target_size
    out = each(image, lambda item: _resized(item, width, height, how))
    return _stack(out), _scales(image, out), None


def _scales(before: Any, after: Any) -> Any:
    """(batch, 2): new width / old width, new height / old height."""
    return _stack(
        each_with(
            before, after, lambda a, b: torch.tensor([b.shape[1] / a.shape[1], b.shape[0] / a.shape[0]])
        )
    )


def _stack(blob: Any) -> Any:
    if isinstance(blob, HostBlob):
        return blob.map(lambda items: torch.stack(list(items)))
    return torch.stack(list(blob))


@takes_older_orders("image.target_resize")
def target_resize(
    images: Any,
    target_size: int,
    min_size: Any = None,
    max_size: int | None = None,
    resize_side: str = "shorter",
    interpolation_type: str = "auto",
    name: str | None = None,
) -> tuple[Any, ...]:
    """Return (images with the chosen side of length target_size, new size, scale).

    The new size (batch, 2) and the scale (batch, 2) are (height, width).
    """

    def resize_one_image(item: torch.Tensor) -> torch.Tensor:
        h, w = _resize_target(item.shape[0], item.shape[1], target_size, resize_side, min_size, max_size)
        return _resized(item, w, h, interpolation_type)

    out = each(images, resize_one_image)
    sizes = _stack(each(out, lambda item: torch.tensor([item.shape[0], item.shape[1]], dtype=torch.int32)))
    scale = _stack(
        each_with(images, out, lambda a, b: torch.tensor([b.shape[0] / a.shape[0], b.shape[1] / a.shape[1]]))
    )
    return out, sizes, scale


def decode(
    images_bytes_buffer: Any,
    dtype: torch.dtype = torch.uint8,
    color_space: str = "BGR",
    name: str | None = None,
) -> Any:
    """Encoded images (bytes as int8 or uint8) to (h, w, 3) pixels."""
    if color_space not in ("BGR", "RGB"):
        raise ValueError(f'image.decode: color_space must be "BGR" or "RGB", found {color_space!r}')

    def image_decode(item: torch.Tensor) -> torch.Tensor:
        import io

        import numpy as np

        raw = item.detach().cpu().numpy().tobytes()
        pixels = np.asarray(_pillow().open(io.BytesIO(raw)).convert("RGB"))
        return torch.from_numpy(
            np.ascontiguousarray(pixels[..., ::-1] if color_space == "BGR" else pixels)
        ).to(dtype)

    return each(images_bytes_buffer, image_decode, needs_values=True)


def flip(image: Any, flip_code: torch.Tensor | int, name: str | None = None) -> Any:
    """Flip by flip_code: 0 upside down, 1 left and right, -1 both.

    The code is an int, or an int8 blob with one entry per image.
    """
    dims = {0: (0,), 1: (1,), -1: (0, 1)}
    if isinstance(flip_code, int):
        if flip_code not in dims:
            raise ValueError(f"image.flip: flip_code must be 0, 1 or -1, found {flip_code}")
        return each(image, lambda item: torch.flip(item, dims[flip_code]))

    def image_flip(item: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        return torch.flip(item, dims[int(code)])

    return each_with(image, flip_code, image_flip, needs_values=True)


def normalize(image: Any, std: Sequence[float], mean: Sequence[float], name: str | None = None) -> Any:
    """(image - mean) / std per channel (last dimension), float32."""
    std, mean = _numbers(std), _numbers(mean)
    return each(
        image,
        lambda item: (
            (item.float() - torch.tensor(mean, device=item.device)) / torch.tensor(std, device=item.device)
        ),
    )


def _numbers(value: Sequence[float]) -> list[float]:
    return [float(v) for v in value] if isinstance(value, (list, tuple)) else [float(value)]


@takes_older_orders("image.batch_align")
def batch_align(
    images: Any,
    shape: Sequence[int],
    dtype: torch.dtype,
    alignment: int,
    dynamic_out: bool = True,
    name: str | None = None,
) -> torch.Tensor:
    """All images in one blob, with zeros at the right and below.

    Height and width are the largest, rounded up to `alignment`.
    """

    def align(items: Any) -> torch.Tensor:
        items = [torch.as_tensor(i).to(dtype) for i in items]
        if dynamic_out:
            size = [-(-max(i.shape[d] for i in items) // alignment) * alignment for d in range(2)]
        else:
            size = list(shape[:2])
        out = []
        for i in items:
            if any(a > b for a, b in zip(i.shape[:2], size)):
                raise ValueError(
                    f"image.batch_align: an image of size {tuple(i.shape)} does not fit {tuple(shape)}"
                )
            out.append(torch.nn.functional.pad(i, (0, 0, 0, size[1] - i.shape[1], 0, size[0] - i.shape[0])))
        return torch.stack(out)

    return images.map(align).dense() if isinstance(images, HostBlob) else align(images)


def random_crop(
    input_blob: Any,
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    name: str = "ImageRandomCrop",
) -> Any:
    """A random crop of each image.

    The crop's share of the area lies in random_area, its aspect ratio in random_aspect_ratio.
    """
    area, ratio = random_area or [0.08, 1.0], random_aspect_ratio or [0.75, 1.333333]
    trace = _context.require_trace("flow.image.random_crop")
    key = ("crop", trace.sources)
    trace.sources += 1
    import random as python_random

    state = trace.job.pipeline.setdefault(key, python_random.Random(seed))

    def crop(item: torch.Tensor) -> torch.Tensor:
        h, w = item.shape[:2]
        for _ in range(num_attempts):
            share, aspect = state.uniform(*area) * h * w, state.uniform(*ratio)
            cw, ch = int(round((share * aspect) ** 0.5)), int(round((share / aspect) ** 0.5))
            if 0 < cw <= w and 0 < ch <= h:
                y, x = state.randint(0, h - ch), state.randint(0, w - cw)
                return item[y : y + ch, x : x + cw]
        return item

    return each(input_blob, crop, needs_values=True)


def crop_mirror_normalize(
    input_blob: Any,
    mirror_blob: torch.Tensor | None = None,
    color_space: str = "BGR",
    output_layout: str = "NCHW",
    crop_h: int = 0,
    crop_w: int = 0,
    crop_pos_y: float = 0.5,
    crop_pos_x: float = 0.5,
    mean: Sequence[float] = [0.0],
    std: Sequence[float] = [1.0],
    output_dtype: torch.dtype = torch.float32,
    name: str | None = None,
) -> torch.Tensor:
    """(image - mean) / std of the part of size (crop_h, crop_w) (0: all), mirrored where mirror_blob is 1."""
    if output_layout not in ("NCHW", "NHWC"):
        raise ValueError(
            f'crop_mirror_normalize: output_layout must be "NCHW" or "NHWC", found {output_layout!r}'
        )
    average, spread = [float(m) for m in mean], [float(s) for s in std]

    def process(image: torch.Tensor, mirror: torch.Tensor | None) -> torch.Tensor:
        image = _cropped(image, crop_h, crop_w, crop_pos_y, crop_pos_x).float()
        if mirror is not None:
            image = torch.where(mirror != 0, torch.flip(image, (1,)), image)
        device = image.device
        image = (image - torch.tensor(average, device=device)) / torch.tensor(spread, device=device)
        return (image.permute(2, 0, 1) if output_layout == "NCHW" else image).to(output_dtype)

    if isinstance(input_blob, HostBlob):
        return _processed_by_host(process, input_blob, mirror_blob)
    flips = [None] * len(input_blob) if mirror_blob is None else mirror_blob
    return torch.stack([process(image, flip) for image, flip in zip(input_blob, flips)])


def _cropped(
    image: torch.Tensor, crop_h: int, crop_w: int, position_y: float, position_x: float
) -> torch.Tensor:
    """Return the crop of an image (height, width, channels); a size of 0 keeps the whole side."""
    h, w = image.shape[:2]
    ch, cw = crop_h or h, crop_w or w
    if ch > h or cw > w:
        raise ValueError(f"crop_mirror_normalize: crop {ch} x {cw} is larger than an image of {h} x {w}")
    y, x = int((h - ch) * position_y), int((w - cw) * position_x)
    return image[y : y + ch, x : x + cw]


def _processed_by_host(
    process: Callable[..., Any], images: Any, mirror_blob: torch.Tensor | None
) -> torch.Tensor:
    """Return the tensor of a reader's images, each processed with its flip before each call of the job."""
    trace = images.trace
    pull_flips = trace.host_values.get(id(mirror_blob))
    if mirror_blob is not None and pull_flips is None:
        raise TypeError(
            "crop_mirror_normalize: with images of a reader, mirror_blob must come from flow.random.coin_flip"
        )

    def compute() -> torch.Tensor:
        flips = [None] * len(images.value()) if mirror_blob is None else pull_flips()
        return torch.stack([process(torch.as_tensor(i), flip) for i, flip in zip(images.value(), flips)])

    return feed(trace, compute, _devices.current(trace.job))


Resize = resize
CropMirrorNormalize = crop_mirror_normalize
image_batch_align, image_decode, image_flip, image_normalize = batch_align, decode, flip, normalize
image_random_crop, image_resize, image_target_resize = random_crop, resize, target_resize
