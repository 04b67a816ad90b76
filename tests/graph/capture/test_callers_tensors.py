"""Writes of build() to tensors of its caller do not persist after the call; writes to state do (OneFlow's
results: test_recorded_programs.py).
"""

import copy
import warnings

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn


@pytest.fixture
def torchs_dialect():
    flow.set_dialect("torch")
    yield
    flow.set_dialect("oneflow")


def graph_of(build, **attributes):
    graph = type("Written", (nn.Graph,), {"build": build})()
    for name, value in attributes.items():
        setattr(graph, name, value)
    return graph


def counted(build, **attributes):
    """The values that the program adds up to in three calls."""
    graph = graph_of(build, **attributes)
    return [graph(torch.ones(2)).tolist()[0] for _ in range(3)]


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.weight = nn.Parameter(torch.zeros(2))
        self.plain, self.listed, self.helper = (
            torch.zeros(2),
            [{"x": torch.zeros(2)}],
            type("Helper", (), {})(),
        )
        self.helper.sum = torch.zeros(2)

    def forward(self, x):
        return x


STATE = {
    "buffer": lambda m: m.count,
    "parameter": lambda m: m.weight.data,
    "attribute": lambda m: m.plain,
    "attribute in a list": lambda m: m.listed[0]["x"],
    "attribute of an object": lambda m: m.helper.sum,
    "part of a buffer": lambda m: m.count[:],
}


@pytest.mark.parametrize("where", STATE)
def test_writes_to_state_persist(where):
    holder = Holder()
    assert counted(lambda self, x: STATE[where](holder).add_(x) + 0, holder=holder) == [1.0, 2.0, 3.0]
    assert STATE[where](holder).tolist() == [3.0, 3.0]


def test_writes_to_modules_that_are_not_registered_persist():
    norm = nn.BatchNorm1d(2)
    graph_of(lambda self, x: norm(x))(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert norm.num_batches_tracked.item() == 1 and norm.running_mean.tolist() == pytest.approx([0.2, 0.3])


def test_writes_to_attributes_of_the_graph_persist():
    assert counted(lambda self, x: self.total.add_(x) + 0, total=torch.zeros(2)) == [1.0, 2.0, 3.0]


def test_parameters_outside_modules_persist():
    weight = nn.Parameter(torch.zeros(2))
    assert counted(lambda self, x: weight.data.add_(x) + 0) == [1.0, 2.0, 3.0]


def test_views_of_state_outside_modules_persist():
    holder = Holder()
    view = holder.count[:1]
    assert counted(lambda self, x: view.add_(1).expand(2) + 0, holder=holder) == [
        1.0,
        2.0,
        3.0,
    ] and holder.count.tolist() == [3.0, 0.0]


def test_copy_into_a_captured_tensor_persists():
    total = torch.zeros(2)
    assert counted(lambda self, x: total.copy_(total + x) + 0) == [1.0, 2.0, 3.0] and total.tolist() == [
        3.0,
        3.0,
    ]


@pytest.mark.parametrize("layout", ["dense", "transposed", "gaps", "one column", "empty", "scalar"])
@pytest.mark.parametrize("backend", ["aten", pytest.param("inductor", marks=pytest.mark.slow)])
def test_copies_keep_the_layout(layout, backend):
    base = torch.arange(24.0).reshape(4, 6)
    x = {
        "dense": base,
        "transposed": base.t(),
        "gaps": base[::2, 1::3],
        "one column": base[:, :1],
        "empty": base[:0],
        "scalar": torch.tensor(3.0),
    }[layout]
    before = base.clone()

    def build(self, x):
        x.add_(1)
        return x, x.reshape(-1) * 2

    graph = graph_of(build)
    graph.config.set_backend(backend)
    out, flat = graph(x)
    assert (
        out.stride() == x.stride()
        and torch.equal(out, x + 1)
        and torch.equal(flat, (x + 1).reshape(-1) * 2)
        and torch.equal(base, before)
    )


def test_in_place_layers_leave_the_argument_alone():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.0, inplace=True), nn.Linear(2, 2))
    x = torch.tensor([[-1.0, 2.0]])
    out = graph_of(lambda self, x: self.model(x), model=model)(x)
    assert torch.equal(out, copy.deepcopy(model)(x.clone())) and x.tolist() == [[-1.0, 2.0]]


def test_shape_of_an_argument_changed_in_place():
    x = torch.ones(1, 2)
    assert graph_of(lambda self, x: x.squeeze_(0) + 0)(x).shape == (2,) and x.shape == (1, 2)


def test_values_read_before_and_after_a_write_decide_branches():
    def build(self, x):
        before = (x > 0).all()
        x -= 2
        return x * (10 if before else 1) * (100 if (x > 0).all() else 1)

    graph = graph_of(build)
    for value, expected in ((1, -10), (3, 1000), (-1, -3), (3, 1000)):
        x = torch.full((2,), value)
        assert graph(x).tolist() == [expected] * 2 and x.tolist() == [value] * 2


def test_one_warning_names_the_argument_and_the_line():
    def build(self, x):
        x += 1
        return x

    graph = graph_of(build)
    with pytest.warns(UserWarning, match=r"(?s)argument 'x' .*x \+= 1.*set_dialect"):
        graph(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(torch.ones(2)), graph(torch.ones(3))


def test_programs_without_such_writes_make_no_copies_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = graph_of(lambda self, x: (x * 2).add_(1))
        graph(torch.ones(2))
    assert graph.program.count() == 2


def test_torchs_dialect_lets_writes_through(torchs_dialect):
    captured, x = torch.zeros(2), torch.zeros(2)

    def build(self, x):
        captured.add_(1)
        x.add_(10)
        return x

    graph = graph_of(build)
    graph(x), graph(x)
    assert x.tolist() == [20.0] * 2 and captured.tolist() == [2.0] * 2


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded tensors")
@pytest.mark.parametrize(
    "argument",
    [
        lambda: torch.arange(6.0).view(6, 1).expand(6, 3),
        lambda: torch.arange(5.0).expand(6, 5),
        lambda: torch.arange(3.0).view(3, 1)[:0].expand(0, 4),
        lambda: torch.arange(40.0).view(8, 5)[:, ::2],
    ],
    ids=["columns", "rows", "empty", "gaps"],
)
def test_writes_to_an_expanded_argument(argument):
    class Write(flow.nn.Graph):
        def build(self, x):
            write(x)
            return x + 1

    def write(x):
        x[1:][torch.arange(min(2, max(0, len(x) - 1)))] = 7.0

    x = argument()
    before = x.clone()
    out = Write()(x)
    assert torch.equal(x, before)
    write(x)
    assert torch.equal(out, x + 1)
