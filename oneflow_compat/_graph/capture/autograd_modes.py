"""Modes of autograd while build() is captured."""

import contextlib
import warnings
from collections.abc import Iterator

import torch

from .patching import answered_in_build


@contextlib.contextmanager
def autograd_of_capture(name: str, trains: bool, in_inference_mode: bool) -> Iterator[None]:
    """Run autograd in one thread, without set_detect_anomaly, and with an empty cache of autocast.

    The cache would hand out weights that were cast before, and later those of the capture. The check of
    set_detect_anomaly reads the values of gradients. build() asks for the caller's modes.
    """
    detects = torch.is_anomaly_enabled()
    if detects and trains:
        warnings.warn(
            f"graph {name}: torch.autograd.set_detect_anomaly() does not check the gradients of a graph."
            " Run the model in eager mode to find the operator that gives NaN.",
            stacklevel=2,
        )
    torch.clear_autocast_cache()
    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            torch.autograd.set_detect_anomaly(False),
            answered_in_build(torch, "is_anomaly_enabled", detects),
            answered_in_build(torch, "is_inference_mode_enabled", in_inference_mode),
        ):
            yield
    finally:
        torch.clear_autocast_cache()
