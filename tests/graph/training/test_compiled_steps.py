"""flow.compile_step: a training step of eager mode is a graph, unchanged, with the same result."""

import collections
import copy
import functools
import pickle
import warnings
import weakref

import pytest
import step_programs as programs
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import oneflow as flow

CALLS = 7


def picture(program, result):
    """What a call leaves: results, weights, gradients, optimizer state, rates, and other objects."""
    weights = [t for m in program.modules for t in (*m.parameters(), *m.buffers())]
    gradients = [p.grad for m in program.modules for p in m.parameters()]
    states = [[o.state.get(p, {}) for g in o.param_groups for p in g["params"]] for o in program.optimizers]
    rates = [[g["lr"] for g in o.param_groups] for o in program.optimizers]
    return copy.deepcopy([result, weights, gradients, states, rates, torch.rand(2), program.objects])


def differences(a, b, path=""):
    """Yield the paths where two pictures differ. A momentum that has not begun may be zeros in a graph."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)):
            yield path
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            if key in a and key in b:
                yield from differences(a[key], b[key], f"{path}.{key}")
            elif not (isinstance(b.get(key), torch.Tensor) and not b[key].any()):
                yield f"{path}.{key}"
    elif isinstance(a, (list, tuple, collections.deque)) and type(a) is type(b) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            yield from differences(x, y, f"{path}[{i}]")
    elif type(a) is not type(b) or a != b:
        yield path


def compare(make, calls=CALLS, **options):
    """Run the step in eager mode and compiled; return the compiled one."""
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    program = make()
    step = flow.compile_step(program.step, **options)
    for i in range(calls):
        pictures = []
        for side, function in ((eager, eager.step), (program, step)):
            torch.manual_seed(i)
            pictures.append(picture(side, function(*side.arguments(i))))
        assert list(differences(*pictures)) == [], f"call {i}"
    return step


@pytest.mark.parametrize("make", programs.IN_PROGRAMS, ids=lambda make: make.__name__)
def test_a_step_in_a_program_is_bit_for_bit_eager(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = compare(make, backend="aten", strict=True)
    assert len(step.graph._engine.programs) <= 3


@pytest.mark.eager_calls
@pytest.mark.parametrize("make", programs.CUT, ids=lambda make: make.__name__)
def test_lines_that_no_program_holds_run_in_python(make):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no program can hold")
        step = compare(make, backend="aten")
    assert "they run in Python" in step.graph.explain()


@pytest.mark.eager_calls
@pytest.mark.parametrize("make", programs.IN_EAGER_MODE, ids=lambda make: make.__name__)
def test_a_step_that_no_program_holds_runs_in_eager_mode(make):
    with pytest.warns(UserWarning, match="no program can hold this call") as caught:
        step = compare(make, backend="aten")
    assert len([w for w in caught if "no program can hold" in str(w.message)]) == 1
    assert step.graph._engine.programs == []


@pytest.mark.parametrize(
    "make",
    [programs.several_steps, programs.gan, programs.scaled, programs.gradients_summed],
    ids=lambda make: make.__name__,
)
def test_a_step_on_inductor_is_equal_within_rounding(make):
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    program = make()
    step = flow.compile_step(program.step, backend="inductor", strict=True)
    for i in range(5):
        pictures = []
        for side, function in ((eager, eager.step), (program, step)):
            torch.manual_seed(i)
            pictures.append(picture(side, function(*side.arguments(i))))
        torch.testing.assert_close(pictures[1], pictures[0], equal_nan=True)


def test_an_operator_that_fails_in_a_run_changes_no_weight_and_no_state():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)

    def step(tokens):
        optimizer.zero_grad()
        loss = model(tokens).square().mean()
        loss.backward()
        optimizer.step()

    compiled = flow.compile_step(step, backend="aten", strict=True)
    program = programs.StepProgram(step, lambda i: (), [model], [optimizer])
    compiled(torch.tensor([0, 1, 2]))
    _, weights, _, states, *_ = picture(program, None)
    with pytest.raises(IndexError):
        compiled(torch.tensor([0, 9, 2]))
    _, weights_after, gradients, states_after, *_ = picture(program, None)
    assert list(differences([weights, states], [weights_after, states_after])) == []
    assert gradients == [None] * 3  # as eager mode's zero_grad() leaves them
    compiled(torch.tensor([0, 1, 2]))


@pytest.mark.eager_calls
def test_an_exception_in_the_middle_leaves_what_eager_mode_leaves():
    def make():
        program = programs.usual()
        inner = program.step

        def step(x, y, fails):
            result = inner(x, y)
            if fails:
                raise ValueError("stop")
            return result

        program.step = step
        return program

    pictures = []
    for compiled in (False, True):
        torch.manual_seed(0)
        program = make()
        step = flow.compile_step(program.step) if compiled else program.step
        torch.manual_seed(1)
        with pytest.raises(ValueError, match="stop"):
            step(*program.arguments(0), True)
        pictures.append(picture(program, step(*program.arguments(1), False)))
    assert list(differences(*pictures)) == []


class Stop(BaseException):
    pass


@pytest.mark.eager_calls
@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Stop])
def test_a_raised_exception_of_any_class_leaves_what_eager_mode_leaves(error):
    def trained(compile_step):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        counts = {"calls": 0}

        def step(x):
            counts["calls"] += 1
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if counts["calls"] == 3:
                raise error("stop")

        step, raised = compile_step(step), []
        for _ in range(5):
            try:
                step(torch.ones(3, 4))
            except error:
                raised.append(counts["calls"])
        gradients = [p.grad for p in model.parameters()]
        return [*model.parameters(), *gradients, optimizer.state_dict(), counts, raised]

    compiled = trained(functools.partial(flow.compile_step, backend="aten"))
    assert list(differences(trained(lambda step: step), compiled)) == []


@pytest.mark.eager_calls
@pytest.mark.filterwarnings("ignore:.*no program can hold this call")
def test_a_layer_and_a_group_that_the_step_adds_are_there_once():
    def trained(compile_step):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(4, 4)])
        optimizer = torch.optim.SGD(layers.parameters(), 0.1)

        def step(x):
            if len(layers) < 3:
                layers.append(nn.Linear(4, 4))
                optimizer.add_param_group({"params": list(layers[-1].parameters()), "lr": 0.05})
            for layer in layers:
                x = layer(x).tanh()
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()

        step = compile_step(step)
        for _ in range(5):
            step(torch.ones(3, 4))
        members = [p is q for p, q in zip(layers.parameters(), _parameters_of(optimizer), strict=True)]
        return [*layers.parameters(), optimizer.state_dict(), members]

    compiled = trained(functools.partial(flow.compile_step, backend="aten"))
    assert list(differences(trained(lambda step: step), compiled)) == []


def _parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def test_train_and_eval_are_those_of_each_call():
    torch.manual_seed(0)
    eager, program = programs.usual(), None
    torch.manual_seed(0)
    program = programs.usual()
    step = flow.compile_step(program.step, backend="aten", strict=True)
    for i in range(4):
        for side, function in ((eager, eager.step), (program, step)):
            side.modules[0].train(i % 2 == 0)
            torch.manual_seed(i)
            side.picture = picture(side, function(*side.arguments(i)))
        assert list(differences(eager.picture, program.picture)) == []
    assert len(step.graph._engine.programs) == 2


def test_a_gradient_from_outside_is_added_to():
    for compiled in (False, True):
        torch.manual_seed(0)
        program = programs.gradients_summed()
        step = flow.compile_step(program.step, backend="aten", strict=True) if compiled else program.step
        model = program.modules[0]
        found = []
        for i in range(4):
            torch.manual_seed(i)
            if i % 2:
                model(torch.randn(2, 4)).sum().backward()
            step(torch.randn(5, 4), False)
            found.append([p.grad.clone() for p in model.parameters()])
        if not compiled:
            expected = found
    assert list(differences(expected, found)) == []


def test_a_new_optimizer_and_a_new_model_are_found():
    state = {}

    def renew():
        state["model"] = programs.mlp()
        state["optimizer"] = torch.optim.SGD(state["model"].parameters(), 0.1)

    def train(x):
        state["optimizer"].zero_grad()
        loss = state["model"](x).square().mean()
        loss.backward()
        state["optimizer"].step()
        return loss

    step = flow.compile_step(train, backend="aten", strict=True)
    for seed in range(3):
        torch.manual_seed(seed)
        renew()
        x = torch.randn(5, 4)
        copied = copy.deepcopy(state["model"])
        step(x)
        copied(x).square().mean().backward()
        for p, q in zip(copied.parameters(), state["model"].parameters()):
            assert torch.equal(p.detach() - 0.1 * p.grad, q)


class Trainer:
    def __init__(self):
        self.model = programs.mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    @flow.compile_step(backend="aten", strict=True)
    def step(self, x):
        """Train."""
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss


def test_a_method_is_compiled_for_each_object():
    first, second = Trainer(), Trainer()
    x = torch.randn(5, 4)
    expected = first.model(x).square().mean()
    assert torch.equal(first.step(x), expected.detach())
    assert first.step(x) < expected
    assert first.step.graph is first.step.graph is not second.step.graph
    assert torch.equal(second.step(x), Trainer.step.step(copy.deepcopy(second), x)) is False
    assert first.step.__doc__ == "Train."


def test_an_object_with_a_compiled_method_is_pickled_and_copied():
    trainer = Trainer()
    x = torch.randn(5, 4)
    trainer.step(x)
    others = pickle.loads(pickle.dumps(trainer)), copy.deepcopy(trainer)
    expected = trainer.step(x)
    for other in others:
        assert torch.equal(other.step(x), expected)
        assert other.step.graph is not trainer.step.graph


def test_a_wrong_option_or_step_is_an_error_at_once():
    with pytest.raises(TypeError, match="compile_step has no option 'speed'"):
        flow.compile_step(lambda: None, speed=3)
    with pytest.raises(TypeError, match="compile_step takes a function, found int 3"):
        flow.compile_step(3)
    with pytest.raises(TypeError, match="no option 'gradient_accumulation_steps'"):
        flow.compile_step(lambda: None, gradient_accumulation_steps=2)
    step = flow.compile_step(lambda: None)
    with pytest.raises(RuntimeError, match="steps its optimizers itself"):
        step.graph.add_optimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1))
    with pytest.raises(RuntimeError, match="scales its loss itself"):
        step.graph.set_grad_scaler(torch.amp.GradScaler("cpu"))
    with pytest.raises(RuntimeError, match="save or export was called for the graph of a compiled step"):
        step.graph.save("graph")


def train(model, optimizer, x, scheduler=None):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return loss.item()


def test_models_optimizers_and_schedules_may_be_arguments():
    def make():
        model = programs.mlp()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    step = flow.compile_step(train, backend="aten", strict=True)
    for seed in range(2):  # two models
        torch.manual_seed(seed)
        model, optimizer, scheduler = make()
        torch.manual_seed(seed)
        twin, its_optimizer, its_scheduler = make()
        for n in (5, 3, 7, 2, 5):  # sizes of batches
            x = torch.randn(n, 4)
            expected = train(model, optimizer, x, scheduler=scheduler)
            assert step(twin, its_optimizer, x, scheduler=its_scheduler) == expected
        assert list(differences([*model.parameters()], [*twin.parameters()])) == []
        assert len(step.graph._engine.programs) == 2
    assert "x [5, 4]" in step.graph.explain()


def test_a_compiled_step_inside_a_step_or_a_graph_is_part_of_its_program():
    double = flow.compile_step(lambda x: x * 2, strict=True)
    outer = flow.compile_step(lambda x: double(x) + 1, strict=True)

    class Adds(flow.nn.Graph):
        def build(self, x):
            return double(x) + 1

    assert outer(torch.ones(2)).tolist() == Adds()(torch.ones(2)).tolist() == [3, 3]


def test_an_inference_function_is_a_program_without_gradients():
    model = programs.mlp()
    step = flow.compile_step(lambda x: model(x), backend="aten", strict=True)
    x = torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(step(x), model(x))
    with pytest.raises(RuntimeError, match="returns a tensor whose backward"):
        step(x)


def test_gradients_of_the_last_call_are_freed_before_the_run():
    program = programs.several_steps()
    step = flow.compile_step(program.step, backend="aten", strict=True)
    step(torch.randn(5, 4))
    gradients = [weakref.ref(p.grad) for p in program.modules[0].parameters()]
    entry = step.graph._engine.last_entry
    alive, run = [], entry.run

    def counting(*values):
        alive.extend(reference() is not None for reference in gradients)
        return run(*values)

    entry.run = counting
    step(torch.randn(5, 4))
    assert alive == [False] * len(gradients)


@pytest.mark.eager_calls
def test_a_number_that_changes_in_each_call_ends_in_eager_mode():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4))
    captures = []

    def step(x, scale):
        captures.append(isinstance((x * 1), FakeTensor))
        loss = (weight * x * float(str(scale))).sum()  # a text needs the number itself
        weight.grad = None
        loss.backward()
        with torch.no_grad():
            weight.sub_(0.1 * weight.grad)
        return loss.item()

    compiled = flow.compile_step(step, backend="aten")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(60):
            compiled(torch.ones(4), i / 7)
    assert ["a number that changes in each call may be a tensor" in str(w.message) for w in caught] == [True]
    assert sum(captures) <= 14
    torch.manual_seed(0)
    with torch.no_grad():
        expected = torch.randn(4)
        for i in range(60):
            expected.sub_(0.1 * (torch.ones(4) * (i / 7)))
    torch.testing.assert_close(weight, nn.Parameter(expected))


class Output(collections.OrderedDict):
    """As the outputs of transformers: entries are attributes, and none is ever removed."""

    def __init__(self, **entries):
        super().__init__()
        for name, value in entries.items():
            self[name] = value

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __delitem__(self, name):
        raise TypeError("no entry of an output is removed")

    setdefault = pop = update = __delitem__


def test_a_capture_that_begins_again_leaves_dicts_alone_whose_class_allows_no_change():
    """The optimizer that the step refers to is met after the model has made its output."""
    kept = Output(calls=0)

    def make():
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            logits = model(x)
            output = Output(logits=logits, loss=logits.square().mean())
            kept["calls"] = kept["calls"] + 1
            kept["new"] = "value"
            output.loss.backward()
            optimizer.step()
            return output

        return model, step

    torch.manual_seed(0)
    eager_model, eager = make()
    torch.manual_seed(0)
    model, step = make()
    step = flow.compile_step(step, backend="aten")
    for _ in range(3):
        x = torch.randn(4, 3)
        for a, b in zip(eager(x).values(), step(x).values()):
            assert torch.equal(a, b)
    assert all(map(torch.equal, eager_model.parameters(), model.parameters()))
    assert dict(kept) == {"calls": 6, "new": "value"}


class Noisy(torch.optim.SGD):
    """Samples one number at a time, from a probability that is known and from nothing."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = torch.bernoulli(torch.tensor(0.5)) + torch.rand(1)[0]
                parameter.add_(parameter.grad * kept, alpha=-group["lr"])


def test_an_optimizer_that_samples_single_numbers_samples_them_in_the_runs_only():
    def steps(compiled):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = Noisy(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = flow.compile_step(step, backend="aten", strict=True) if compiled else step
        losses = [run(torch.randn(4, 3)) for _ in range(4)]
        return torch.stack([*losses, *model.state_dict()["bias"], *torch.rand(2)])

    assert torch.equal(steps(compiled=True), steps(compiled=False))


@pytest.mark.eager_calls
def test_a_backward_into_a_history_from_before_the_call_is_that_of_eager_mode():
    def steps(compiled):
        torch.manual_seed(0)
        weight, holder = torch.randn(3, requires_grad=True), []

        def step(x):
            (holder[-1] * x).sum().backward()
            return weight.grad.clone()

        run = flow.compile_step(step, backend="aten") if compiled else step
        results = []
        for k in range(3):
            holder.append(torch.tanh(weight) * 2)
            results.append(run(torch.full((3,), k + 1.0)))
        return results

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(map(torch.equal, steps(compiled=True), steps(compiled=False)))


@pytest.mark.eager_calls
@pytest.mark.parametrize("zeroes", [True, False])
@pytest.mark.parametrize("in_list", [True, False])
def test_a_gradient_that_the_step_keeps_is_the_parameters_own(zeroes, in_list):
    def steps(compiled):
        torch.manual_seed(0)
        model, kept, last = nn.Linear(2, 1), [], {"gradient": None}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            if zeroes:
                optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            if in_list:
                kept.append(model.weight.grad)
            else:
                last["gradient"] = model.weight.grad
            optimizer.step()

        run = flow.compile_step(step, backend="aten") if compiled else step
        results = []
        for k in range(4):
            run(torch.full((3, 2), k + 1.0))
            gradient = kept[-1] if in_list else last["gradient"]
            assert gradient is model.weight.grad and type(gradient) is torch.Tensor
            results.append(gradient.clone())
        return results

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(map(torch.equal, steps(compiled=True), steps(compiled=False)))
