"""Helpers of the rewrite tests: graphs with every option on, compared with float64.

The error of a rewritten program may exceed that of the captured program by at most a few ulps.
"""

import pytest
import torch

import oneflow as flow
from oneflow._graph.program.passes import fuse_dropout as dropout
from oneflow._graph.program.passes import fuse_matmul, fuse_softmax
from oneflow._kernels import _ext

needs_kernels = pytest.mark.skipif(_ext.status() != "loaded", reason=f"oneflow._ext: {_ext.status()}")
FLOATS = (torch.float32, torch.float64, torch.bfloat16)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Small tensors do for the tests."""
    monkeypatch.setattr(fuse_softmax, "_LEAST", 0)
    monkeypatch.setattr(dropout, "_LEAST", 0)
    monkeypatch.setattr(fuse_matmul, "_LEAST", 0)


def everything(config, dropout=False):
    config.allow_fuse_compositions(True, dropout=dropout)
    config.allow_fuse_add_to_output(True)
    config.allow_fuse_cast_scale(True)
    config.allow_fuse_model_update_ops(True)


def graph_of(function, tensors, set_config=everything, backward=True, skip=()):
    """([output, gradients], graph) of function(*tensors)."""

    class G(flow.nn.Graph):
        def build(self, *tensors):
            out = function(*tensors)
            floating = [t for t in tensors if t.is_floating_point()] if backward else []
            return [out, *(torch.autograd.grad(out, floating, weights(out)) if backward else ())]

    graph = G()
    graph.config.set_backend("aten")
    graph.config.passes(skip=skip, check=True)
    if set_config is not None:
        set_config(graph.config)
    with torch.set_grad_enabled(backward):
        return [
            t.detach()
            for t in graph(
                *(t.detach().clone().requires_grad_(backward and t.is_floating_point()) for t in tensors)
            )
        ], graph


def weights(out):
    """A gradient that is not constant and is exact in every dtype."""
    return (torch.arange(out.numel(), device=out.device) % 7 - 3).to(out.dtype).view(out.shape)


def reference(function, tensors, backward=True):
    """The same in float64, eager."""
    parameters = [t.double().requires_grad_(backward) if t.is_floating_point() else t for t in tensors]
    out = function(*parameters)
    if backward:
        weights(out).mul(out).sum().backward()
    return [out.detach(), *(p.grad for p in parameters if p.is_floating_point() and backward)]


def targets(graph):
    return [n.target for n in graph.program.graph.nodes if n.op == "call_function"]


def assert_rewritten(function, tensors, appear, vanish, set_config=everything, backward=True):
    """The operators are there, the old ones are gone, and no number is further from float64 than before."""
    exact = reference(function, tensors, backward)
    captured, _ = graph_of(function, tensors, None, backward)
    got, graph = graph_of(function, tensors, set_config, backward)
    operators = targets(graph)
    assert all(t in operators for t in appear), graph.program
    assert not any(t in operators for t in vanish), graph.program
    dtype = tensors[0].dtype
    for e, a, b in zip(exact, captured, got):
        unit = torch.finfo(dtype).eps * e.abs().max().item()
        assert b.dtype is dtype and b.shape == e.shape
        room = 8 if dtype is torch.float64 else 4  # the reference is only as exact as float64
        assert (b.double() - e).abs().max().item() <= (a.double() - e).abs().max().item() + room * unit
    return graph


def assert_untouched(function, tensors, backward=True):
    """With the option on, the program is the captured one."""
    _, plain = graph_of(function, tensors, None, backward)
    _, graph = graph_of(
        function, tensors, lambda config: config.allow_fuse_compositions(True, dropout=True), backward
    )
    assert targets(graph) == targets(plain), graph.program


def with_dropout(config):
    everything(config, dropout=True)


SCALED = {
    "times": lambda x: x * 0.35,
    "over": lambda x: x / 1.7,
    "0-d": lambda x: x * torch.tensor(0.35, dtype=x.dtype),
    "none": lambda x: x,
}
