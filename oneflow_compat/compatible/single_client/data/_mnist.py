"""load_mnist: the digits as NumPy batches."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Any

import torch

from ...._files import downloads

if TYPE_CHECKING:
    import numpy as np


def load_mnist(
    train_batch_size: int = 100,
    test_batch_size: int = 100,
    data_format: str = "NCHW",
    url: str = "https://oneflow-public.oss-cn-beijing.aliyuncs.com/datasets/mnist.npz",
    hash_check: str = "63d4344077849053dc3036b247fa012b2b381de53fd055a66b539dffd76cf08e",
    out_dir: str = ".",
) -> tuple[Any, ...]:
    """((train images, train labels), (test images, test labels)), each an array of whole batches.

    Images are float32 in [0, 1], (batches, batch size, 1, 28, 28) for NCHW, (..., 28, 28, 1) for NHWC;
    labels int32. `url` may be the path of a local mnist.npz (x_train, y_train, x_test, y_test); an address is
    fetched once into `out_dir` with a progress bar on stderr, and checked against the sha256 `hash_check`.
    """
    import numpy as np

    path = url if os.path.isfile(url) else _fetch(url, os.path.join(out_dir, "mnist.npz"), hash_check)
    with np.load(path) as f:
        train, test = (f["x_train"], f["y_train"]), (f["x_test"], f["y_test"])

    def batches(images: np.ndarray, labels: np.ndarray | torch.Tensor, size: int) -> tuple[Any, ...]:
        count = len(images) // size
        images = images[: count * size].astype(np.float32) / 255.0
        shape = (count, size, 1, 28, 28) if data_format == "NCHW" else (count, size, 28, 28, 1)
        return images.reshape(shape), labels[: count * size].reshape(count, size).astype(np.int32)

    if data_format not in ("NCHW", "NHWC"):
        raise ValueError(f'load_mnist: data_format must be "NCHW" or "NHWC", found {data_format!r}')
    return batches(*train, train_batch_size), batches(*test, test_batch_size)


def _digest(path: Any) -> Any:
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def _fetch(url: str, path: str, expected_digest: str | None) -> Any:
    expected_digest = expected_digest or None
    if os.path.isfile(path) and (not expected_digest or _digest(path) == expected_digest):
        return path
    if "://" not in url:
        raise FileNotFoundError(
            f"load_mnist: {url!r} is no file, and no address to fetch. Pass the path of a file, or an address"
            " such as https://..."
        )
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    part = path + ".part"
    try:
        _download(url, part)
        digest = _digest(part) if expected_digest else None
        if digest != expected_digest:
            raise ValueError(
                f"load_mnist: {url} has the sha256 {digest}, expected {expected_digest}. The download was"
                " removed; try again, or pass the hash_check of this file"
            )
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
    return path


def _download(url: Any, path: Any) -> None:
    """Download a file with a progress bar on stderr, unless ONEFLOW_QUIET is set."""
    import urllib.request

    from torch.hub import tqdm

    visible = downloads.shows_progress()
    if visible:
        downloads.announce(url, path.removesuffix(".part"))
    with (
        downloads.named_failures(url),
        tqdm(disable=not visible, unit="B", unit_scale=True, unit_divisor=1024) as bar,
    ):

        def advance(block: Any, size: Any, total: Any) -> None:
            if total > 0:
                bar.total = total
            bar.update(min(block * size, bar.total or block * size) - bar.n)

        urllib.request.urlretrieve(url, path, advance)
