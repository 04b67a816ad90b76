"""Operators that read values, flags in buffers, and the arguments and results of build()."""

import collections
import contextlib
import copy
import dataclasses
import enum
import io
import pickle

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

import oneflow as flow


def follow(make, loss_of, inputs, make_optimizer=lambda p: torch.optim.SGD(p, lr=0.1)):
    """Train copies of a model in eager mode and in a graph. Results of loss_of, weights and buffers must be
    bitwise equal. Return the graph.
    """
    torch.manual_seed(0)
    eager = make()
    other = copy.deepcopy(eager)
    graph, outs = None, []
    for module in (eager, other):
        optimizer = make_optimizer(list(module.parameters()))

        def build(*args, module=module):
            loss, *more = loss_of(module, *args)
            loss.backward()
            return (loss, *more)

        step = build if module is eager else graph_of(build, optimizer, module=module)
        got = []
        for args in inputs:
            if module is eager:
                optimizer.zero_grad()
            got.append([t.detach().clone() for t in step(*args)])
            if module is eager:
                optimizer.step()
        outs.append(got)
        graph = step
    for a, b in zip(*outs):
        assert all(map(torch.equal, a, b))
    for name, value in eager.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    return graph


# -- lengths --------------------------------------------------------------------------------
class Tagger(nn.Module):
    def __init__(self, sort, **options):
        super().__init__()
        self.cell, self.sort = nn.LSTM(4, 5, batch_first=True, **options), sort

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=not self.sort)
        y, (h, _) = self.cell(packed)
        return *rnn.pad_packed_sequence(y, batch_first=True, padding_value=0.5, total_length=7), h


def tag_loss(model, x, lengths):
    y, n, h = model(x, lengths)
    return y.square().mean() + h.mean(), y, n


@pytest.mark.parametrize("kind", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize(
    "sort, options",
    [(False, {}), (True, {"bidirectional": True, "num_layers": 2})],
    ids=["sorted", "unsorted two-way"],
)
def test_each_set_of_lengths_of_packed_sequences_has_a_program(kind, sort, options):
    lengths = [[6, 4, 1], [5, 5, 2], [6, 4, 1]] if not sort else [[2, 6, 4], [6, 3, 3], [2, 6, 4]]
    graph = follow(
        lambda: Tagger(sort, **options), tag_loss, [(torch.randn(3, 6, 4), kind(n)) for n in lengths]
    )
    assert len(graph._engine.programs) == 2, "a program for each set of lengths"


def test_packed_sequences_as_arguments_and_results():
    cell = nn.GRU(4, 3)
    packed = rnn.pack_sequence([torch.randn(5, 4), torch.randn(2, 4)])
    out = graph_of(lambda p: cell(p)[0], cell=cell)(packed)
    assert type(out) is rnn.PackedSequence and torch.equal(out.data, cell(packed)[0].data)


@pytest.mark.parametrize("kind", [list, torch.tensor], ids=["list", "tensor"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_lengths_of_ctc_loss_are_followed(kind, reduction):
    def loss(model, x, targets, input_lengths, target_lengths):
        return (
            F.ctc_loss(
                model(x).log_softmax(-1).view(6, 2, 4),
                targets,
                input_lengths,
                target_lengths,
                reduction=reduction,
                zero_infinity=True,
            ),
        )

    targets = torch.tensor([[1, 2, 1], [3, 1, 2]])
    follow(
        lambda: nn.Linear(4, 4),
        loss,
        [(torch.randn(12, 4), targets, kind([6, 5]), kind([2, k])) for k in (1, 3, 2)],
    )


def test_batch_norm_with_a_cumulative_average():
    graph = follow(
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)),
        lambda m, x: (m(x).square().mean(),),
        [(torch.randn(6, 4),) for _ in range(4)],
    )
    assert len(graph._engine.programs) == 1


@pytest.mark.slow
def test_batch_norm_with_a_cumulative_average_compiled():
    torch.manual_seed(0)
    eager, xs = nn.BatchNorm2d(3, momentum=None), [torch.randn(4, 3, 2, 2) for _ in range(3)]
    other = copy.deepcopy(eager)
    graph = graph_of(lambda x: other(x), other=other)
    graph.config.set_backend("inductor")
    for x in xs:
        torch.testing.assert_close(graph(x), eager(x).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(other.state_dict(), eager.state_dict(), rtol=1e-5, atol=1e-6)


# -- flags in buffers --------------------------------------------------------------------------
class ActNorm(nn.Module):
    """Starts from the statistics of its first batch, as normalizing flows do."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.scale.copy_(1 / x.std(0))
                self.ready.fill_(True)
        return x * self.scale


def test_a_branch_on_a_flag_in_a_buffer():
    graph = follow(
        ActNorm, lambda m, x: (m(x).square().mean(),), [(torch.randn(6, 4) * 3,) for _ in range(4)]
    )
    assert len(graph._engine.programs) == 2


@pytest.mark.parametrize(
    "average", [None, torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)], ids=["mean", "ema"]
)
def test_averaged_model_inside_build(average):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 4)
            self.mean = torch.optim.swa_utils.AveragedModel(self.net, multi_avg_fn=average)

    def loss(model, x):
        model.mean.update_parameters(model.net)
        return model.net(x).square().mean(), model.mean(x)

    follow(Both, loss, [(torch.randn(6, 4),) for _ in range(4)], lambda p: torch.optim.SGD(p[:2], lr=0.1))


def test_the_value_of_an_argument_or_parameter_stays_an_error():
    model = nn.Linear(4, 4)
    for build in (
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * model.weight.detach().sum().item() * x.sum(),
    ):
        with pytest.raises(RuntimeError, match="needs the value"):
            graph_of(build, model=model)(torch.ones(1, 4))


# -- structures -----------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    scale: object = 1
    extra: dict = None


class Named(dict):
    pass


class Many(list):
    pass


Pair = collections.namedtuple("Pair", "a b")


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3


@pytest.mark.parametrize("value, of", [
    (Batch(torch.ones(2), 3, {"k": [torch.ones(1)]}), lambda v: v.x),
    (Named(x=torch.ones(2), n=None), lambda v: v["x"]),
    (Many([torch.ones(2), 5]), lambda v: v[0]),
    (Pair(torch.ones(2), "t"), lambda v: v.a),
    ([Batch(torch.ones(2)), Named(k=Many([torch.zeros(1)]))], lambda v: v[0].x),
    (collections.OrderedDict(x=torch.ones(2)), lambda v: v["x"]),
], ids=["dataclass", "dict subclass", "list subclass", "namedtuple", "nested", "OrderedDict"])  # fmt: skip
def test_classes_of_the_users_own_go_in_and_come_out(value, of):
    seen = []

    def build(v):
        seen.append(type(v))
        return v, of(v) + 1

    graph = graph_of(build)
    for _ in range(2):
        back, plus = graph(value)
        assert type(back) is type(value) and torch.equal(of(back), of(value)) and plus.tolist() == [2.0, 2.0]
    assert seen == [type(value)]


def test_plain_fields_of_a_dataclass_choose_the_program():
    graph = graph_of(lambda batch, mode: batch.x * batch.scale * mode.value)
    assert (
        graph(Batch(torch.ones(1), 2), Mode.DOUBLE).item() == 4
        and graph(Batch(torch.ones(1), 5), Mode.TRIPLE).item() == 15
    )


def test_a_saved_graph_gives_dict_and_list_for_such_classes(tmp_path):
    graph = graph_of(lambda batch: Named(y=Pair(batch.x + 1, Many([batch.x]))))
    graph(Batch(torch.ones(2)))
    graph.save(tmp_path / "g")
    out = flow.load_graph(tmp_path / "g")(Batch(torch.zeros(2)))
    assert type(out) is dict and out["y"][0].tolist() == [1.0, 1.0] and type(out["y"][1]) is list


def test_sizes_stay_sizes(tmp_path):
    graph = graph_of(
        lambda x, options: {
            "x": x.view(options["size"]),
            "numel": options["size"].numel(),
            "of": (x.shape, x.view(options["size"]).size()),
        }
    )
    for _ in range(2):
        out = graph(torch.ones(6), {"size": torch.Size([2, 3])})
        assert (
            out["x"].shape == (2, 3)
            and out["numel"] == 6
            and out["of"] == (torch.Size([6]), torch.Size([2, 3]))
            and {type(s) for s in out["of"]} == {torch.Size}
        )
    graph.save(tmp_path / "g")
    assert (
        type(flow.load_graph(tmp_path / "g")(torch.ones(6), {"size": torch.Size([2, 3])})["of"][1])
        is torch.Size
    )


def test_a_global_argument_has_a_separate_program():
    graph, x = graph_of(lambda x: x * 2), torch.ones(2, 4)
    where = flow.placement("cpu", [0])
    assert graph(x.to_global(where, flow.sbp.broadcast)).sbp == (flow.sbp.broadcast,)
    assert not graph(x).is_global
    assert graph(x.to_global(where, flow.sbp.split(0))).sbp == (flow.sbp.split(0),)


# -- printing and copying ----------------------------------------------------------------------------
def test_tensors_print_their_kind_inside_build():
    def build(x):
        print(x, f"{x.sum():.3f}", [x[0]])
        return x

    with contextlib.redirect_stdout(io.StringIO()) as out:
        graph_of(build)(torch.ones(2))
    kind = "tensor(..., is_lazy='True', size=({}), dtype=oneflow.float32)"
    assert out.getvalue().strip() == f"{kind.format('2,')} {kind.format('')} [{kind.format('')}]"


@pytest.mark.parametrize("what", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_graph_and_its_blocks_cannot_be_copied(what):
    graph = graph_of(lambda x: x, model=nn.Linear(2, 2))
    for thing in (graph, graph.model):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            what(thing)


def test_a_lazy_module_that_never_ran_is_named():
    graph = graph_of(lambda x: x, model=nn.Sequential(nn.LazyLinear(3)))
    with pytest.raises(RuntimeError, match=r"'model.0.weight' has no shape yet"):
        graph(torch.ones(1, 2))


def test_optimizer_state_under_another_key_is_named():
    class Global(torch.optim.SGD):
        def step(self, closure=None):
            self.state["global"]["n"] = self.state["global"].get("n", 0) + 1
            return super().step(closure)

    model = nn.Linear(4, 4)
    graph = graph_of(lambda x: model(x).sum().backward(), Global(model.parameters(), lr=0.1), model=model)
    with pytest.raises(RuntimeError, match="under the key 'global'"):
        graph(torch.ones(1, 4))
    plain = flow.optim.SGD(model.parameters(), lr=0.1)
    assert plain._state["step"] == 0  # a look at it leaves a key that no program needs
    graph_of(lambda x: model(x).sum().backward(), plain, model=model)(torch.ones(1, 4))
    assert plain.state["step"] == 0


def test_contiguous_parameters_that_get_no_gradient_decay_as_in_eager():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    follow(
        Net,
        lambda m, x: (m(x).square().mean(),),
        [(torch.randn(6, 4),) for _ in range(3)],
        lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, contiguous_params=True),
    )


@pytest.mark.compiler
def test_errors_of_inductor_name_a_remedy_and_auto_runs_the_program(monkeypatch):
    from oneflow._graph.compile.inductor import compiler

    def refuse(*args):
        raise NotImplementedError("no form of it\nsecond line")

    monkeypatch.setattr(compiler, "_compile", refuse)
    graph, x = graph_of(lambda x: x * 2 + 1), torch.randn(6, 1, 4)
    graph.config.set_backend("inductor")
    with pytest.raises(
        RuntimeError,
        match=r"could not compile it \(NotImplementedError: no form of it\);"
        r" set_backend\('auto'\) or 'aten' runs it",
    ):
        graph(x)
    graph.config.set_backend("auto")
    assert torch.equal(graph(x), x * 2 + 1)


@pytest.mark.slow
def test_numbers_of_a_generator_run_on_aten_under_inductor():
    generator = torch.Generator()
    graph, x = graph_of(lambda x: x + torch.rand(x.shape, generator=generator)), torch.randn(6, 1, 4)
    graph.config.set_backend("inductor")
    generator.manual_seed(3)
    with pytest.warns(UserWarning, match="runs on the aten backend"):
        actual = [graph(x), graph(x)]
    generator.manual_seed(3)
    assert all(torch.equal(f, x + torch.rand(x.shape, generator=generator)) for f in actual)
