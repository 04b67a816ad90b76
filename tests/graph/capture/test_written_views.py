"""view() in build() of a tensor whose memory has no such view: a write through it is eager's, or refused."""

import pytest
import torch
from graph_cases import graph_of

from oneflow._graph.errors import CaptureError


def matrix():
    return torch.arange(12.0).view(3, 4)


def written_through_a_view(x, w):
    y = x.t() + 1
    y.view(-1).mul_(w)
    return y


def written_under_a_view(x, w):
    y = x.t() + 1
    view = y.view(2, 6)
    y.mul_(w.view(4, 3))
    return view


def written_through_a_view_of_a_view(x, w):
    y = x.t() + 1
    row = y[None]
    view = row.view(2, 6)
    view.mul_(w.view(2, 6))
    return y, row, view


def view_of_what_a_formula_saved(x, w):
    y = (x.t() * w.view(4, 3)).exp()
    return y.view_as(w), (y * 2).sum()


@pytest.mark.parametrize(
    "program",
    [
        written_through_a_view,
        written_under_a_view,
        written_through_a_view_of_a_view,
        view_of_what_a_formula_saved,
    ],
)
def test_a_write_through_a_view_of_a_computed_tensor_is_eagers(program):
    def step(x, w):
        w = w.clone().requires_grad_()
        results = program(x, w)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * torch.arange(r.numel()).view(r.shape)).sum() for r in results).backward()
        return *results, w.grad

    arguments = matrix(), torch.linspace(0.1, 0.9, 12)
    for expected, actual in zip(step(*arguments), graph_of(step)(*arguments), strict=True):
        assert torch.equal(expected, actual) and expected.stride() == actual.stride()


def module_with_a_buffer(value):
    module = torch.nn.Module()
    module.register_buffer("state", value)
    return module


def test_a_view_of_a_buffer_is_its_memory():
    module = module_with_a_buffer(torch.ones(6))

    def build(x):
        module.state.view(-1).mul_(0.5)
        module.state.view(2, 3).add_(x)
        return module.state * 1

    graph = graph_of(build, module=module)
    assert graph(torch.ones(2, 3)).tolist() == module.state.tolist() == [1.5] * 6


def written_through_a_copy(x, state):
    x.t().view(-1).add_(5.0)
    return x


def written_after_the_copy(x, state):
    view = state.t().view(-1)
    state.add_(1)
    return view


def written_through_a_third_tensor(x, state):
    y = x.t() + 1
    row = y[0]
    view = y.view(-1)
    row.add_(1)
    return view


def written_under_vmap(x, state):
    return torch.vmap(lambda matrix: written_through_a_copy(matrix, state))(x[None])


@pytest.mark.parametrize(
    "program",
    [
        written_through_a_copy,
        written_after_the_copy,
        written_through_a_third_tensor,
        written_under_vmap,
    ],
)
def test_a_write_that_a_copy_would_lose_is_refused(program):
    """Eager refuses the view itself; OneFlow's graphs have it."""
    module, x = module_with_a_buffer(torch.zeros(2, 3)), torch.arange(6.0).view(2, 3)
    with pytest.raises(RuntimeError, match="view size"):
        program(x, module.state)
    with pytest.raises(CaptureError, match="another order than the view"):
        graph_of(lambda x: program(x, module.state), module=module)(x)
    assert not module.state.any()


def test_a_write_after_the_last_use_of_a_copy():
    module = module_with_a_buffer(torch.zeros(2, 3))

    def build(x):
        total = x.t().view(-1).sum() + module.state.t().view(-1).sum()
        module.state.add_(1)
        return total

    assert graph_of(build, module=module)(torch.ones(2, 3)) == 6 and module.state.sum() == 6


def test_a_view_under_vmap():
    def build(x):
        return torch.vmap(lambda row: (row.t() + 1).view(-1) * 2)(x)

    x = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(graph_of(build)(x), (x.transpose(1, 2) + 1).reshape(2, -1) * 2)
