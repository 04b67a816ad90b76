"""What the tests of custom operators on a GPU share."""

import os

import pytest
import torch

from oneflow._kernels import _ext, gradients, kernels

EMULATED = "cuda_on_cpu" in os.environ.get("ONEFLOW_EXT_PATH", "")

DEVICE = "cpu" if EMULATED else "cuda"


def cuda(inputs):
    return [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in inputs]


@pytest.fixture(autouse=True)
def _as_on_cuda(monkeypatch):
    """On the emulation: half precision has kernels, and the bias gradient is a separate sum."""
    if EMULATED:
        _ext.status()
        run = kernels.run
        monkeypatch.setitem(_ext.use.__kwdefaults__, "dtypes", _ext._FLOATS | {torch.float16})
        monkeypatch.setattr(
            run,
            "bias_gelu_backward_sums",
            lambda dy, x, b, axis: _with_sum(run.bias_gelu_backward(dy, x, b, axis), axis),
        )
        monkeypatch.setattr(
            run,
            "bias_dropout_backward_sums",
            lambda dy, axis, p, seed: _with_sum(run.bias_dropout_backward(dy, p, seed), axis),
        )


def _with_sum(dx, axis):
    return dx, gradients.bias_sum(dx, axis)[None]


# --------------------------------------------------------------------------- values that are not finite
NAN, INF = float("nan"), float("inf")


def operator(name):
    assert _ext.status() == "loaded"
    return getattr(torch.ops.oneflow, name)


# --------------------------------------------------------------------------- arguments
def moved(argument, device):
    return [t.to(device) for t in argument] if isinstance(argument, list) else argument.to(device)
