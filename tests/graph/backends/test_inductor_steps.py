"""GRU and RNN layers under inductor: the recorded steps become one operator for forward and one for backward,
with the same values.
"""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import oneflow as flow
from oneflow._graph.compile.inductor.gru_rnn import merge_steps
from oneflow._graph.compile.inductor.regions import split
from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"oneflow._ext: {_ext.status()}")


class Step(flow.nn.Graph):
    def __init__(self, build, modules, backend="aten"):
        super().__init__()
        self.run, self.modules_ = build, nn.ModuleList(modules)
        self.config.set_backend(backend)
        parameters = [p for m in modules for p in m.parameters() if p.requires_grad]
        if parameters:
            self.add_optimizer(torch.optim.SGD(parameters, lr=0.1))

    def build(self, x):
        return self.run(x)


def region(build, x, *modules):
    graph = Step(build, modules)
    graph(x)
    return split(graph.program)[0]


def merged(build, x, *modules, dtype=torch.float64):
    """{operator: how many} after the layers are merged; the results were equal before and after."""
    module = region(build, x, *modules)
    torch.manual_seed(1)
    values = [
        torch.randn(n.meta["tensor"].shape, dtype=dtype) / 2
        for n in module.graph.nodes
        if n.op == "placeholder"
    ]
    expected = torch.fx.Interpreter(module, graph=module.graph).run(*copy.deepcopy(values))
    merge_steps(module.graph)
    module.graph.lint()
    got_all = torch.fx.Interpreter(module, graph=module.graph).run(*copy.deepcopy(values))
    for got, reference in zip(got_all, expected, strict=True):
        torch.testing.assert_close(got, reference, rtol=1e-10, atol=1e-10)
    names = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    return {name: names.count(name) for name in names}


def layer(kind, width=4, hidden=5, **options):
    torch.manual_seed(0)
    options = {"dtype": torch.float64, **options}
    return (
        nn.GRU(width, hidden, **options)
        if kind == "gru"
        else nn.RNN(width, hidden, nonlinearity=kind, **options)
    )


def numbers(steps=3, batch=2, width=4):
    return torch.ones(steps, batch, width, dtype=torch.float64)


def alone(operators, kind, layers=1):
    """Nothing of the steps is left: so many operators each way, and products over all steps only."""
    name = "gru" if kind == "gru" else "rnn"
    return (
        operators.get(f"oneflow.{name}.default") == layers
        and operators.get(f"oneflow.{name}_backward.default") == layers
        and not any("_." in n or "tanh" in n for n in operators)
    )


@pytest.mark.parametrize("used", ["out", "last", "both", "one step"])
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True, "bias": False}, {"bidirectional": True, "num_layers": 2}], ids=str
)
@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])
def test_a_training_step(kind, options, used):
    model = layer(kind, **options)

    def build(x):
        out, last = model(x)
        loss = {
            "out": lambda: out.square().sum(),
            "last": lambda: last.sin().sum(),
            "both": lambda: out.sum() + last.square().sum(),
            "one step": lambda: out[-1].sum(),
        }[used]()
        loss.backward()
        return out, last

    operators = merged(build, numbers(), model)
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    assert alone(operators, kind, layers) and operators["aten.mm.default"] <= (4 if options else 3) * layers
    assert ("aten.sum.dim_IntList" in operators) == (not options.get("batch_first"))


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("kind", ["gru", "relu"])
def test_few_steps_and_a_trained_first_state(kind, steps):
    model, start = layer(kind), layer("tanh", 2, 2)
    start.first = nn.Parameter(torch.randn(1, 2, 5, dtype=torch.float64))

    def build(x):
        out, last = model(x, start.first)
        (
            out.square().sum() + last.sum() + (start.first * last).sum()
        ).backward()  # the state is used elsewhere as well
        return out

    assert alone(merged(build, numbers(steps), model, start), kind)


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2},
        {"bidirectional": True, "batch_first": True, "bias": False, "num_layers": 2, "dropout": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])
def test_inference(kind, options, trainable):
    model = layer(kind, **options).eval().requires_grad_(trainable)
    start = torch.randn(
        4 if "bidirectional" in options else 2, 3 if "batch_first" in options else 2, 5, dtype=torch.float64
    )
    graph, x = (
        Step(lambda x: model(x, start), [] if trainable else [model]),
        torch.randn(3, 2, 4, dtype=torch.float64),
    )
    for _ in range(2):
        for got, expected in zip(graph(x), model(x, start), strict=True):
            assert torch.equal(got, expected) and got.stride() == expected.stride()
    calls = [n.target for n in graph.program.graph.nodes if n.op == "call_function"]
    # and its two results
    assert sum("aten.gru" in str(c) or "aten.rnn" in str(c) for c in calls) == 1 and len(calls) == 3
    module = split(graph.program)[0]
    values = [x, start, *model.parameters()]
    order = [n.meta["tensor"].shape for n in module.graph.nodes if n.op == "placeholder"]
    assert order == [v.shape for v in values]
    merge_steps(module.graph)
    results = torch.fx.Interpreter(module, graph=module.graph).run(*values)
    for got, expected in zip(results, model(x, start), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_inference_with_dropout_or_autocast_is_step_by_step():
    model = layer("gru", num_layers=2, dropout=0.5, dtype=torch.float32).requires_grad_(False)
    graph, x = Step(lambda x: model(x)[0], [model]), torch.ones(3, 2, 4)
    torch.manual_seed(3)
    got = graph(x)
    torch.manual_seed(3)
    assert torch.equal(got, model(x)[0])
    model.eval()

    def build(x):
        with torch.autocast("cpu"):
            return model(x)[0]

    assert torch.equal(Step(build, [model])(x), build(x)) and not torch.equal(build(x), model(x)[0])


def test_an_input_without_batch():
    model = layer("gru")

    def build(x):
        loss = model(x[:, 0])[0].sum()
        loss.backward()
        return loss

    assert alone(merged(build, numbers(), model), "gru")


@pytest.mark.parametrize(
    "frozen",
    ["weight_hh_l0", "weight_ih_l0", "bias_hh_l0", "weight_hh_l0 bias_hh_l0", "weight_ih_l0 bias_ih_l0"],
)
@pytest.mark.parametrize("kind", ["gru", "tanh"])
def test_frozen_parameters(kind, frozen):
    model = layer(kind)
    for name in frozen.split():
        getattr(model, name).requires_grad_(False)

    def build(x):
        loss = model(x)[0].square().sum()
        loss.backward()
        return loss

    assert alone(merged(build, numbers(), model), kind)


def test_weights_used_elsewhere_and_twice():
    encoder, decoder = layer("gru", 5), layer("tanh", 5)

    def build(x):
        out, last = encoder(x)
        again, _ = encoder(out, last)
        third, _ = decoder(again, last)
        (
            third.square().sum()
            + encoder.weight_hh_l0.square().sum()
            + encoder.bias_hh_l0.sum()
            + decoder(third)[0].sum()
        ).backward()
        return again

    operators = merged(build, numbers(width=5), encoder, decoder)
    assert (operators["oneflow.gru_backward.default"], operators["oneflow.rnn_backward.default"]) == (
        2,
        2,
    ) and not any("sigmoid" in n for n in operators)


def test_hooks_that_change_gradients():
    model = layer("gru", 5, num_layers=2)

    def build(x):
        out, last = model(x)
        out.register_hook(lambda g: g * 3)
        last.register_hook(lambda g: g * 2)
        loss = out.sum() + last.square().sum()
        loss.backward()
        return loss

    assert alone(merged(build, numbers(width=5), model), "gru", 2)


def test_results_written_in_place():
    model = layer("gru")

    def build(x):
        with torch.no_grad():
            kept = model(x)[0]
            kept.add_(1)
        out, last = model(x)
        loss = (out * kept).sum() + last.sum()
        loss.backward()
        out.detach().mul_(2)  # the tensor that backward reads was copied into `out`
        return out, loss, kept

    operators = merged(build, numbers(), model)
    assert operators["oneflow.gru.default"] == operators["oneflow.gru_backward.default"] == 1


def test_gradients_of_gradients_keep_the_steps():
    model = layer("gru")

    def build(x):
        loss = model(x)[0].square().sum()
        (g,) = torch.autograd.grad(loss, [model.weight_hh_l0], create_graph=True)
        (loss + g.square().sum()).backward()
        return loss

    operators = merged(build, numbers(), model)
    assert "oneflow.gru_backward.default" not in operators


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_layers_stay_step_by_step(reentrant):
    model = layer("gru")

    def build(x):
        loss = checkpoint(lambda v: model(v)[0], x.requires_grad_(), use_reentrant=reentrant).square().sum()
        loss.backward()
        return loss

    assert "oneflow.gru.default" not in merged(build, numbers(), model)


def test_what_stays_step_by_step():
    half = layer("gru", dtype=torch.bfloat16).requires_grad_(False)

    def build(x):
        return half(x)[0]

    assert "oneflow.gru.default" not in merged(build, numbers().bfloat16(), half, dtype=torch.bfloat16)
    packed = layer("gru").requires_grad_(False)

    def build_packed(x):
        out, last = packed(nn.utils.rnn.pack_padded_sequence(x, [3, 2]))
        return out.data, last

    assert "oneflow.gru.default" not in merged(build_packed, numbers(), packed)


def test_no_steps_is_the_error_of_torch():
    model = layer("gru").requires_grad_(False)
    with pytest.raises(RuntimeError, match="sequence length"):
        Step(lambda x: model(x)[0], [model])(numbers(0))


@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["gru", "tanh"])
def test_a_graph_runs_them(kind):
    losses, seen = {}, []
    for backend in ("aten", "inductor"):
        model = layer(kind, 4, 6, dtype=torch.float32)

        def build(x, model=model):
            loss = model(x)[0].square().sum()
            loss.backward()
            return loss

        graph, x = Step(build, [model], backend), torch.ones(3, 2, 4)
        graph(x)
        with torch.profiler.profile() as prof:
            losses[backend] = [graph(x).item() for _ in range(3)]
        seen.append(
            {f"oneflow::{'gru' if kind == 'gru' else 'rnn'}_backward"} & {e.key for e in prof.key_averages()}
            != set()
        )
    assert seen == [False, True]
    assert losses["inductor"] == pytest.approx(losses["aten"], rel=1e-5)


def test_calls_that_only_update_statistics_are_kept():
    torch.manual_seed(0)
    norm, model = nn.BatchNorm1d(4), layer("gru", batch_first=True)
    x = torch.randn(2, 3, 4, dtype=torch.float64)

    def build(x):
        norm(x.transpose(1, 2))  # whose result nobody reads
        model(x)[0].square().mean().backward()

    modules = norm.double(), model
    Step(build, modules, "inductor")(x)
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean((0, 1)))
    assert norm.num_batches_tracked == 1
