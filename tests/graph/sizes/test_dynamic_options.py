"""The option `dynamic` and the marks of torch decide which dimensions of arguments are symbols."""

import pytest
import torch
from dynamic_graphs import Inference

import oneflow as flow


def test_the_option_dynamic_makes_dimensions_symbols_from_the_first_program():
    graph = Inference(lambda x: x * 2)
    graph.config.dynamic(True)
    for n, m in ((4, 3), (5, 3), (6, 7)):
        assert graph(torch.ones(n, m)).shape == (n, m)
    assert len(graph._engine.programs) == 1


def test_the_option_dynamic_names_dimensions_of_arguments():
    graph = Inference(lambda x, y: x * y)
    graph.config.dynamic({"arg0": 0, "arg1": [0]})
    for n in (4, 5, 6):
        graph(torch.ones(n, 3), torch.ones(n, 3))
    assert len(graph._engine.programs) == 1
    assert [d.dim for d in graph.program.dimensions.dimensions] == [0, 0]


def test_the_option_dynamic_false_makes_a_program_for_each_size():
    graph = Inference(lambda x: x * 2)
    graph.config.dynamic(False)
    for n in (4, 5, 6):
        graph(torch.ones(n, 3))
    assert len(graph._engine.programs) == 3


@pytest.mark.parametrize("value, told", [
    (1, "True, False or a dict"), ({"x": "0"}, "dimensions"), ({"x": [-1]}, "at least 0"), ({0: 1}, "name"),
])  # fmt: skip
def test_the_option_dynamic_refuses_other_values(value, told):
    graph = Inference(lambda x: x * 2)
    with pytest.raises((TypeError, ValueError), match=told):
        graph.config.dynamic(value)


def test_an_unknown_argument_of_the_option_dynamic_is_an_error_that_lists_the_arguments():
    class G(flow.nn.Graph):
        def build(self, image, scale):
            return image * scale

    graph = G()
    graph.config.set_backend("aten")
    graph.config.dynamic({"picture": 0})
    with pytest.raises(flow._errors.OneFlowError, match="'picture'.*'image', 'scale'"):
        graph(torch.ones(3), torch.ones(3))


def test_marks_of_torch_are_honored():
    graph = Inference(lambda x, y: x.sum(0) * y)
    for n in (4, 5, 6):
        x, y = torch.ones(n, 3), torch.ones(3)
        torch._dynamo.mark_dynamic(x, 0)
        graph(x, y)
    assert len(graph._engine.programs) == 1
    static = Inference(lambda x: x * 2)
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        torch._dynamo.mark_static(x, 0)
        static(x)
    assert len(static._engine.programs) == 3
