"""Exact passes keep results bitwise equal; the pass runner times, checks and skips passes."""

import copy

import pytest
import torch
from graph_cases import assert_same_training, graph_of
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import oneflow as flow
from oneflow._graph.errors import ProgramError
from oneflow._graph.program import passes
from oneflow._graph.program.locations import Argument
from oneflow._graph.program.node_editing import replace_nodes
from oneflow._graph.program.passes.patterns import kernel_for
from oneflow._graph.program.tensor_info import TensorInfo
from oneflow._graph.program.writes import silent_writes
from oneflow._kernels import _ext


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x) + x)) * 2 + x


def batches():
    torch.manual_seed(1)
    return [(torch.randn(3, 4),) for _ in range(10)]


def loss_of(model, x):
    return model(x).pow(2).mean()


def sgd(p):
    return torch.optim.SGD(p, lr=0.1, momentum=0.9)


def test_add_to_output_is_exact_and_happens():
    torch.manual_seed(0)
    graph = assert_same_training(
        Residual(), sgd, loss_of, batches(), setup=lambda g: g.config.allow_fuse_add_to_output(True)
    )
    forward = [n for n in graph.program.graph.nodes if n.meta.get("phase") == "forward"]
    assert any(n.target is torch.ops.aten.add_.Tensor for n in forward)


def test_cast_scale_is_exact_and_happens():
    def build(self, x):
        y = x.float()
        return y * 3.0, (x.double() * x), y

    results = []
    for on in (False, True):
        kind = type("G", (flow.nn.Graph,), {"build": build})
        graph = kind()
        graph.config.set_backend("aten")
        graph.config.allow_fuse_cast_scale(on)
        results.append(graph(torch.arange(4, dtype=torch.float16)))
        assert sum(n.target is torch.ops.aten.mul_.Tensor for n in graph.program.graph.nodes) == int(on), (
            "y is returned, x.double() dies"
        )
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("skip", ["drop_aliases", "merge_views", "drop_dead", "drop_constant_copies"])
def test_each_pass_can_be_skipped(skip):
    torch.manual_seed(0)

    def setup(graph):
        graph.config.passes(skip=[skip])

    graph = assert_same_training(Residual(), sgd, loss_of, batches(), setup=setup)
    assert skip not in [stage for stage, _, _ in graph.program.history]


def test_an_unknown_pass_is_refused_with_the_names_of_all():
    graph = flow.nn.Graph.trace(lambda x: x + 1)
    with pytest.raises(ValueError, match="found 'merge_view'; the passes are drop_aliases.*in_blocks"):
        graph.config.passes(skip=["drop_dead", "merge_view"])
    assert not graph.config._engine.skipped_passes


def test_exact_passes_only_shrink_the_program():
    torch.manual_seed(0)
    graph = assert_same_training(Residual(), sgd, loss_of, batches())
    counts = [count for stage, _, count in graph.program.history if not stage.startswith("compile")]
    assert counts == sorted(counts, reverse=True) and counts[-1] < counts[0]
    assert all(p.exactness in (passes.EXACT, passes.ROUNDING, passes.RANDOM) for p in passes.PASSES)


def test_replaced_nodes_vanish_from_every_argument():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.detach, (x,))
    second = graph.call_function(torch.detach, (first,))
    total = graph.call_function(torch.stack, ([second, x, first],), {"out": second})
    graph.output((total, second))

    replace_nodes(graph, lambda node: node.args[0] if node.target is torch.detach else None)
    graph.lint()
    assert [node.op for node in graph.nodes] == ["placeholder", "call_function", "output"]
    assert total.args == ([x, x, x],) and total.kwargs == {"out": x}
    assert list(graph.nodes)[-1].args == ((total, x),)


def test_check_finds_a_broken_program():
    class G(flow.nn.Graph):
        def build(self, x):
            return x + 1

    graph = G()
    graph.config.set_backend("aten")
    graph(torch.zeros(2))
    program = graph.program
    with pytest.raises(ProgramError, match="slots"):
        program.with_(slots=()).check()
    with pytest.raises(ProgramError, match="role"):
        program.with_(slots=(copy.copy(program.slots[0]).__class__("nonsense", "x", Argument(0)),)).check()


def test_cast_after_the_capture_makes_a_new_program():
    model = nn.Linear(2, 2)

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model

        def build(self, x):
            return self.m(x.to(self.m.weight.dtype))

    graph = G()
    graph.config.set_backend("aten")
    assert graph(torch.ones(1, 2)).dtype == torch.float32
    model.double()
    assert graph(torch.ones(1, 2)).dtype == torch.float64


def test_training_graph_called_under_no_grad():
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.m(x).sum()
            loss.backward()
            return loss

    with torch.no_grad():
        G()(torch.ones(1, 2))
    assert not torch.equal(before, model.weight)


def test_step_counters_go_up_in_one_call():
    torch.manual_seed(0)
    graph = assert_same_training(
        Residual(), lambda p: torch.optim.AdamW(p, lr=0.1, fused=True), loss_of, batches()
    )
    targets = [n.target for n in graph.program.graph.nodes]
    assert (
        torch.ops.aten._foreach_add_.Scalar not in targets and torch.ops.aten._fused_sgd_.default in targets
    )


def test_a_counter_rounds_as_in_eager():
    steps = [torch.tensor(v) for v in (0.0, 1.0, 0.1, 2.0**24 - 1, 2.0**24, 3e9)]
    expected = [s + 1 for s in steps]

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.steps = steps  # writes to attributes of the graph outlive a call

        def build(self):
            torch._foreach_add_(self.steps, 1)

    graph = G()
    graph.config.set_backend("aten")
    graph()
    assert all(torch.equal(a, b) for a, b in zip(steps, expected))
    assert any(n.target is torch.ops.aten._fused_sgd_.default for n in graph.program.graph.nodes)


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun in eager mode"])
def test_fused_steps_are_counted_where_float64_is_the_default_dtype(begun):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model, x = nn.Linear(4, 3), torch.ones(2, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        other = copy.deepcopy(model)
        eager = torch.optim.AdamW(other.parameters(), lr=0.1)

        class G(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)
                self.config.set_backend("aten")
                self.config.allow_fuse_model_update_ops(True)

            def build(self, x):
                loss = self.model(x).square().mean()
                loss.backward()
                return loss

        def step(model, optimizer):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        if begun:
            step(model, optimizer)
        graph = G()
        for _ in range(3 - begun):
            graph(x)
        for _ in range(3):
            step(other, eager)
        torch.testing.assert_close(list(model.parameters()), list(other.parameters()))
        assert [float(s["step"]) for s in optimizer.state.values()] == [3, 3]
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("fused", [False, True])
def test_version_counters_of_tensors_saved_by_autograd_rise_in_each_call(fused):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused))
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.m(x).pow(2).sum()
            loss.backward()
            return loss

    graph = G()
    graph(torch.ones(3, 4))
    tensors = [t for t in model.state_dict(keep_vars=True).values()]
    before = [t._version for t in tensors]
    graph(torch.ones(3, 4))
    assert all(t._version > b for t, b in zip(tensors, before))
    told = {graph.program.slots[i].role for i in silent_writes(graph.program)}
    assert told == ({"param", "buffer"} if fused else {"buffer"}), (
        "operators of the update that raise it by themselves are left alone"
    )


def test_biases_of_products_are_apart_for_inductor():
    from oneflow._graph.compile.inductor.matmul import part_biases

    def products(bias, rows, half, x, w):
        return (
            torch.addmm(bias, x, w),
            torch.addmm(rows, x, w),
            torch.addmm(bias, x, w, beta=0.5),
            torch.addmm(half, x.bfloat16(), w.bfloat16()),
        )

    inputs = (
        torch.randn(4),
        torch.randn(3, 4),
        torch.randn(4).bfloat16(),
        torch.randn(3, 5),
        torch.randn(5, 4),
    )
    traced = make_fx(products, tracing_mode="fake")(*inputs)
    part_biases(traced.graph)
    traced.recompile()
    targets = [n.target for n in traced.graph.nodes]
    assert targets.count(torch.ops.aten.addmm.default) == 3 and targets.count(torch.ops.aten.mm.default) == 1
    for actual, expected in zip(traced(*inputs), products(*inputs)):
        torch.testing.assert_close(actual, expected)


def test_rows_of_an_embedding_are_added_into_the_product_for_inductor():
    from oneflow._graph.compile.inductor.matmul import rows_into_product

    aten = torch.ops.aten
    put = aten._unsafe_masked_index_put_accumulate

    def sums(x, a, b, mask, index, rows):
        def table(fill=0.0):
            return put(aten.full([5, 3], fill), mask, [index], rows)

        kept = table()
        return (
            torch.addmm(table(), a, b),
            x + table(),
            table() + x,
            torch.addmm(table(), a, b, beta=2),
            torch.addmm(x, a, table()[:4]),
            x + table(1.0),
            kept,
            x + kept,
            x[:1] + table(),
        )

    index, mask = (
        torch.tensor([[1, 1, -1], [4, 0, 9]]),
        torch.tensor([[[True], [True], [True]], [[True], [True], [False]]]),
    )
    inputs = torch.randn(5, 3), torch.randn(5, 4), torch.randn(4, 3), mask, index, torch.randn(2, 3, 3)
    traced = make_fx(sums, tracing_mode="fake")(*inputs)
    rows_into_product(traced.graph)
    traced.graph.lint()
    traced.recompile()
    targets = [n.target for n in traced.graph.nodes]
    assert targets.count(put.default) == 5 and targets.count(aten._unsafe_index_put.default) == 3
    for actual, expected in zip(traced(*inputs), sums(*inputs)):
        torch.testing.assert_close(actual, expected)


def test_fusing_passes_ask_whether_the_kernels_are_built_for_the_gpu():
    on_gpu = TensorInfo((8, 8), torch.float32, torch.device("cuda", 0), (8, 1))
    has_kernels = _ext.status() == "loaded" and _ext.has_kernels("cuda")
    assert kernel_for(on_gpu) == has_kernels
    assert not kernel_for(TensorInfo((8, 8), torch.int64, torch.device("cuda", 0), (8, 1)))


def reduced(x):
    rows, both = x.sum(0, keepdim=True).view(-1), x.sum((0, -1), keepdim=True).view(())
    return rows, both, x.sum(1, keepdim=True).view(1, -1), x.sum(0, keepdim=True).view(2, -1)


def test_sum_drops_the_dimensions_that_a_view_drops():
    graph, x = graph_of(reduced), torch.randn(301, 204)
    graph.config.passes(check=True)
    results, expected = graph(x), reduced(x)
    assert all(map(torch.equal, results, expected))
    assert [a.stride() for a in results] == [b.stride() for b in expected]
    kept = [n.args[2:] for n in graph.program.graph.nodes if n.target is torch.ops.aten.sum.dim_IntList]
    assert kept == [(), (), (True,), (True,)]


def test_sum_with_another_reader_keeps_its_dimensions():
    def normalized(x):
        total = x.sum(0, keepdim=True)
        return x / total, total.view(-1)

    graph, x = graph_of(normalized), torch.rand(5, 4)
    assert all(map(torch.equal, graph(x), normalized(x)))
    assert [n.args[2:] for n in graph.program.graph.nodes if n.target is torch.ops.aten.sum.dim_IntList] == [
        (True,)
    ]
