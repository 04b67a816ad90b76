"""Branches of build() on sizes and integers that depend on values: a program for each outcome, errors
elsewhere.
"""

import math

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from unknown_size_cases import Positive, seeded, trained

import oneflow as flow


@pytest.mark.parametrize(
    "function, line",
    [
        (lambda x: sum(row for row in x[x > 0]), "for row in x[x > 0]"),
        (lambda x: [x for _ in range(x[x > 0].shape[0])][0], "range(x[x > 0].shape[0])"),
    ],
)
def test_python_that_needs_the_size_is_an_error_with_the_line(function, line):
    graph = Positive(function)
    x = torch.randn(4, 5)
    with pytest.raises(RuntimeError, match="depend on values|depends on values") as caught:
        graph(x)
    assert line in str(caught.value)
    graph.function = lambda x: x + 1  # the graph can be called again
    assert torch.equal(graph(x), x + 1)


@pytest.mark.parametrize("convert", [float, int])
def test_a_converted_size_is_a_number_of_the_program(convert):
    graph = Positive(lambda x: x * convert(x[x > 0].shape[0]))
    for _ in range(4):
        x = torch.randn(4, 5)
        assert torch.equal(graph(x), x * convert(x[x > 0].shape[0]))
    assert len(graph._engine.programs) == 1


def few_or_many(x):
    if len(x[x > 0]) == 0:
        return x.sum() * 0 - 1
    rows = x[x > 0]
    if rows.numel() <= 3:
        return rows.max()
    return rows.sum() / min(len(rows), 7) + max(rows.shape[0] - 5, 2) + max(1, x.sum()) * min(x.sum(), 0.5)


def test_branches_on_sizes_have_a_program_for_each_outcome():
    builtin = len, min, max
    graph = Positive(few_or_many)
    for k in range(16):
        x = torch.randn(3, 4) - (3, 1, 0, 0)[k % 4]
        assert torch.equal(graph(x), few_or_many(x))
    assert len(graph._engine.programs) == 3 and (len, min, max) == builtin


def capped_one_hot(i):
    """As mixtures of experts on PyPI write it: max() of a tensor and a number."""
    return torch.nn.functional.one_hot(i, max(i.max() + 1, 3))[..., :3]


def classes(x):
    return (x * 2).abs().long()


@pytest.mark.parametrize(
    "function, programs",
    [
        (lambda x: x * 2 if (x > 0).sum() > 5 else -x, 2),
        (lambda x: x * 2 if x.argmax() else -x, 2),
        (lambda x: x * 2 if (x.argmax(0) == 1).any() else -x, 2),
        (lambda x: x * 2 if not ((x > 0).sum() == 5) | (x.argmax() < 7) else -x, 2),
        (lambda x: x * capped_one_hot(classes(x)).sum(-1), 1),
        (lambda x: max((x > 0).sum(), 4), 1),
        (lambda x: max((x > 0).sum(), 5.5) + x, 2),
        (lambda x: torch.as_tensor(min((x > 0).sum(), 10.5)), 2),
        (lambda x: x[..., None] * torch.nn.functional.one_hot(classes(x)), 1),
        (lambda x: x[..., None] * torch.nn.functional.one_hot(classes(x), classes(x).max().item() + 2), 1),
        (lambda x: torch.nn.functional.one_hot(classes(x[x > 0]), 30).sum(0), 1),
    ],
)
def test_tensors_of_integers_where_python_asks_for_their_truth_or_numbers(function, programs):
    graph = Positive(function)
    for k in range(8):
        x = torch.randn(3, 4) + (k % 3 - 1)
        actual, expected = graph(x), torch.as_tensor(function(x))
        assert torch.equal(actual, expected) and actual.dtype == expected.dtype
    assert len(graph._engine.programs) <= programs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if torch.isfinite(x).all() else x.clamp(-3, 3),
        lambda x: x.clamp(-3, 3) if torch.isinf(x).any() or torch.isnan(x).any() else x * 2,
        lambda x: x * 2 if not (x.isnan() | x.isinf()).any().item() else -x,
        lambda x: x.clamp(-3, 3) if not x.mean().isfinite() else x * 2,
    ],
)
def test_values_that_are_not_finite_take_the_other_branch(function):
    """As DETR and Mask2Former clamp what has overflowed."""
    graph = Positive(function)
    for k in range(6):
        x = torch.randn(3, 4)
        if k % 3 == 1:
            x[0, 1] = math.inf if k == 1 else math.nan
        assert torch.equal(graph(x).nan_to_num(5.0), function(x).nan_to_num(5.0))
    assert len(graph._engine.programs) <= 3


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum() > 0,
        lambda x: (x > 0).any(),
        lambda x: (x > 0).all() & x.isfinite().all(),
        lambda x: x.argmax() < x.sum(),
    ],
)
def test_other_questions_about_floating_numbers_are_errors(ask):
    with pytest.raises(RuntimeError, match="needs the value of a tensor"):
        Positive(lambda x: x * 2 if ask(x) else -x)(torch.randn(3, 4))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.gate, self.drop = (
            nn.Linear(4, 6),
            nn.BatchNorm1d(6),
            nn.Linear(6, 3),
            nn.Dropout(0.3),
        )
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x):
        h = self.drop(self.bn(self.a(x)))
        gate = self.gate(h).softmax(-1)
        chosen, out = gate.argmax(-1), torch.zeros_like(h)
        for j, expert in enumerate(self.experts):
            rows = torch.where(chosen == j)[0]
            if rows.numel() == 0:
                continue
            out[rows] = (
                expert(self.drop(h[rows])) * 2 if len(rows) > 6 else expert(h[rows]) * gate[rows, j, None]
            )
        return out.pow(2).mean() + self.a(x).mean()


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, dampening=0.1), lambda p: torch.optim.AdamW(p, 0.01)],
)
def test_training_with_branches_on_sizes(make):
    """A call that takes another branch leaves no trace: statistics, random numbers, state created by the
    first step.
    """
    model = seeded(Experts)
    inputs = [torch.randn(8, 4) if k % 3 else torch.randn(1, 4) + torch.randn(8, 4) * 1e-3 for k in range(12)]
    expected, got, graph = trained(model, lambda m, x: m(x), [(x,) for x in inputs], make)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert graph._engine.assumptions.branches  # some call went another way than the one before


def test_a_branch_that_raises():
    def build(x):
        rows = x[x > 0]
        if rows.shape[0] == 0:
            raise ValueError("no rows")
        return rows * 2

    graph, x = Positive(build), torch.ones(3)
    for _ in range(2):
        assert torch.equal(graph(x), x * 2)
        with pytest.raises(ValueError, match="no rows"):
            graph(-x)
    assert torch.equal(graph(x), x * 2) and len(graph._engine.programs) == 1


@pytest.mark.parametrize(
    "check, error",
    [
        (lambda n: torch._check(n % 3 == 0), RuntimeError),
        (lambda n: torch._check(n >= 3, lambda: "too few"), RuntimeError),
        (lambda n: torch._check_value(n == 3), ValueError),
        (lambda n: torch._check_index(n == 3), IndexError),
    ],
)
def test_check_of_torch_is_made_in_each_run(check, error):
    def build(x):
        rows = x[x > 0]
        check(rows.shape[0])
        return rows * 2

    few, three = torch.tensor([1.0, 2.0, -3.0]), torch.ones(3)
    for calls in ((three, few, three), (few, three, few)):
        graph = Positive(build)
        for x in calls:
            if x is three:
                assert torch.equal(graph(x), x * 2)
            else:
                with pytest.raises(error):
                    graph(x)
        assert len(graph._engine.programs) == 1


def test_a_branch_that_raises_is_not_recorded():
    """Whether build() raises is decided by the values, however the test is written and whichever way is
    likely.
    """

    def build(x, n):
        rows = x[x > 0]
        if len(rows) >= 2:
            if rows.numel() <= 3:
                return rows * 2 if rows.numel() == n else x.reshape(5, 5)  # an error of shapes
        raise ValueError(f"{n} rows")

    graph = Positive(None)
    graph.build = build
    for n, number in ((3, 3), (2, 2), (3, 3), (0, 0), (3, 4), (2, 2), (3, 2)):
        x = torch.cat([torch.ones(n), -torch.ones(3 - n)])
        if n < 2:
            with pytest.raises(ValueError, match="0 rows"):
                graph(x, number)
        elif n != number:
            with pytest.raises(RuntimeError, match="shape"):
                graph(x, number)
        else:
            assert torch.equal(graph(x, number), torch.full((n,), 2.0))


def test_a_replaced_tensor_on_the_other_branch():
    module = nn.Module()
    module.register_buffer("factor", torch.tensor([2.0]))

    def build(x):
        rows = x[x > 0]
        return x - module.factor if rows.numel() == 0 else rows * module.factor

    graph, x = Positive(build), torch.ones(3)
    graph.module = module
    for dtype in (torch.float32, torch.float64):
        module.factor = torch.tensor([2.0], dtype=dtype)
        for batch in (x, -x, x):  # both ways are known when the dtype changes
            assert torch.equal(graph(batch), build(batch))


def test_a_branch_on_several_ranks_is_an_error(monkeypatch):
    """Ranks that go different ways would wait for each other's collectives."""
    monkeypatch.setattr("oneflow._graph.capture.values.size_environment.several", lambda: True)
    with pytest.raises(RuntimeError, match="branches on a size that depends on values"):
        Positive(few_or_many)(torch.ones(3))


def test_a_saved_program_has_only_the_branches_taken(tmp_path):
    graph, x = Positive(lambda x: x if x[x > 0].numel() == 0 else x[x > 0]), torch.ones(3)
    graph(x)
    flow.save(graph, str(tmp_path / "g"))
    loaded = flow.load_graph(str(tmp_path / "g"))
    assert torch.equal(loaded(x), x)
    with pytest.raises(RuntimeError, match="goes another way than in this program.*numel"):
        loaded(-x)


class Dropping(nn.Module):
    """Layers that are dropped at random, as transformers' `layerdrop` does."""

    def __init__(self, sample):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.scale, self.sample = nn.Parameter(torch.ones(4)), sample

    def forward(self, x):
        for layer in self.layers:
            if self.sample() < 0.4:
                continue
            x = layer(x).relu()
        return x * self.scale


@pytest.mark.parametrize(
    "sample",
    [
        lambda: torch.rand([]),
        lambda: torch.empty(1).uniform_(),
        lambda: torch.randn(2).abs().mean(),
    ],
    ids=["rand", "uniform_", "computed"],
)
def test_a_branch_on_sampled_numbers_has_eagers_bits(sample):
    results = []
    for is_graph in (False, True):
        torch.manual_seed(0)
        module = Dropping(sample)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def build(x, module=module):
            loss = module(x).square().sum()
            loss.backward()
            return loss

        step, losses = graph_of(build, optimizer, module=module) if is_graph else build, []
        for seed in range(12):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            losses.append(step(torch.ones(2, 4)).detach().clone())
            if not is_graph:
                optimizer.step()
            losses.append(torch.rand([]))  # the next number of the generator
        results.append([*losses, *(p.detach().clone() for p in module.parameters())])
    assert all(map(torch.equal, *results))
    assert 1 < len(step._engine.programs) <= 8


def test_the_value_of_a_sampled_number_is_an_error_that_says_what_to_do():
    with pytest.raises(
        RuntimeError, match=r"(?s)torch\.rand\(\[\]\)\.item\(\).*as in `if torch.rand\(\[\]\) < p`"
    ):
        graph_of(lambda x: x if torch.rand([]).item() < 0.5 else -x)(torch.ones(2))


def test_a_loop_until_all_sampled_numbers_fit_is_captured():
    class Truncated(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("aten")

        def build(self, x):
            return nn.init.trunc_normal_(torch.empty(6, 4), std=0.5, a=-1.0, b=1.0) + x

    graph, x = Truncated(), torch.zeros(6, 4)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = torch.nn.init.trunc_normal_(torch.empty(6, 4), std=0.5, a=-1.0, b=1.0), torch.rand(1)
        torch.manual_seed(seed)
        actual = graph(x), torch.rand(1)
        assert all(map(torch.equal, actual, expected))
