"""Images of bytes as normalized planes of floats (OneFlow's crop_mirror_normalize)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _ext, kernels


def crop_mirror_normalize(
    images: torch.Tensor,
    mirror: torch.Tensor | None,
    top: int,
    left: int,
    mean: Sequence[float],
    scale: Sequence[float],
    out: torch.Tensor,
) -> None:
    """out (N, C, h, w) float32 = (window - mean) * scale of uint8 images (N, H, W, C), C 1 or 3, the window
    of size (h, w) at (top, left).

    mirror: int8 (N) or None; an image whose flag is not 0 is mirrored left-right. mean, scale: C floats.
    """
    run = (
        kernels.run.crop_mirror_normalize
        if _ext.use(images, dtypes=(torch.uint8,))
        else crop_mirror_normalize_ref
    )
    run(images, mirror, top, left, mean, scale, out)


def crop_mirror_normalize_ref(
    images: torch.Tensor,
    mirror: torch.Tensor | None,
    top: int,
    left: int,
    mean: Sequence[float],
    scale: Sequence[float],
    out: torch.Tensor,
) -> None:
    height, width = out.shape[2:]
    window = images[:, top : top + height, left : left + width]
    if mirror is not None:
        window = torch.where(mirror.view(-1, 1, 1, 1) != 0, window.flip(2), window)
    channel_values = lambda values: torch.tensor(values, dtype=torch.float32, device=out.device).view(
        -1, 1, 1
    )
    out.copy_(window.permute(0, 3, 1, 2)).sub_(channel_values(mean)).mul_(channel_values(scale))
