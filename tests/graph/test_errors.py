"""Errors of a graph name the cause, the line of the user's code and a remedy, and change no state."""

import contextlib
import copy
import json
import random

import pytest
import torch
from graph_cases import graph_of, graph_with
from torch import nn

import oneflow as flow
from oneflow._errors import OneFlowError
from oneflow._graph.errors import CaptureError


def uses_item(self, x):
    return x * x.sum().item()


def branches(self, x):
    if x.sum() > 0:
        return x
    return -x


def loops(self, x):
    return sum(row for row in x[x > 0])


def tolist(self, x):
    return x * x.tolist()[0]


@pytest.mark.parametrize(
    "build, line",
    [
        (uses_item, "x.sum().item()"),
        (branches, "if x.sum() > 0"),
        (loops, "x[x > 0]"),
        (tolist, "x.tolist()"),
    ],
)
def test_value_dependent_python(build, line):
    with pytest.raises(OneFlowError) as caught:
        graph_with(build)(torch.ones(3))
    assert line in str(caught.value) and __file__ in str(caught.value)


def value_or_one(x):
    try:
        scale = float(x[0])
    except Exception:
        scale = 1.0
    return x * scale


def array_or_nothing(x):
    with contextlib.suppress(RuntimeError):
        x = x * x.numpy()[0]
    return x


def branch_or_nothing(x):
    def is_large():
        return bool(x.sum() > 2)

    try:
        return x * 3 if is_large() else x
    except BaseException:
        return x * 5


def number_of_rows_or_five(x):
    try:
        return x * (0.0, 1.0, 2.0, 3.0, 4.0)[x.nonzero().shape[0]]
    except Exception:
        return x * 5


@pytest.mark.parametrize("build", [value_or_one, array_or_nothing, branch_or_nothing, number_of_rows_or_five])
def test_an_error_of_the_capture_that_build_catches_makes_no_program(build):
    graph = graph_of(build)
    with pytest.raises(CaptureError, match="caught an error of the capture") as caught:
        graph(torch.full((4,), 2.0))
    assert caught.value.location[2] in (build.__name__, "is_large") and not graph.is_compiled


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        try:
            float(self.param_groups[0]["params"][0].grad.sum())
        except Exception:
            return
        super().step(closure)


def test_an_error_of_the_capture_that_step_catches_makes_no_program():
    layer = torch.nn.Linear(2, 1)
    graph = graph_of(lambda x: layer(x).sum().backward(), Optimizer(layer.parameters(), lr=0.1), layer=layer)
    with pytest.raises(CaptureError, match="caught an error of the capture"):
        graph(torch.ones(1, 2))


def test_an_error_that_eager_raises_too_is_caught_as_in_eager():
    def build(x):
        try:
            x = x.view(7)
        except RuntimeError:
            x = x * 2
        try:
            raise ValueError
        except ValueError:
            return x * 3

    assert graph_of(build)(torch.ones(2)).tolist() == [6, 6]


def test_build_not_overridden():
    class Empty(flow.nn.Graph):
        pass

    with pytest.raises(NotImplementedError, match="Empty does not override build"):
        Empty()(torch.ones(1))


def test_argument_type_is_named():
    with pytest.raises(
        OneFlowError, match=r"the argument 'y_k' of build\(\) has the type object, which"
    ) as caught:
        graph_with(lambda self, x, y: x)(torch.ones(1), y={"k": object()})
    assert __file__ in str(caught.value)


def test_nested_tensors_and_classes_of_tensors_are_named():
    class Own(torch.Tensor):
        pass

    x, y = torch.rand(2, 3), torch.rand(4, 3)
    nested = [torch.nested.nested_tensor([x, y], layout=layout) for layout in (torch.strided, torch.jagged)]
    for argument in nested:
        with pytest.raises(
            OneFlowError, match=r"argument '?\w+'? of build\(\) is a nested tensor.*\n.*\n.*pad_sequence"
        ):
            graph_with(lambda self, n: n * 2)(argument)
        with pytest.raises(OneFlowError, match="computes with a nested tensor") as caught:
            graph_with(lambda self, x, n=argument: (n * 2).to_padded_tensor(0.0) + x)(torch.ones(1))
        assert __file__ in str(caught.value)
        with pytest.raises(OneFlowError, match="computes with a nested tensor"):
            graph_with(
                lambda self, *x, layout=argument.layout: torch.nested.as_nested_tensor(
                    list(x), layout=layout
                ).to_padded_tensor(0.0)
            )(x, y)
    for wrap in (lambda x: x.as_subclass(Own), Own):
        with pytest.raises(OneFlowError, match="a tensor of a class of its own") as caught:
            graph_with(lambda self, x, wrap=wrap: wrap(x) * 2)(x)
        assert __file__ in str(caught.value)
    assert torch.equal(graph_with(lambda self, own: own * 2)(x.as_subclass(Own)), x * 2)


def test_output_type_is_named():
    for out, name in (
        (lambda x: {x}, r"output of build\(\) has the type set"),
        (lambda x: [{"a": object()}], r"output \[0\]\['a'\] of"),
    ):
        with pytest.raises(OneFlowError, match=name):
            graph_with(lambda self, x: out(x))(torch.ones(1))


def test_non_scalar_backward():
    model = nn.Linear(2, 2)

    def build(self, x):
        self.m(x).backward()

    with pytest.raises(RuntimeError, match="scalar"):
        graph_with(build, {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])(torch.ones(1, 2))


def test_optimizer_without_gradient():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        return loss

    with pytest.raises(OneFlowError, match="none of them is in a module of the graph"):
        graph_with(build, {"m": model}, [torch.optim.SGD(other.parameters(), lr=0.1)])(torch.ones(1, 2))


@pytest.mark.parametrize("called_before", [False, True])
def test_a_graph_inside_a_graph(called_before):
    """Also one that has a program already, whose operators could be recorded: its schedule and step would be Python's of one call."""
    inner = graph_with(lambda self, x: x * 2)
    if called_before:
        inner(torch.ones(2))
    outer = graph_with(lambda self, x: inner(x))
    with pytest.raises(OneFlowError, match="inside the build\\(\\) of another graph"):
        outer(torch.ones(2))
    assert inner(torch.ones(2)).tolist() == [2, 2]


def test_no_backward():
    model = nn.Linear(2, 1)
    with pytest.raises(OneFlowError, match="backward"):
        graph_with(lambda self, x: self.m(x), {"m": model}, [torch.optim.SGD(model.parameters(), lr=0.1)])(
            torch.ones(1, 2)
        )


def test_exception_inside_build_changes_nothing_and_the_graph_can_be_called_again():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    fail = [True]

    def build(self, x):
        loss = self.m(x).sum()
        loss.backward()
        if fail[0]:
            raise KeyError("mine")
        return loss

    graph = graph_with(build, {"m": model}, [optimizer])
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.raises(KeyError, match="mine"):
        graph(torch.ones(3, 2))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert not optimizer.state and all(p.grad is None for p in model.parameters())
    assert type(optimizer.param_groups[0]["lr"]) is float
    fail[0] = False
    graph(torch.ones(3, 2))
    assert len(optimizer.state) == 4


def test_tensor_kept_from_an_earlier_capture():
    kept = []

    def build(self, x):
        if kept:
            return kept[0] + x
        kept.append(x * 2)
        return x

    graph = graph_with(build)
    with pytest.warns(UserWarning, match="was kept in a list"):
        graph(torch.ones(2))
    with pytest.raises(OneFlowError, match="was kept in a list"):
        graph(torch.ones(3))


def test_unknown_backend_and_missing_package():
    graph = graph_with(lambda self, x: x + 1)
    with pytest.raises(ValueError, match="aten"):
        graph.config.set_backend("nonsense")
    graph.config.set_backend("tensorrt")
    with pytest.raises(OneFlowError, match="torch_tensorrt"):
        graph(torch.ones(1))


@pytest.mark.parametrize("case", ["step in build", "LBFGS", "plateau"])
def test_steps_a_program_cannot_take(case):
    model = nn.Linear(2, 1)
    optimizer = (
        torch.optim.LBFGS(model.parameters())
        if case == "LBFGS"
        else torch.optim.SGD(model.parameters(), lr=0.1)
    )

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(
                optimizer,
                lr_sch=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer) if case == "plateau" else None,
            )
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.m(x).sum()
            loss.backward()
            if case == "step in build":
                optimizer.step()
            return loss

    with pytest.raises(
        OneFlowError, match={"step in build": "add_optimizer", "LBFGS": "LBFGS", "plateau": "metric"}[case]
    ):
        G()(torch.ones(1, 2))
    assert type(optimizer.param_groups[0]["lr"]) in (int, float) and model.weight.grad is None


def splits_at_a_tensor(self, x, at):
    return flow.tensor_split(x, at)[0]


def test_an_operator_that_reads_a_tensor_of_indices_is_named_with_the_users_line():
    x = torch.rand(6)
    with pytest.raises(
        OneFlowError,
        match=r"reads the numbers of a tensor(.|\n)*in splits_at_a_tensor: return flow.tensor_split",
    ) as caught:
        graph_with(splits_at_a_tensor)(x, torch.tensor([2, 4]))
    assert type(caught.value).__name__ == "CaptureError"
    assert torch.equal(graph_with(lambda self, x: flow.tensor_split(x, [2, 4])[0])(x), x[:2])


@pytest.mark.eager_calls
def test_lbfgs_is_refused_by_name_when_it_is_added(recwarn):
    model = nn.Linear(4, 3)
    with pytest.raises(NotImplementedError, match=r"LBFGS(.|\n)*graph-optimizers(.|\n)*step\(closure\)"):
        flow.nn.Graph().add_optimizer(torch.optim.LBFGS(model.parameters()))
    assert not recwarn.list  # no promise that the call runs in eager mode


@pytest.mark.eager_calls
def test_step_of_lbfgs_in_a_compiled_step_runs_in_eager_mode_with_a_warning_that_names_it():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)

    @flow.compile_step
    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    with pytest.warns(UserWarning, match=r"runs in eager mode(.|\n)*step\(\) of LBFGS"):
        first = step(torch.ones(2, 4))
    assert step(torch.ones(2, 4)) < first


@pytest.mark.parametrize("kind", ["Adafactor", "SparseAdam", "Adagrad"])
def test_optimizers_that_decide_by_values(kind):
    sparse = kind in ("SparseAdam", "Adagrad")
    model = nn.Embedding(5, 3, sparse=True) if sparse else nn.Linear(4, 3)
    optimizer = getattr(torch.optim, kind)(model.parameters())
    x = torch.tensor([1, 1, 3]) if sparse else torch.ones(2, 4)

    def build(self, x):
        loss = self.m(x).square().mean()
        loss.backward()
        return loss

    graph = graph_with(build, {"m": model}, [optimizer])
    before, state = model.weight.detach().clone(), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(NotImplementedError, match="graph-optimizers") as caught:
        graph(x)
    assert isinstance(caught.value, OneFlowError)
    assert torch.equal(model.weight, before) and str(optimizer.state_dict()) == str(state)


class FailsInStep(torch.optim.Adam):
    fails = False

    def step(self, closure=None):
        super().step(closure)
        if self.fails:
            raise ValueError("mine")


@pytest.mark.parametrize(
    "where", ["forward", "module hook", "gradient hook", "step", "output", "another shape"]
)
def test_an_exception_anywhere_in_a_step_changes_nothing(where):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    optimizer = FailsInStep(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    failing = []

    def fail(here):
        if here in failing:
            raise ValueError("mine")

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(optimizer, lr_sch=schedule)
            self.config.set_backend("aten")

        def build(self, x):
            h = self.m(x)
            h.register_hook(lambda g: fail("gradient hook"))
            fail("forward")
            fail(f"shape {len(x)}")
            loss = h.square().mean()
            loss.backward()
            return object() if "output" in failing else loss

    def state():
        return copy.deepcopy(
            (
                model.state_dict(),
                optimizer.state_dict(),
                schedule.state_dict(),
                torch.get_rng_state(),
                [p.grad for p in model.parameters()],
            )
        )

    model[0].register_forward_hook(lambda *_: fail("module hook"))
    graph, x = Train(), torch.randn(6, 4)
    if where == "another shape":
        graph(x)
    failing.append("shape 3" if where == "another shape" else where)
    optimizer.fails = where == "step"
    before = state()
    with pytest.raises((ValueError, TypeError)):
        graph(x[:3])
    assert str(state()) == str(before)
    failing.clear()
    optimizer.fails = False
    graph(x[:3])
    graph(x)
    assert torch.isfinite(model[0].weight).all() and not torch.equal(model[0].weight, before[0]["0.weight"])


@pytest.mark.parametrize(
    "use", [random.Random, {}.get, lambda n: json.dumps([n])], ids=["random.Random", "dict", "json"]
)
def test_python_that_refuses_a_number_of_each_call(use):
    with pytest.raises(OneFlowError, match=r"test_errors.py.*in <lambda>") as caught:
        graph_with(lambda self, x: x + len(str(use(torch.randint(9, ()).item()))))(torch.ones(2))
    assert "depends on values" in str(caught.value)


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_an_error_while_the_program_runs_leaves_autograd_on(backend):
    """Also while someone, as a debugger does, keeps the error and with it the frames it came from."""
    table = nn.Embedding(4, 2)
    graph = graph_with(lambda self, index: table(index))
    graph.config.set_backend(backend)
    graph(torch.tensor([0, 1]))
    with pytest.raises((IndexError, RuntimeError)) as kept:
        graph(torch.tensor([0, 9]))
    assert table(torch.tensor([0])).requires_grad
    assert kept.value is not None


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, "sgd", nn.Linear(2, 2)], ids=["class", "text", "module"]
)
def test_add_optimizer_names_what_to_pass(optimizer):
    with pytest.raises(TypeError, match=r"takes an optimizer, got .*pass an instance, as flow\.optim\.SGD\("):
        flow.nn.Graph().add_optimizer(optimizer)


def test_an_argument_that_contains_itself_is_refused():
    cyclic = [torch.ones(2)]
    cyclic.append(cyclic)
    graph = graph_with(lambda self, x: x[0])
    with pytest.raises(TypeError, match="contains itself"):
        graph(cyclic)
    assert graph([torch.ones(2)]).tolist() == [1, 1]


def in_a_cycle(x):
    cyclic = {"x": [x * 2]}
    cyclic["x"].append((cyclic,))
    return cyclic


def in_a_chain(x):
    for _ in range(5000):
        x = [x]
    return x


@pytest.mark.parametrize("structure", [in_a_cycle, in_a_chain])
def test_a_result_or_attribute_that_contains_itself_is_refused(structure):
    def keep(self, x):
        self.keeper.kept = structure(x)
        return x * 2

    graph, keeping = graph_with(lambda self, x: structure(x)), graph_with(keep)
    keeping.keeper = nn.Module()
    for refused in (graph, keeping):
        with pytest.raises(TypeError, match=r"(?s)contains itself.*nested too deeply.*flat list or dict"):
            refused(torch.ones(2))


def test_a_module_may_pass_a_list_that_contains_itself():
    class Passes(nn.Module):
        def forward(self, x):
            return in_a_cycle(x)

    passes = Passes()
    graph = graph_with(lambda self, x: self.passes(x)["x"][0])
    graph.passes = passes
    assert graph(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("name", ["parameters", "train", "to"])
def test_a_method_of_modules_names_the_module(name):
    graph = graph_with(lambda self, x: x)
    with pytest.raises(
        AttributeError, match=f"no attribute '{name}': a graph is no module; use {name} of the"
    ):
        getattr(graph, name)
    with pytest.raises(AttributeError, match="no attribute 'no_name'$"):
        graph.no_name


def test_an_option_that_is_assigned_names_the_call():
    graph = graph_with(lambda self, x: x)
    with pytest.raises(TypeError, match=r"enable_amp is a method.*call graph.config.enable_amp\(True\)"):
        graph.config.enable_amp = True
    graph.config.of_the_user = 1
    assert graph.config.of_the_user == 1
