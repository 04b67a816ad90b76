"""Two tensors lie in the same memory, with the same layout, when a step is captured; then one of them is
replaced.
"""

import pytest
import torch
from graph_cases import graph_with
from torch import nn

import oneflow as flow


class Tensors(nn.Module):
    """A buffer `b`, a parameter `w`, and a dict of other tensors."""

    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(3))
        self.w = nn.Parameter(torch.ones(3), requires_grad=False)
        free = torch.ones(3)
        self.free = {
            "b": self.b[:],
            "w": self.w.detach(),
            "t": free,
            "t[:]": free[:],
            "zeros": torch.zeros(3),
        }


def fives():
    return torch.full((3,), 5.0)


def buffer(m):
    m.b = fives()


def view_of_the_buffer(m):
    m.free["b"] = fives()


def buffer_and_its_view(m):
    m.free["b"] = fives()
    m.b = m.free["b"][:]


def memory_of_the_buffer(m):
    m.b.set_(fives())


def memory_of_its_view(m):
    m.free["b"].set_(fives())


def parameter(m):
    m.w = nn.Parameter(fives(), requires_grad=False)


def data_of_the_parameter(m):
    m.w.data = fives()


def data_of_the_parameter_and_its_view(m):
    m.w.data = fives()
    m.free["w"] = m.w.detach()


def tensor(m):
    m.free["t"] = fives()


def view(m):
    m.free["t[:]"] = fives()


def view_by_its_tensor(m):
    m.free["t[:]"] = m.free["t"]


def exchanged_with_another(m):
    m.free["t"], m.free["zeros"] = m.free["zeros"], m.free["t"]


def another_by_a_view(m):
    m.free["zeros"] = m.free["t"][:]


CHANGES = (
    buffer,
    view_of_the_buffer,
    buffer_and_its_view,
    memory_of_the_buffer,
    memory_of_its_view,
    parameter,
    data_of_the_parameter,
    data_of_the_parameter_and_its_view,
    tensor,
    view,
    view_by_its_tensor,
    exchanged_with_another,
    another_by_a_view,
)
NAMES = ("b", "w", "free b", "free w", "free t", "free t[:]", "free zeros")


def use(m, x, names):
    values = [m.free[name[5:]] if name.startswith("free ") else getattr(m, name) for name in names]
    return sum((x + 10**i) * value for i, value in enumerate(values))


@pytest.mark.parametrize("is_compiled_step", [False, True], ids=["graph", "compiled_step"])
@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]], ids=["named_first", "named_last"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_step_reads_each_of_them_where_it_is(change, names, is_compiled_step):
    m = Tensors()
    step = lambda x: use(m, x, names)
    m.forward = step
    graph = (
        flow.compile_step(step, backend="aten")
        if is_compiled_step
        else graph_with(lambda _, x: m(x), {"m": m})
    )
    for call in range(4):
        x = torch.full((3,), float(call))
        assert torch.equal(graph(x), step(x))
        if call == 1:
            change(m)
