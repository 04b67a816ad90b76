"""Checks of values in build() that raise become checks of the program. Random numbers sampled outside torch
give a warning.
"""

import random
import re

import numpy as np
import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from checked_values import finite, in_range, names_the_row, one_of_two
from graph_cases import graph_of
from torch import nn

import oneflow as flow


@pytest.mark.parametrize("check", [finite, in_range, one_of_two, names_the_row])
def test_a_check_runs_in_every_call(check):
    layer = nn.Linear(3, 3)

    def build(x):
        hidden = layer(x)
        check(hidden)
        hidden.sum().backward()
        return hidden

    step, x = graph_of(build, torch.optim.SGD(layer.parameters(), lr=0.1), layer=layer), torch.ones(2, 3)
    step(x)
    before = [p.clone() for p in layer.parameters()]
    for bad in (x * torch.nan, x * torch.inf):
        with pytest.raises(RuntimeError, match=f"a check in build.*in {check.__name__}"):
            step(bad)
        assert all(map(torch.equal, before, layer.parameters()))
    step(x)
    assert len(step._engine.programs) == 1 and not torch.equal(before[0], layer.weight)


def is_finite(x):
    return bool(x.isfinite().all())


def is_finite_by_item(x):
    return x.isfinite().all().item()


@pytest.mark.parametrize("is_valid", [is_finite, is_finite_by_item, lambda x: is_finite(x), bool])
def test_a_check_of_what_a_function_returns_runs_in_every_call(is_valid):
    """bool() gave no check, and torch 2.15 checks the parameters of distributions in such a function."""

    def build(x):
        if not is_valid(x if is_valid is not bool else x.isfinite().all()):
            raise ArithmeticError("not finite")
        return x * 2

    graph, x = graph_of(build), torch.ones(3)
    assert torch.equal(graph(x), x * 2)
    with pytest.raises(ArithmeticError, match="a check in build"):
        graph(x * torch.nan)
    assert torch.equal(graph(x), x * 2) and len(graph._engine.programs) == 1


@pytest.mark.parametrize("clip", [torch.nn.utils.clip_grad_norm_, flow.nn.utils.clip_grad_norm_])
def test_a_check_that_torch_makes_is_one_too(clip):
    """clip_grad_norm_(error_if_nonfinite=True) was refused: its branch is in torch's code."""
    layer = nn.Linear(3, 3)

    def build(x):
        loss = layer(x).square().sum()
        loss.backward()
        return clip(layer.parameters(), 0.1, error_if_nonfinite=True)

    step, x = graph_of(build, torch.optim.SGD(layer.parameters(), lr=0.1), layer=layer), torch.ones(2, 3)
    step(x)
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(RuntimeError, match="a check in build.*in build"):
        step(x * torch.nan)
    assert all(map(torch.equal, before, layer.parameters()))
    step(x)
    assert not torch.equal(before[0], layer.weight)


def test_a_saved_program_checks_too(tmp_path):
    layer = nn.Linear(3, 3)

    def build(x):
        hidden = layer(x)
        finite(hidden)
        return hidden

    step = graph_of(build, layer=layer)
    expected = step(torch.ones(2, 3))
    step.save(str(tmp_path / "saved"))
    loaded = flow.load_graph(str(tmp_path / "saved"))
    assert torch.equal(loaded(torch.ones(2, 3)), expected)
    with pytest.raises(RuntimeError, match="a check in build"):
        loaded(torch.full((2, 3), torch.nan))


def chooses(x):
    return x * 2 if x.sum() > 0 else x


def returns_first(x):
    if x.sum() > 0:
        return x
    raise ValueError("negative") if x.min() < 0 else TypeError()


def catches(x):
    try:
        assert x.sum() > 0
    except AssertionError:
        return x * 0
    return x


def reads(x):
    if x.sum().item() > 0:
        raise ValueError("positive")
    return x


@pytest.mark.parametrize("function", [chooses, returns_first, catches, reads])
def test_other_branches_on_values_stay_errors(function):
    with pytest.raises(RuntimeError, match=f"needs the value of a tensor(?s:.*)in {function.__name__}"):
        graph_of(lambda x: function(x))(torch.ones(3))


@pytest.mark.parametrize(
    "sample, source", [(random.random, "Python's random module"), (np.random.rand, "NumPy's generator")]
)
def test_random_numbers_sampled_outside_torch_warn(sample, source):
    with pytest.warns(UserWarning, match=source):
        graph_of(lambda x: x * sample())(torch.ones(3))


def test_numbers_that_an_optimizer_samples_outside_torch():
    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            if random.random() < 2:
                super().step(closure)

    layer = torch.nn.Linear(3, 1)
    with pytest.warns(
        UserWarning, match=r"step\(\) of Noisy samples from Python's random module.*eager mode"
    ):
        graph_of(lambda x: layer(x).sum().backward(), Noisy(layer.parameters(), lr=0.1), layer=layer)(
            torch.ones(2, 3)
        )


def test_random_numbers_sampled_in_torch_do_not_warn(recwarn):
    graph_of(lambda x: x * torch.rand(()))(torch.ones(3))
    assert not [w for w in recwarn if "samples from" in str(w.message)]


SYMMETRIC = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
LABELS = torch.tensor([0, 1, 2])

# {what torch or OneFlow checks: (build(), arguments that pass, arguments that do not)}
CHECKED_VALUES = {
    "one_hot: too large": (lambda i: F.one_hot(i, 3) * 2, (LABELS,), (LABELS + 1,)),
    "one_hot: negative": (lambda i: F.one_hot(i, 3) * 2, (LABELS,), (LABELS - 1,)),
    "flow one_hot": (lambda i: flow.nn.functional.one_hot(i, 3) * 2, (LABELS,), (LABELS + 1,)),
    "_C.one_hot": (lambda i: flow._C.one_hot(i, 3) * 2, (LABELS,), (LABELS + 1,)),
    "inv": (lambda x: torch.linalg.inv(x) * 2, (SYMMETRIC,), (SYMMETRIC * 0,)),
    "inverse of a batch": (lambda x: x.expand(2, 2, 2).inverse(), (SYMMETRIC,), (SYMMETRIC * 0,)),
    "solve": (lambda x: torch.linalg.solve(x, x) * 2, (SYMMETRIC,), (SYMMETRIC * 0,)),
    "cholesky": (lambda x: torch.linalg.cholesky(x) * 2, (SYMMETRIC,), (-SYMMETRIC,)),
    "lu_factor": (lambda x: torch.linalg.lu_factor(x)[0] * 2, (SYMMETRIC,), (SYMMETRIC * 0,)),
    "quantile": (lambda x: torch.nanquantile(x, x), (LABELS / 2,), (LABELS / -2,)),
}


@pytest.mark.parametrize("case", CHECKED_VALUES)
def test_values_that_an_operator_of_eager_mode_refuses(case):
    build, good, bad = CHECKED_VALUES[case]
    graph = graph_of(build)
    assert torch.equal(graph(*good), build(*good))
    with pytest.raises(RuntimeError) as in_eager_mode:
        build(*bad)
    with pytest.raises(type(in_eager_mode.value), match=re.escape(str(in_eager_mode.value).split(",")[0])):
        graph(*bad)
    assert torch.equal(graph(*good), build(*good)) and len(graph._engine.programs) == 1


@pytest.mark.compiler
def test_compiled_code_refuses_such_values_too():
    def build(labels, matrix):
        return F.one_hot(labels, 3) * 2, torch.linalg.inv(matrix) * 2

    graph = graph_of(build)
    graph.config.set_backend("inductor")
    assert torch.equal(graph(LABELS, SYMMETRIC)[0], build(LABELS, SYMMETRIC)[0])
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
        graph(LABELS + 1, SYMMETRIC)
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg.inv: .* singular\.$"):
        graph(LABELS, SYMMETRIC * 0)


def test_labels_from_outside_build_have_one_program():
    labels = LABELS.clone()
    graph = graph_of(lambda x: F.one_hot(labels, 3) * x)
    for _ in range(3):
        assert torch.equal(graph(SYMMETRIC.new_ones(3)), F.one_hot(labels, 3) * 1.0)
        labels.copy_(labels.roll(1))
    assert len(graph._engine.programs) == 1


@pytest.mark.parametrize(
    "make_distribution",
    [
        lambda x: D.Normal(x, x),
        lambda x: D.Categorical(x),
        lambda x: D.Independent(D.Gamma(x, x), 1),
        lambda x: D.MultivariateNormal(x, torch.diag(x)),
        lambda x: D.MultivariateNormal(x, precision_matrix=torch.diag(x)),
    ],
)
def test_a_distribution_checks_its_parameters_in_every_call(make_distribution, monkeypatch):
    # torch.compile switches the checks off for the whole process, in eager mode, too
    monkeypatch.setattr(D.Distribution, "_validate_args", True)

    def build(x):
        distribution = make_distribution(x)
        return distribution.log_prob(
            torch.zeros_like(x[:1]) + 1 if isinstance(distribution, D.Categorical) else x
        )

    graph, good = graph_of(build), torch.ones(2)
    assert torch.equal(graph(good), build(good))
    with pytest.raises(ValueError, match="a check in build"):
        graph(torch.tensor([-2.0, 1.0]))
    assert torch.equal(graph(good), build(good)) and len(graph._engine.programs) == 1


class NotFinite(ArithmeticError):
    """An error of a program's own."""


def refuses_by_value_error(x):
    if (x < 0).any():
        raise ValueError(f"negative values: {x.min()}")
    return x * 2


def refuses_by_assertion(x):
    finite(torch.where(x < 0, torch.nan, x))
    return x * 2


def refuses_by_own_class(x):
    if not (x >= 0).all():
        raise NotFinite
    return x * 2


@pytest.mark.parametrize("backend", ["aten", "inductor"])
@pytest.mark.parametrize(
    ("build", "error_class"),
    [
        (refuses_by_value_error, ValueError),
        (refuses_by_assertion, AssertionError),
        (refuses_by_own_class, ArithmeticError),
    ],
)
def test_a_failed_check_raises_the_class_of_eager_mode(build, error_class, backend):
    """Code that catches a RuntimeError catches it, too."""
    graph = graph_of(build)
    graph.config.set_backend(backend)
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 2.0))
    for caught in (error_class, RuntimeError):
        with pytest.raises(caught, match="a check in build"):
            graph(-torch.ones(2))


def test_a_failed_check_of_a_saved_graph_raises_the_class_of_eager_mode(tmp_path):
    graph = graph_of(refuses_by_value_error)
    graph(torch.ones(2))
    graph.save(str(tmp_path / "graph"))
    loaded = flow.load_graph(str(tmp_path / "graph"))
    with pytest.raises(ValueError, match="a check in build"):
        loaded(-torch.ones(2))


def test_a_check_beside_a_try_statement():
    def build(x):
        try:
            scale = x.scale
        except AttributeError:
            scale = 2
        if not (x > 0).all():
            raise ValueError("positive values only")
        return x * scale

    graph = graph_of(build)
    graph(torch.ones(2))
    with pytest.raises(RuntimeError, match="a check in build"):
        graph(-torch.ones(2))


def test_a_check_whose_error_is_caught_is_no_assertion():
    def build(x):
        try:
            if not (x > 0).all():
                raise ValueError("positive values only")
        except ValueError:
            return x * 0
        return x

    with pytest.raises(RuntimeError, match="needs the value of a tensor"):
        graph_of(build)(torch.ones(2))


@pytest.mark.parametrize(
    "build",
    [
        lambda i: torch.vmap(lambda v: F.one_hot(v, 3))(i),
        lambda i: torch.vmap(lambda v: torch.linalg.inv(v * torch.eye(2)))(i + 1.0),
        lambda i: torch.vmap(lambda q: torch.quantile(torch.arange(3.0), q))(i / 4),
    ],
)
def test_functions_that_check_values_work_below_vmap(build):
    assert torch.equal(graph_of(build)(LABELS), build(LABELS))
