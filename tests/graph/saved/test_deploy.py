"""Saved graphs: a fresh process runs them without their class."""

import copy
import subprocess
import sys
import textwrap

import pytest
import torch
from deploy_cases import Infer, Net, Train, data

import oneflow as flow
import oneflow.nn as nn
from oneflow._graph.compile import default_backend
from oneflow._graph.saved.package import PackageError
from oneflow._kernels import _ext


def test_inference_in_a_fresh_process(tmp_path):
    flow.manual_seed(0)
    x, _ = data()
    graph = Infer(Net().eval())
    want = graph(x)
    graph.save(tmp_path / "net")
    flow.save({"x": x}, str(tmp_path / "x.pt"))
    code = f"""
        import oneflow as flow, torch
        graph = flow.load_graph({str(tmp_path / "net")!r})
        torch.manual_seed(1)
        out = graph(torch.randn(6, 4))
        print(out["none"], out["two"], out["logits"].flatten().tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("None 2 ")
    assert eval(done.stdout[len("None 2 ") :]) == want["logits"].flatten().tolist()


def test_training_goes_on_exactly(tmp_path):
    flow.manual_seed(0)
    x, y = data()
    graph = Train(Net())
    for _ in range(3):
        graph(x, y)
    graph.save(tmp_path / "train")
    flow.manual_seed(5)
    want = [graph(x, y).item() for _ in range(4)]
    loaded = flow.load_graph(tmp_path / "train")
    assert loaded.training and loaded.lr == {"optimizer0.group0.lr": 0.01}
    flow.manual_seed(5)
    assert [loaded(x, y).item() for _ in range(4)] == want
    loaded.save(tmp_path / "again")
    again = flow.load_graph(tmp_path / "again")
    assert all(
        torch.equal(torch.as_tensor(v), torch.as_tensor(again.state_dict()[k]))
        for k, v in loaded.state_dict().items()
    )
    loaded.set_lr(0.0)
    before = loaded.state_dict()["model.body.0.weight"].clone()
    loaded(x, y)
    assert torch.equal(before, loaded.state_dict()["model.body.0.weight"])
    with pytest.raises(KeyError, match="no learning rate"):
        loaded.set_lr(1.0, "other")


def test_a_loaded_update_runs_in_blocks(tmp_path):
    from oneflow._graph.compile import update_blocks

    x, y = data()
    graph = Train(Net())
    graph.config.set_backend("aten")
    graph(x, y)
    graph.save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    assert loaded.backend == "aten"  # as the graph was set to

    def taken(program):
        return sum(
            isinstance(n.target, update_blocks.Blocks) for n in update_blocks.in_blocks(program).graph.nodes
        )

    assert taken(loaded.program) == taken(graph.program)
    assert str(loaded.program).partition("def ")[2] == str(graph.program).partition("def ")[2]


@pytest.mark.parametrize("layer", [nn.Linear, nn.GRU])
def test_a_loaded_graph_is_compiled(tmp_path, layer):
    """By the backend asked for: the numbers of the graph it was, regions, recurrent kernels and all."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = layer(5, 7), nn.Linear(7, 3)

        def forward(self, x):
            out = self.layer(x)
            return self.head(out[0] if isinstance(out, tuple) else out)

    flow.manual_seed(0)
    graph, x, y = Train(Model()), flow.randn(6, 4, 5), flow.randint(0, 3, (6, 3))
    graph.config.set_backend("inductor")
    graph(x, y)
    graph.save(tmp_path / "g")
    want = [graph(x, y) for _ in range(3)]
    assert flow.load_graph(tmp_path / "g").backend == default_backend()
    loaded = flow.load_graph(tmp_path / "g", backend="inductor")
    assert loaded.backend == "inductor" and all(torch.equal(loaded(x, y), w) for w in want)
    ours, theirs = (
        {str(n.target) for n in run.region.graph.nodes if "oneflow" in str(n.target)}
        for run in (loaded.programs[0]._run, graph._engine.last_entry.run)
    )
    assert ours == theirs and bool(ours) == (layer is nn.GRU and _ext.status() == "loaded")
    loaded.save(tmp_path / "again")
    with pytest.raises(ValueError, match="unknown graph backend 'fast'"):
        flow.load_graph(tmp_path / "again", backend="fast")


@pytest.mark.parametrize("dialect", ["oneflow", "torch"])
def test_a_loaded_graph_takes_any_strides_and_writes_its_arguments_as_the_captured_one_did(tmp_path, dialect):
    @nn.Graph.trace
    def add(x, total):
        total += (x * 2).view(-1).sum()
        return total.view(-1)[:2] + 1

    x, total = torch.randn(3, 4), torch.zeros(2, 3)
    flow.set_dialect(dialect)
    try:
        add(x, total)
    finally:
        flow.set_dialect("oneflow")
    add.save(tmp_path / "g")
    for backend in ("aten", "inductor"):
        loaded, turned = flow.load_graph(tmp_path / "g", backend=backend), torch.zeros(3, 2).t()
        transposed = torch.randn(4, 3).t()
        out = loaded(transposed, turned)
        total = (transposed * 2).sum()
        torch.testing.assert_close(turned, (total if dialect == "torch" else torch.zeros(())).expand(2, 3))
        torch.testing.assert_close(out, total.expand(2) + 1)


def test_wrong_arguments_are_named(tmp_path):
    x, y = data()
    graph = Train(Net())
    graph(x, y)
    graph.save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    with pytest.raises(TypeError, match=r"argument 'x'.*float32\[6, 4\], found torch.float32\[2, 4\]"):
        loaded(x[:2], y)
    with pytest.raises(
        TypeError,
        match=(
            r"saved for the call \(torch.float32\[6, 4\], torch.int64\[6\]\), found \(torch.float32\[6,"
            r" 4\]\)"
        ),
    ):
        loaded(x)
    with pytest.raises(TypeError, match="argument 'y'.*must be a tensor, found ndarray"):
        loaded(x, y.numpy())


def test_python_arguments_of_a_saved_program_are_fixed(tmp_path):
    @nn.Graph.trace
    def scaled(x, factor, *, turned=False, by=None):
        return -x * factor if turned else x * factor + by

    scaled.config.set_backend("aten")
    scaled(torch.ones(2), 3, turned=False, by=torch.ones(2))
    scaled.save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    assert loaded(torch.ones(2), 3, by=torch.ones(2), turned=False).tolist() == [4, 4]  # in any order
    for wrong, message in (
        ((4, False), "'factor'.*was 3 when it was saved, found 4"),
        ((3, True), "'turned'.*was False.*found True"),
        ((3.0, False), "'factor'.*found 3.0"),
        ((torch.ones(1), False), "'factor'"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded(torch.ones(2), wrong[0], turned=wrong[1], by=torch.ones(2))


def test_a_generator_nobody_draws_from_is_no_part_of_a_saved_program(tmp_path):
    """onediff's modules make one whenever their dropout is called."""

    @nn.Graph.trace
    def evaluated(x):
        return nn.functional.dropout(
            x * 2, 0.5, False, generator=flow.Generator()
        ), flow.Generator().manual_seed(3).initial_seed()

    evaluated.config.set_backend("aten")
    evaluated(torch.ones(2))
    evaluated.save(tmp_path / "g")
    out, seed = flow.load_graph(tmp_path / "g")(torch.ones(2))
    assert out.tolist() == [2, 2] and seed == 3


def test_saving_before_the_first_call_and_over_other_files(tmp_path):
    graph = Infer(Net().eval())
    with pytest.raises(RuntimeError, match="no program yet"):
        graph.save(tmp_path / "g")
    graph(data()[0])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("x")
    with pytest.raises(PackageError, match="something else"):
        graph.save(tmp_path / "full")
    assert (tmp_path / "full" / "precious.txt").exists() and not list(tmp_path.glob(".graph*"))
    graph.save(tmp_path / "g")
    graph.save(tmp_path / "g")  # over an older graph


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(4, 5, num_layers=2), nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.cell(x.unsqueeze(1))[0][:, 0])


@pytest.mark.parametrize("model", [Net, Tagger])
def test_a_training_graph_goes_on_in_a_fresh_process(tmp_path, model):
    flow.manual_seed(0)
    graph, (x, y) = Train(model()), data()
    for _ in range(2):
        graph(x, y)
    graph.save(tmp_path / "g")
    flow.manual_seed(5)
    want = [graph(x, y).item() for _ in range(3)]
    code = f"""
        import oneflow as flow, torch
        graph = flow.load_graph({str(tmp_path / "g")!r})
        torch.manual_seed(1)
        x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
        flow.manual_seed(5)
        print([graph(x, y).item() for _ in range(3)])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == want


def test_an_lstm_trains_also_when_called_under_no_grad():
    flow.manual_seed(0)
    x, y = data()
    graphs = [Train(m) for m in (lambda m: (m, copy.deepcopy(m)))(Tagger())]
    for _ in range(2):
        with torch.no_grad():
            lost = graphs[1](x, y)
        assert torch.equal(graphs[0](x, y), lost)


def test_all_programs_of_a_graph_are_kept(tmp_path):
    """Shapes, Python arguments and structures that it was called with before; they share weights and
    state.
    """

    class Step(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.01))
            self.config.set_backend("aten")

        def build(self, x, y, smoothing=0.0, weight=None):
            loss = nn.functional.cross_entropy(self.model(x), y, weight, label_smoothing=smoothing)
            loss.backward()
            return loss

    flow.manual_seed(0)
    graph, weight = Step(nn.Linear(4, 2)), torch.tensor([1.0, 2.0])
    calls = [
        lambda g, x, y: g(x, y),
        lambda g, x, y: g(x[:3], y[:3]),
        lambda g, x, y: g(x, y, 0.1),
        lambda g, x, y: g(x, y, weight=weight),
    ]
    for call in calls:
        call(graph, *data())
    graph.save(tmp_path / "g")
    want = [call(graph, *data()) for call in calls * 2]
    loaded = flow.load_graph(tmp_path / "g")
    assert [torch.equal(call(loaded, *data()), w) for call, w in zip(calls * 2, want)] == [True] * 8
    assert (
        len(loaded.programs) == 4
        and loaded.state_dict().keys() == flow.load_graph(tmp_path / "g").state_dict().keys()
    )
    assert sum(name.startswith("model.") for name in loaded.state_dict()) == 2
    loaded.set_lr(0.0)
    before = loaded.state_dict()["model.weight"].clone()
    for call in calls:
        call(loaded, *data())
    assert torch.equal(before, loaded.state_dict()["model.weight"])
    x, y = data()
    for wrong in (lambda: loaded(x[:1], y[:1]), lambda: loaded(x, y, 0.3), lambda: loaded(x)):
        with pytest.raises(TypeError, match=r"was saved for the calls \(.*\), \(.*\), found \("):
            wrong()
    loaded.save(tmp_path / "again")
    assert len(flow.load_graph(tmp_path / "again").programs) == 4


def test_programs_of_some_values_are_kept_with_what_they_are_for(tmp_path):
    def checked(x, mask):
        return x * 2 if mask.all() else x

    x, mask = torch.ones(3), torch.tensor([True, True, False])
    graph = nn.Graph.trace(checked)
    graph.config.set_backend("aten")
    graph(x, ~mask)
    with pytest.raises(NotImplementedError, match="decides by the values of mask"):
        graph.export(tmp_path / "g.pt2")
    graph.save(tmp_path / "one")
    loaded = flow.load_graph(tmp_path / "one")
    assert torch.equal(loaded(x, mask), x)
    with pytest.raises(ValueError, match="decides by values, and no saved program is of these"):
        loaded(x, mask | True)
    graph(x, mask | True)
    graph.save(tmp_path / "both")
    loaded = flow.load_graph(tmp_path / "both")
    assert torch.equal(loaded(x, mask), x) and torch.equal(loaded(x, mask | True), 2 * x)
    graph = nn.Graph.trace(lambda x, mask: x[mask])
    graph.config.set_backend("aten")
    graph(x, mask)
    graph.save(tmp_path / "rows")
    assert flow.load_graph(tmp_path / "rows")(x, mask).tolist() == [1, 1]
    graph(x, ~mask)
    graph.save(tmp_path / "rows")  # the program for all sizes
    assert flow.load_graph(tmp_path / "rows")(x, mask | True).tolist() == [1, 1, 1]


def test_both_ways_of_a_branch_on_a_size_are_kept(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            rows = nn.functional.dropout(x[x > 0], 0.5)
            return rows * 2 if rows.numel() > 2 else rows - 1

    def inputs():
        return [
            torch.tensor(v) for v in ([1.0, -1, -1, -1], [1.0, 2, 3, -1], [1.0, 2, -1, -1], [3.0, 2, 1, 0.5])
        ]

    model = Counting()
    graph = Infer.__new__(Infer)
    nn.Graph.__init__(graph)
    graph.model = model
    graph.config.set_backend("aten")
    for x in inputs():
        graph(x)
    graph.save(tmp_path / "g")
    loaded = flow.load_graph(tmp_path / "g")
    model.calls.zero_(), loaded.state_dict()["model.calls"].zero_()
    for x in inputs():
        flow.manual_seed(3)
        want = graph(x)["logits"]
        flow.manual_seed(3)
        assert torch.equal(loaded(x)["logits"], want)
    assert loaded.state_dict()["model.calls"] == model.calls == 4
