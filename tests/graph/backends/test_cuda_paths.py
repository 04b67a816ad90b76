"""GPU code paths, tested without a GPU: symbolic tensors on "cuda", with the functions of torch.cuda
replaced.
"""

import contextlib

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import oneflow as flow
from oneflow._graph.assumptions import Assumptions
from oneflow._graph.capture.patches.recurrent_layers import _cudnn_layer, recurrent_layers
from oneflow._graph.capture.recorder import Recorder
from oneflow._graph.compile import cudagraph
from oneflow._graph.definition import GraphDefinition

aten = torch.ops.aten


# -- LSTM, GRU, RNN ---------------------------------------------------------------------
def symbols(recorder, **shapes):
    tensors = []
    for name, shape in shapes.items():
        with recorder.fake_mode:
            tensors.append(torch.empty(shape, device="cuda"))
        tensors[-1]._of_node = recorder.placeholder(name, torch.empty(shape))
    return tensors


@pytest.mark.parametrize(
    "name, hidden, projected, batch_first, sizes",
    [
        ("lstm", 5, 0, True, ()),
        ("lstm", 5, 3, False, ()),
        ("gru", 5, 0, True, ()),
        ("rnn_tanh", 5, 0, False, ()),
        ("lstm", 5, 0, False, (2, 2, 1)),
    ],
)
def test_a_recurrent_layer_is_one_operator(name, hidden, projected, batch_first, sizes):
    layer = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}[name](
        4, hidden, 2, batch_first=batch_first, **({"proj_size": projected} if projected else {})
    )
    x_on_cpu = torch.randn(5, 4) if sizes else torch.randn((2, 3, 4) if batch_first else (3, 2, 4))
    expected, _ = layer(x_on_cpu if not sizes else nn.utils.rnn.PackedSequence(x_on_cpu, torch.tensor(sizes)))
    recorder = Recorder()
    x, h, c = symbols(recorder, x=x_on_cpu.shape, h=(2, 2, projected or hidden), c=(2, 2, hidden))
    weights = symbols(recorder, **{n: w.shape for n, w in layer.named_parameters()})
    with recorder:
        out, *last = _cudnn_layer(
            name, x, sizes, (h, c) if name == "lstm" else h, weights, True, 2, 0.0, True, False, batch_first
        )
    assert out.shape == (expected.data if sizes else expected).shape and out.device.type == "cuda"
    assert [t.shape for t in last] == [h.shape, c.shape][: len(last)]
    assert [n.target for n in recorder.graph.nodes if n.op == "call_function" and n.target is not len].count(
        aten._cudnn_rnn.default
    ) == 1


def test_the_gradients_of_all_weights_are_a_list_among_the_results():
    recorder = Recorder()
    x, h, out, kept, reserve, *weights = symbols(
        recorder,
        x=(3, 2, 4),
        h=(1, 2, 5),
        out=(3, 2, 5),
        kept=(65,),
        reserve=(0,),
        a=(15, 4),
        b=(15, 5),
        c=(15,),
        d=(15,),
    )
    with recorder:
        dx, dh, dc, actual = aten._cudnn_rnn_backward(
            x,
            weights,
            4,
            kept,
            h,
            None,
            out,
            out,
            None,
            None,
            3,
            5,
            0,
            1,
            False,
            0.0,
            True,
            False,
            [],
            None,
            reserve,
            [True, True, False, True],
        )
        total = actual[0].sum() + actual[3].sum() + dx.sum()
    assert [g.shape for g in actual] == [w.shape for w in weights] and (dx.shape, dh.shape, dc) == (
        x.shape,
        h.shape,
        None,
    )
    names = [str(n) for n in recorder.graph.nodes if n.op == "call_function" and n.target is not len]
    assert len(names) == len(set(names)) and total._of_node.name in names


def test_the_fused_sgd_runs_no_kernel_while_it_is_recorded(monkeypatch):
    def refuse(*args):
        raise AssertionError("a kernel ran on zeros")

    monkeypatch.setattr("torch._subclasses.fake_tensor.run_fallback_kernel", refuse)
    recorder = Recorder()
    w, g = symbols(recorder, w=(3, 2), g=(3, 2))
    with recorder:
        torch._fused_sgd_(
            [w],
            [g],
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
    assert aten._fused_sgd_.default in [n.target for n in recorder.graph.nodes]


def test_flattening_weights_is_left_out_of_a_program():
    seen = []
    with recurrent_layers(lambda: True, Recorder()):
        nn.LSTM(2, 2).flatten_parameters()
        seen.append(torch._VF.lstm)
    assert torch._VF.lstm is not seen[0]


# -- autocast and random numbers ---------------------------------------------------------
def test_gradients_of_an_amp_graph_have_the_types_of_the_forward_operators():
    torch.manual_seed(0)
    layer, x = nn.Linear(33, 17), torch.randn(5, 33)

    def build(x):
        with torch.autocast("cpu", enabled=False):
            loss = layer(x).square().sum()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer=torch.optim.SGD(layer.parameters(), lr=1.0), layer=layer)
    graph.config.enable_amp(True, dtype=torch.bfloat16)
    before = layer.weight.detach().clone()
    x.requires_grad_(False)
    y = layer(x)
    (expected,) = torch.autograd.grad(y.square().sum(), layer.weight)
    graph(x)
    assert torch.equal(before - expected, layer.weight)


@pytest.mark.parametrize("backend", ["aten", "auto", "inductor"])
def test_recomputed_dropout_is_the_same_dropout(backend):
    w, x = nn.Parameter(torch.ones(40, 40)), torch.ones(40, 40)

    def build(x):
        y = checkpoint(lambda t: F.dropout(t * w, 0.5).square().square(), x, use_reentrant=False)
        y.sum().backward()
        return y

    graph = graph_of(build, optimizer=torch.optim.SGD([w], lr=0.1))
    graph.config.set_backend(backend)
    for _ in range(4):
        before = w.detach().clone()
        y = graph(x)
        assert torch.equal(y != 0, w.detach() != before)


def test_states_of_cuda_generators_are_read_and_set_by_the_program(monkeypatch):
    calls = []
    state = torch.arange(16, dtype=torch.uint8)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    for place in (torch.cuda, torch.cuda.random):
        monkeypatch.setattr(
            place, "get_rng_state", lambda device="cuda": calls.append(("get", device)) or state
        )
        monkeypatch.setattr(
            place, "set_rng_state", lambda new, device="cuda": calls.append(("set", new.tolist(), device))
        )

    def build(x):
        kept = torch.cuda.get_rng_state()
        y = x + 1
        torch.cuda.set_rng_state(kept)
        return y

    graph = graph_of(build)
    graph(torch.ones(2))
    calls.clear()
    state.add_(1)
    graph(torch.ones(2))
    assert calls == [("get", 3), ("set", list(range(1, 17)), 3)]


def test_amp_takes_the_device_of_the_weights_where_no_argument_is_a_tensor():
    from oneflow._graph.capture.build import autocast
    from oneflow._graph.capture.capture import Capture
    from oneflow._graph.config import Config

    capture = Capture(GraphDefinition(lambda: None), Assumptions(), (), {}, Config(amp=True), {})
    capture.tensors = [torch.empty(0)]
    assert autocast(capture).device == "cpu"
    with flow._graph.capture.recorder.FakeTensorMode():
        capture.tensors = [torch.empty(0), torch.empty(0, device="cuda")]
    with (
        pytest.warns(UserWarning, match="CUDA is not available")
        if not torch.cuda.is_available()
        else contextlib.nullcontext()
    ):
        assert autocast(capture).device == "cuda"


def test_a_program_with_operators_of_another_device_is_refused_by_name(tmp_path):
    from oneflow._graph.saved.package import PackageError, load

    model = nn.BatchNorm1d(3)
    graph = graph_of(lambda x: model(x), model=model)
    graph(torch.randn(4, 3))
    graph.save(str(tmp_path / "p"))
    assert load(tmp_path / "p", map_location="cpu")(torch.randn(4, 3)).shape == (4, 3)
    file = tmp_path / "p" / "program.json"
    file.write_text(file.read_text().replace("aten::native_batch_norm", "aten::cudnn_batch_norm"))
    with pytest.raises(PackageError, match="aten::cudnn_batch_norm has no kernel for the device 'cpu'"):
        load(tmp_path / "p", map_location="cpu")


# -- CUDA graphs, with a recording that runs the region again in place of a GPU ----------------
class Recording:
    """In place of torch.cuda.CUDAGraph: a replay computes into the memory of the recorded outputs."""

    made: list = []

    def __init__(self):
        Recording.made.append(self)

    def replay(self):
        for kept, new in zip(self.owner.outputs, self.owner.region(*self.owner.inputs)):
            kept.copy_(new)


@pytest.fixture
def recordings(monkeypatch):
    class Stream:
        def wait_stream(self, other):
            pass

    Recording.made = []
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda s: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **kw: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
    record = cudagraph.Recorded._record

    def recorded(self, *args):
        state = torch.get_rng_state()
        record(self, *args)
        assert torch.equal(state, torch.get_rng_state()), "recording drew random numbers"
        self.graph.owner = self

    monkeypatch.setattr(cudagraph.Recorded, "_record", recorded)
    return Recording.made


def on_gpu(program):
    """The program with its slots marked as on a GPU; its operators run on the device of the tensors."""
    from dataclasses import replace

    return program.with_(
        slots=tuple(
            s if s.shape is None else replace(s, device=torch.device("cuda", 0)) for s in program.slots
        )
    )


def test_a_recorded_step_trains_as_the_plain_one(recordings, monkeypatch):
    from oneflow._graph import compile

    plain = compile.compiler_for

    def compiler_for(name):
        compile_plain = plain(name)
        return lambda program, config: (
            cudagraph.compile(on_gpu(program), config, "aten")
            if config.cudagraph
            else compile_plain(program, config)
        )

    def train(cuda_graph):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))

        def build(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        graph = graph_of(build, optimizer=torch.optim.Adam(model.parameters(), lr=0.01), model=model)
        graph.config.enable_cudagraph(cuda_graph)
        batches = [torch.randn(5, 6) for _ in range(4)]
        losses = [graph(b) for b in batches]
        with torch.no_grad():
            model[0].weight.data = model[0].weight.data.clone()  # other memory: recorded again
        return [*losses, graph(batches[0]), *model.state_dict().values()]

    expected = train(False)
    monkeypatch.setattr("oneflow._graph.compilation.compiler_for", compiler_for)
    actual = train(True)
    assert len(recordings) == 2
    assert all(torch.equal(a, b) for a, b in zip(expected, actual))


def test_what_a_recording_gives_is_not_written_by_the_next_one(recordings):
    recorded = cudagraph.Recorded(lambda x, w: (x * w,), [0])
    w = torch.full((3,), 2.0)
    first = recorded(torch.ones(3), w)
    second = recorded(torch.full((3,), 5.0), w)
    assert first[0].tolist() == [2.0] * 3 and second[0].tolist() == [10.0] * 3 and len(recordings) == 1


def test_an_input_that_moves_is_copied_from_then_on(recordings):
    recorded = cudagraph.Recorded(lambda x, w, v: (x * w + v,), [0], [1])
    v = torch.ones(3)
    results = [recorded(torch.ones(3), torch.full((3,), float(w)), v)[0].tolist() for w in range(4)]
    assert results == [[w + 1.0] * 3 for w in range(4)] and len(recordings) == 2
    moved = torch.full((3,), 7.0)  # not movable: recorded again
    assert recorded(torch.ones(3), torch.ones(3), moved)[0].tolist() == [8.0] * 3 and len(recordings) == 3
