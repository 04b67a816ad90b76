"""What the tests of kernels share: calls of the operators of ops_table.py, with gradients; runs without
kernels.
"""

import pytest
import torch

from oneflow._kernels import _ext


def listed(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


def needs_grad(inputs):
    """The same memory in the same layout (a copy would be contiguous); floating inputs that are
    differentiated require grad.
    """
    return [
        x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in inputs
    ]


def leaves(op, inputs):
    """The inputs that get gradients: not the tables of the rotary embedding, not regions."""
    n = 1 if op.name.startswith(("fused_apply_rotary", "roi_align", "fake_")) else len(inputs)
    return [x for x in inputs[:n] if isinstance(x, torch.Tensor) and x.is_floating_point()]


def frozen(op, inputs):
    """needs_grad, but only the leaves of `op` require grad."""
    inputs = needs_grad(inputs)
    differentiated = {id(x) for x in leaves(op, inputs)}
    return [
        x.requires_grad_(id(x) in differentiated)
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
        for x in inputs
    ]


def to(inputs, dtype):
    return [x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]


def run(function, op, inputs):
    """Outputs and gradients of a fixed weighting of them."""
    inputs = frozen(op, inputs) if op.differentiable else list(inputs)
    out = listed(function(*inputs))
    if not op.differentiable:
        return out
    torch.manual_seed(1)
    weights = [torch.randn(o.shape, dtype=torch.float64).to(o) for o in out]
    grads = torch.autograd.grad(sum((o * w).sum() for o, w in zip(out, weights)), leaves(op, inputs))
    return out + list(grads)


@pytest.fixture(params=["kernels", "plain"], autouse=True)
def with_and_without_kernels(request, monkeypatch):
    """Every test runs with the kernels, if the library is available, and without them."""
    if request.param == "plain":
        monkeypatch.setattr(_ext, "use", lambda *a, **k: False)
    elif _ext.status() != "loaded":
        pytest.skip(f"the kernel library is {_ext.status()}")


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)
