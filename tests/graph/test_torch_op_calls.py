"""Calls found in torch's own operator samples (torch.testing._internal) that a graph once took for something else."""
import pytest
import torch
from graph_cases import graph_of


def reshaped(x, name, *args):
    y = x * 2
    getattr(y, name)(*args)
    return y, y.sum(0)


@pytest.mark.parametrize("name, args", [("squeeze_", (0,)), ("unsqueeze_", (1,)), ("t_", ()), ("as_strided_", ((2, 2), (1, 2))), ("resize_", (2, 2))])
def test_the_program_knows_shapes_changed_in_place(name, args):
    x = torch.arange(4.0).reshape(1, 4)
    graph = graph_of(lambda x: reshaped(x, name, *args))
    for got, want, output in zip(graph(x), reshaped(x, name, *args), graph.program.outputs):
        assert torch.equal(got, want) and got.stride() == want.stride() and output.shape == tuple(want.shape)
