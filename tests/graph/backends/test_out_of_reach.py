"""Programs that inductor cannot express run on aten as a whole, with eager's results, and say why."""

import warnings

import pytest
import torch

import oneflow.nn as nn


def masked_with_itself(x):
    y = x * 2
    return y.masked_scatter_(y < 9, y)


def expanded(x):
    row = x.sum(0, keepdim=True).expand(4, 5)
    row[torch.tensor([2])] = 0.0  # deprecated, but accepted
    return row + 1


def windows(x):
    y = x.clone()
    y.unfold(1, 2, 3).clamp_(3.0, 9.0)
    return y


def view_of_a_view(x):
    y = x * 2
    y[1:].as_strided((2, 3), (4, 1)).add_(1.0)
    return y


def view_of_a_product(x):
    y = x[None] @ x.mT  # torch makes it by _unsafe_view
    y.as_strided((4,), (4,))[:-1].add_(1.0)
    return y


def sampled_column(x):
    y = x.clone()
    y[:, 1].uniform_()
    return y


def multiplied_by_its_first_column(x):
    y = (x * 2).add_(1.0)
    return y.mul_(y[:, :1].expand(4, 5))


def added_to_its_neighbours(x):
    y = x * 2
    y[:, 1:].add_(y[:, :-1])
    return y


REASONS = {
    masked_with_itself: "writes a tensor that the same operator reads in another order",
    multiplied_by_its_first_column: "writes a tensor that the same operator reads in another order",
    added_to_its_neighbours: "writes a tensor that the same operator reads in another order",
    expanded: "writes into an expanded tensor",
    windows: "writes through unfold()",
    view_of_a_view: "calls as_strided() on a view that it writes, or with an offset into an input",
    view_of_a_product: "calls as_strided() on a view that it writes, or with an offset into an input",
    sampled_column: "samples into a tensor with gaps in its memory",
}


@pytest.mark.parametrize("backend", ["inductor", "auto"])
@pytest.mark.parametrize("function", REASONS, ids=lambda f: f.__name__)
def test_what_is_not_compiled_is_named(function, backend):
    class Graph(nn.Graph):
        def build(self, x):
            return function(x)

    graph, x = Graph(), torch.arange(20.0).view(4, 5)
    graph.config.set_backend(backend)
    torch.manual_seed(0)
    expected = function(x)
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(graph(x), expected)
    reason = REASONS[function]
    assert f"not compiled, because it {reason}" in graph.explain()
    assert sum(reason in str(w.message) for w in caught) == (backend == "inductor")


def halves(x):
    y = x * 2
    y[:, :2].sub_(y[:, 2:4])
    y.mul_(y.detach()).add_(y.view(-1).view(4, 5))
    return y


def test_views_without_a_common_element_are_compiled(compilations):
    class Graph(nn.Graph):
        def build(self, x):
            return halves(x)

    graph, x = Graph(), torch.arange(20.0).view(4, 5)
    graph.config.set_backend("inductor")
    assert torch.equal(graph(x), halves(x)) and len(compilations) == 1
