"""Runs of operators in one call (_graph/compile/operator_runs.py) do what the single operators do."""

import operator

import pytest
import torch
from graph_cases import assert_same_training, graph_of
from torch import nn
from torch.fx import Graph
from torch.utils._python_dispatch import TorchDispatchMode

from oneflow._graph.compile import operator_runs
from oneflow._graph.compile.live_memory import LiveMemory
from oneflow._graph.compile.pointwise_groups import in_groups
from oneflow._graph.compile.undo import with_undo
from oneflow._graph.compile.update_blocks import in_blocks
from oneflow._graph.program.tensor_info import describe
from oneflow._kernels import _runs

pytestmark = pytest.mark.skipif(not _runs.is_loaded(), reason="needs the library of csrc/runs.cpp")
aten = torch.ops.aten


def runs_in(program):
    return [node.target for node in operator_runs.in_runs(program).graph.nodes if is_run(node)]


def is_run(node):
    return isinstance(node.target, operator_runs.Run)


def with_updates(program):
    """The program as the backend has it when it looks for runs."""
    return with_undo(in_groups(in_blocks(program)))


class Attention(nn.Module):
    """Views, splits, operators with several results, lists of tensors, and products."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(32, 5)

    def forward(self, words):
        x = self.norm(self.embed(words))
        q, k, v = (t.view(*t.shape[:2], 2, 8).transpose(1, 2) for t in self.qkv(x).split(16, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.head(torch.cat((x, y[..., :16]), dim=-1).tanh())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(6, 7, 2), nn.Linear(7, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[0][-1])


def attention_loss(model, words, labels):
    return nn.functional.cross_entropy(model(words).flatten(0, 1), labels)


def recurrent_loss(model, x, labels):
    return nn.functional.cross_entropy(model(x), labels)


ATTENTION = [(torch.randint(11, (3, 4)), torch.randint(5, (12,))) for _ in range(10)]
RECURRENT = [(torch.randn(4, 3, 6), torch.randint(5, (3,))) for _ in range(10)]
MODELS = {
    "attention": (Attention, attention_loss, ATTENTION),
    "recurrent": (Recurrent, recurrent_loss, RECURRENT),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_training_bit_for_bit(name, optimizer):
    make, loss_of, batches = MODELS[name]
    torch.manual_seed(0)
    graph = assert_same_training(make(), OPTIMIZERS[optimizer], loss_of, batches)
    runs = runs_in(graph.program)
    assert sum(len(run.nodes) for run in runs) > 30


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_training_bit_for_bit_with_threads_and_flushed_denormals(threads, flushes):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(flushes)
    try:
        torch.manual_seed(0)
        batches = [(words, labels) for words, labels in ATTENTION]
        assert_same_training(Attention(), torch.optim.AdamW, attention_loss, batches)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def run_of(calls, tensors):
    """A run of the nodes `calls(graph, name -> placeholder)`, and its inputs."""
    graph = Graph()
    nodes = calls(graph, {name: graph.placeholder(name) for name in tensors})
    graph.output(tuple(node for node in nodes if not operator_runs._has_several(node)))
    run = operator_runs.Run("test", nodes)
    return run, [tensors[node.name] for node in run.inputs]


def same_bits(a, b):
    return torch.equal(a, b) and torch.equal(torch.signbit(a), torch.signbit(b)) and a.dtype == b.dtype


def is_view_of(a, base):
    return a.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


x, y = torch.randn(3, 4, 6).unbind()[:2]
floats = torch.randn(2, 3, 8, 8)
CALLS = {  # operator and arguments; "x" and "y" stand for tensors
    "a number for a tensor": (aten.add.Tensor, ("x", 2), {"alpha": 0.5}),
    "a float for a tensor": (aten.mul.Tensor, ("x", 0.1), {}),
    "a bool for a tensor": (aten.mul.Tensor, ("x", True), {}),
    "an integer for a float": (aten.leaky_relu.default, ("x", 1), {}),
    "one size for a list": (aten.sum.dim_IntList, ("x", 1), {}),
    "no sizes": (aten.sum.dim_IntList, ("x", []), {}),
    "a dtype": (aten.sum.dim_IntList, ("x", [0], True), {"dtype": torch.float64}),
    "a layout and a device": (
        aten.full_like.default,
        ("x", 2),
        {"dtype": torch.int64, "layout": torch.strided, "device": torch.device("cpu"), "pin_memory": False},
    ),
    "a memory format": (aten.clone.default, ("x",), {"memory_format": torch.contiguous_format}),
    "a list of tensors": (aten.cat.default, (["x", "y", "x"], 1), {}),
    "a list with None": (aten.index.Tensor, ("x", [None, "index"]), {}),
    "an optional tensor": (aten.native_layer_norm.default, ("x", [6], None, None, 1e-5), {}),
    "a string": (aten.gelu.default, ("x",), {"approximate": "tanh"}),
    "an infinite number": (aten.constant_pad_nd.default, ("x", [0, 1], -float("inf")), {}),
    "a list of bools": (
        aten.native_layer_norm_backward.default,
        ("x", "x", [6], "mean", "mean", None, None, [True, False, False]),
        {},
    ),
    "a list of floats": (aten.upsample_nearest2d.vec, ("image", None, [2.0, 1.5]), {}),
    "a list of results": (aten.split.Tensor, ("x", 4, 1), {}),
    "several results": (aten.max.dim, ("x", 1), {}),
    "a view": (aten.as_strided.default, ("x", [3, 2], [2, 1], 1), {}),
    "the same tensor": (aten.view.default, ("x", [4, 6]), {}),
    "a large integer": (aten.slice.Tensor, ("x", 1, 1, 9223372036854775807), {}),
    "a negative zero": (aten.add.Tensor, ("x", -0.0), {}),
}
RESULTS = {"a list of results": 2, "a list of bools": 1}
TENSORS = {"x": x, "y": y, "index": torch.tensor([2, 0]), "mean": torch.rand(4, 1) + 0.5, "image": floats}


def nodes_of(case, graph, holders):
    """The nodes of a call: itself, and its results if it has several."""
    target, args, options = CALLS[case]

    def encoded(value):
        if isinstance(value, list):
            return [encoded(v) for v in value]
        return holders.get(value, value) if isinstance(value, str) else value

    call = graph.call_function(target, tuple(encoded(a) for a in args), options)
    if not operator_runs._has_several(call):
        return [call]
    count = RESULTS.get(case, len(target._schema.returns))
    return [call, *(graph.call_function(operator.getitem, (call, i)) for i in range(count))]


@pytest.mark.parametrize("case", CALLS)
def test_arguments_and_results(case):
    run, inputs = run_of(lambda graph, holders: nodes_of(case, graph, holders), TENSORS)
    in_cpp, in_python = run._call(inputs, [], run._handle), run._in_python(*inputs)
    assert len(in_cpp) == len(in_python) >= 1
    for a, b in zip(in_cpp, in_python, strict=True):
        assert same_bits(a, b) and a.stride() == b.stride()
        assert is_view_of(a, inputs[0]) == is_view_of(b, inputs[0])


@pytest.mark.parametrize("value", [0.5, "sum", [0.5, "a"]], ids=str)
def test_a_run_takes_no_argument_of_another_type(value):
    """torch.ops refuses it, with its own message."""
    calls = lambda graph, holders: [graph.call_function(aten.select.int, (holders["x"], value, 0))]
    with pytest.raises((operator_runs._NotInRuns, ValueError)):
        run_of(calls, TENSORS)


def test_a_call_that_no_run_holds_stays_in_python():
    """The others are in runs before and after it."""
    graph = Graph()
    holder = graph.placeholder("x")
    nodes = [holder]
    for target, *arguments in (
        [(aten.neg.default,)] * 6 + [(aten.select.int, "no", 0)] + [(aten.t.default,)] * 6
    ):
        nodes.append(graph.call_function(target, (nodes[-1], *arguments)))
    graph.output((nodes[-1],))
    runs = list(operator_runs._encoded("test", nodes[1:]))
    assert [[n.target for n in run.nodes] for run in runs] == [[aten.neg.default] * 6, [aten.t.default] * 6]


def chain(x):
    return (x.neg().relu() + 1).view(-1).exp().unsqueeze(0) * 2


class Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


CHAIN = ["neg", "relu", "add.Tensor", "view", "exp", "unsqueeze", "mul.Tensor"]


def test_a_dispatch_mode_sees_each_operator():
    graph = graph_of(chain)
    graph(x)
    with Record() as record:
        result = graph(x)
    assert torch.equal(result, chain(x))
    assert [name for name in record.names if "detach" not in name] == [f"aten::{name}" for name in CHAIN]


def test_a_tensor_subclass_sees_each_operator():
    names = []

    class Noted(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            names.append(function.name())
            return function(*(getattr(a, "inner", a) for a in args), **(kwargs or {}))

    def calls(graph, holders):
        node = graph.call_function(aten.neg.default, (holders["x"],))
        return [node, graph.call_function(aten.t.default, (node,))]

    run, _ = run_of(calls, TENSORS)
    assert torch.equal(run(Noted(x))[1], -x.t())
    assert names == ["aten::neg"]  # its result is a plain tensor


def test_a_profiler_sees_each_operator():
    graph = graph_of(chain)
    graph(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        graph(x)
    names = {event.name for event in profiler.events()}
    assert {"aten::neg", "aten::exp", "aten::mul"} <= names and "oneflow::run_of_operators" not in names


def test_results_are_views_of_what_they_are_in_eager_mode():
    def build(x):
        h = x + 1
        halves = h.split(2)
        return h, h.t(), halves[1], x.view(-1), x.t().unsqueeze(0)

    given = torch.randn(4, 6)
    graph = graph_of(build)
    for _ in range(2):
        h, turned, half, flat, of_argument = graph(given)
        assert is_view_of(turned, h) and is_view_of(half, h)
        assert half.storage_offset() == 12 and turned.stride() == (1, 6)
        assert is_view_of(flat, given) and is_view_of(of_argument, given)
        assert not any(t.requires_grad for t in (h, turned, half, flat, of_argument))


def test_other_memory_of_a_parameter():
    model = nn.Linear(6, 6)
    graph = graph_of(lambda x: chain(model(x)), model=model)
    for _ in range(3):
        assert torch.equal(graph(x), chain(model(x)))
        model.weight.data = torch.randn(6, 6).t()
        model.bias.data = torch.randn(12)[::2]


def test_an_error_is_that_of_the_operator():
    def build(table, index):
        rows = nn.functional.embedding(index, table.neg().neg())
        return (rows + 1).view(-1).exp()

    graph, table = graph_of(build), torch.randn(4, 3)
    assert torch.equal(graph(table, torch.tensor([1, 2])), build(table, torch.tensor([1, 2])))
    with pytest.raises(IndexError) as expected:
        build(table, torch.tensor([1, 7]))
    with pytest.raises(IndexError) as error:
        graph(table, torch.tensor([1, 7]))
    assert str(error.value) == str(expected.value) and error.value.__context__ is None
    assert torch.equal(graph(table, torch.tensor([3, 0])), build(table, torch.tensor([3, 0])))


def test_random_numbers_and_writes_are_not_in_runs():
    """Python repeats a run that fails."""

    def build(x):
        h = nn.functional.dropout(chain(x), 0.5)
        h.add_(1)
        return chain(h)

    graph = graph_of(build)
    torch.manual_seed(3)
    result = graph(x)
    torch.manual_seed(3)
    assert torch.equal(result, build(x))
    assert len(runs_in(graph.program)) == 2
    assert not any(
        "dropout" in str(n.target) or "add_" in str(n.target) for r in runs_in(graph.program) for n in r.nodes
    )


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(_runs, "is_loaded", lambda: False)
    graph = graph_of(chain)
    assert torch.equal(graph(x), chain(x)) and not runs_in(graph.program)


def chain_of_large_tensors(elements):
    """x -> a -> b -> c -> d, each one read once, then a small result."""
    graph = Graph()
    node = graph.placeholder("x")
    node.meta["tensor"] = describe(torch.empty(elements))
    nodes = []
    for _ in range(6):
        node = graph.call_function(aten.neg.default, (node,))
        node.meta["tensor"] = describe(torch.empty(elements))
        nodes.append(node)
    graph.output((node,))
    return graph, nodes


def test_a_run_keeps_no_tensor_that_the_peak_has_no_room_for():
    graph, nodes = chain_of_large_tensors(100)
    live = LiveMemory(graph)
    assert live.peak == 800
    assert live.fitting_part(nodes) == 6  # C++ drops what a run computes
    assert live.fitting_part(nodes[1:]) == 1  # its input stays until the end, beside two others


def test_runs_are_removed_with_their_program():
    run, inputs = run_of(lambda graph, holders: nodes_of("a view", graph, holders), TENSORS)
    handle = run._handle
    torch.ops.oneflow.run_of_operators(inputs, [], handle)
    del run
    with pytest.raises(RuntimeError, match="no run of operators"):
        torch.ops.oneflow.run_of_operators(inputs, [], handle)


def test_wrong_use_of_the_operators():
    ops = torch.ops.oneflow
    for sizes in ((2, 0, 1), (-1, 0, 1), (0, 0, 1 << 40), (0, -1, 0)):
        with pytest.raises(RuntimeError, match="no run has"):
            ops.new_run(*sizes)
    handle = ops.new_run(1, 0, 2)
    try:
        for indices in (([2], []), ([-2], []), ([1], [-1])):
            with pytest.raises(RuntimeError, match="found index"):
                ops.add_call(handle, "aten::neg", "", *indices)
        with pytest.raises(RuntimeError, match="has 1 results, found 2"):
            ops.add_call(handle, "aten::neg", "", [1, 1], [])
        with pytest.raises(RuntimeError, match="without calls"):
            ops.add_argument(handle, 2, [0], None)
        ops.add_call(handle, "aten::neg", "", [1], [])
        with pytest.raises(RuntimeError, match="lacks the argument self"):
            ops.set_outputs(handle, [1])
        with pytest.raises(RuntimeError, match="has 0 numbers, found index 0"):
            ops.add_argument(handle, 5, [0], [1.0])
        with pytest.raises(RuntimeError, match="needs 1 values"):
            ops.add_argument(handle, 5, [-1], None)
        with pytest.raises(RuntimeError, match="no source 9"):
            ops.add_argument(handle, 9, [0], None)
        ops.add_argument(handle, 2, [0], None)
        with pytest.raises(RuntimeError, match="has 1 arguments"):
            ops.add_argument(handle, 2, [0], None)
        ops.set_outputs(handle, [1])
        with pytest.raises(RuntimeError, match="takes 1 tensors and 0 numbers, found 2 and 0"):
            ops.run_of_operators([x, y], [], handle)
        assert torch.equal(ops.run_of_operators([x], [], handle)[0], -x)
    finally:
        ops.remove_run(handle)


def test_results_that_are_read_after_a_call_outside_of_the_run():
    """The largest value is taken in a run, and its index is read after the random numbers."""

    def build(x):
        values, index = chain(x).max(dim=1)
        noise = torch.rand(1)
        return values + noise, index.neg(), index.neg().neg().neg().neg()

    graph = graph_of(build)
    torch.manual_seed(3)
    results = graph(x)
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(results, build(x), strict=True))
    assert runs_in(graph.program)


def test_the_update_is_the_last_operator_of_a_run():
    """The learning rate of each call is one of its numbers."""
    model = nn.Linear(6, 5)
    twin = nn.Linear(6, 5)
    twin.load_state_dict(model.state_dict())
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin))

    def build(x):
        loss = chain(model(x)).mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer=optimizer, model=model)
    for rate in (0.1, 0.1, 0.01, 0.3):
        optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = rate
        other.zero_grad()
        expected = chain(twin(x)).mean()
        expected.backward()
        other.step()
        assert torch.equal(graph(x), expected)
        assert torch.equal(model.weight, twin.weight) and torch.equal(model.bias, twin.bias)
    (run,) = runs_in(with_updates(graph.program))
    assert run.nodes[-1].target is torch.ops.oneflow.blocks_.default


def test_an_error_before_the_update_leaves_the_parameters():
    model = nn.Sequential(nn.Embedding(4, 6), nn.Linear(6, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def build(index):
        loss = chain(model(index)).mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer=optimizer, model=model)
    for _ in range(2):
        graph(torch.tensor([1, 3]))
    before = [p.clone() for p in model.parameters()]
    versions = [p._version for p in model.parameters()]
    with pytest.raises(IndexError):
        graph(torch.tensor([1, 9]))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert [p._version for p in model.parameters()] == versions
