"""Options and state of an optimizer that change their type, layout or memory between two calls."""

import collections
import copy
import warnings

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from training_pair import Pair, X, mean_square

import oneflow as flow


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


# -- a learning rate that is a tensor, and that build() reads ---------------------------------------------


def rate_times_loss(model, optimizer, x):
    return mean_square(model, optimizer, x) * optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("in_place", [True, False])
def test_tensor_rate_that_build_reads_is_an_input(in_place):
    pair = Pair(adam, rate_times_loss)
    for rate in (0.1, 0.05, 0.02):
        if in_place:
            pair.change(lambda _, optimizer: optimizer.param_groups[0]["lr"].fill_(rate))
        else:
            pair.change(lambda _, optimizer: optimizer.param_groups[0].update(lr=torch.tensor(rate)))
        pair.step()
    assert pair.program_count == 1


def test_branch_on_a_tensor_rate_has_a_program_for_each_outcome():
    def loss_of(model, optimizer, x):
        return mean_square(model, optimizer, x) * (2.0 if optimizer.param_groups[0]["lr"] > 0.04 else 1.0)

    pair = Pair(adam, loss_of)
    for rate in (0.1, 0.05, 0.02, 0.1):
        pair.change(lambda _, optimizer: optimizer.param_groups[0]["lr"].fill_(rate))
        pair.step()
    assert pair.program_count == 2


def test_tensor_rate_that_becomes_a_float_makes_another_program():
    pair = Pair(adam, rate_times_loss)
    for rate in (torch.tensor(0.1), 0.05, torch.tensor(0.02), 0.03):
        pair.change(lambda _, optimizer: optimizer.param_groups[0].update(lr=rate))
        pair.step()
    assert pair.program_count == 2


def test_options_in_one_tensor_that_become_two_are_followed():
    def shared(model):
        rate = torch.tensor(0.1)
        first, second = ([p] for p in model.parameters())
        return torch.optim.Adam([{"params": first, "lr": rate}, {"params": second, "lr": rate}], lr=rate)

    pair = Pair(shared)
    pair.step()
    pair.change(lambda _, optimizer: optimizer.param_groups[1].update(lr=torch.tensor(0.02)))
    pair.step()
    pair.step()


# -- state tensors ----------------------------------------------------------------------------------------


def momentum(model, optimizer, index):
    return optimizer.state[model[index].weight]["momentum_buffer"]


def set_momentum(model, optimizer, index, tensor):
    optimizer.state[model[index].weight]["momentum_buffer"] = tensor


def test_state_tensors_that_become_one_and_separate_again_are_followed():
    pair = Pair(sgd)
    pair.step()
    pair.change(lambda m, o: set_momentum(m, o, 0, momentum(m, o, 1)))
    pair.step()
    pair.step()
    pair.change(lambda m, o: set_momentum(m, o, 0, momentum(m, o, 1).clone()))
    pair.step()
    pair.step()


def test_state_tensors_that_were_one_before_the_first_call_become_separate():
    pair = Pair(sgd)

    def share(model, optimizer):
        buffer = torch.ones(4, 4)
        set_momentum(model, optimizer, 0, buffer)
        set_momentum(model, optimizer, 1, buffer)

    pair.change(share)
    pair.step()
    pair.change(lambda m, o: set_momentum(m, o, 0, momentum(m, o, 1) * 0.5))
    pair.step()
    pair.step()


def test_state_tensor_with_other_strides_makes_another_program():
    pair = Pair(sgd)
    pair.step()
    pair.change(lambda m, o: set_momentum(m, o, 0, momentum(m, o, 0).t().contiguous().t()))
    pair.step()
    pair.step()
    assert pair.program_count == 2


def test_state_tensor_of_another_dtype_is_followed():
    pair = Pair(sgd)
    pair.step()
    pair.change(lambda m, o: set_momentum(m, o, 0, momentum(m, o, 0).double()))
    pair.step()
    pair.step()


def test_state_tensor_of_another_shape_is_an_error_that_changes_nothing():
    pair = Pair(sgd)
    pair.step()
    model, optimizer = pair.models[1], pair.optimizers[1]
    replaced = torch.zeros(3, 3)
    set_momentum(model, optimizer, 0, replaced)
    before = copy.deepcopy([*model.parameters(), momentum(model, optimizer, 1)])
    with pytest.raises(RuntimeError, match=r"3"):
        pair.graph(X)
    assert momentum(model, optimizer, 0) is replaced
    assert all(map(torch.equal, before, [*model.parameters(), momentum(model, optimizer, 1)]))


# -- state dicts ------------------------------------------------------------------------------------------


def test_weights_that_are_assigned_without_the_optimizer_are_an_error_that_names_the_remedy():
    pair = Pair(sgd)
    pair.step()
    model, optimizer = pair.models[1], pair.optimizers[1]
    model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}, assign=True)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    with pytest.raises(
        RuntimeError, match=r"(?s)2 parameters, and none of them is in a module.*add_param_group"
    ):
        pair.graph(X)
    assert repr(optimizer.state_dict()["state"]) == repr(before)
    optimizer.param_groups.clear()
    optimizer.add_param_group({"params": list(model.parameters()), **optimizer.defaults})
    weight = model[0].weight.clone()
    pair.graph(X)
    assert not torch.equal(model[0].weight, weight)


def test_assigned_weights_that_the_optimizer_gets_are_followed():
    pair = Pair(sgd)
    pair.step()

    def assign(model, optimizer):
        model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}, assign=True)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.state.clear()

    pair.change(assign)
    pair.step()
    pair.step()


@pytest.mark.parametrize("keep", [0, 1])
def test_optimizer_state_dict_with_less_state_is_followed(keep):
    pair = Pair(sgd)
    pair.step()

    def load(model, optimizer):
        saved = optimizer.state_dict()
        optimizer.load_state_dict({**saved, "state": {k: saved["state"][k] for k in range(keep)}})

    pair.change(load)
    pair.step()
    pair.step()


def test_optimizer_without_parameters_is_an_error():
    pair = Pair(sgd)
    pair.step()
    pair.optimizers[1].param_groups[0]["params"] = []
    with pytest.raises(RuntimeError, match="optimizer 0 \\(SGD\\) has 0 parameters"):
        pair.graph(X)


# -- a first run that fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("make_optimizer", [adam, sgd])
def test_first_run_that_fails_leaves_no_optimizer_state(make_optimizer):
    embedding = nn.Embedding(4, 4)
    optimizer = make_optimizer(embedding)
    weight = embedding.weight.detach().clone()

    class Training(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.embedding = embedding
            self.add_optimizer(optimizer)
            self.config.set_backend("aten")

        def build(self, indices):
            loss = self.embedding(indices).square().mean()
            loss.backward()
            return loss

    graph = Training()
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range"):
            graph(torch.tensor([0, 9]))
        assert not optimizer.state
        assert torch.equal(embedding.weight, weight)
    graph(torch.tensor([0, 1]))
    trained = copy.deepcopy(optimizer.state_dict()["state"])
    assert trained
    with pytest.raises(IndexError, match="index out of range"):
        graph(torch.tensor([0, 9]))
    assert repr(optimizer.state_dict()["state"]) == repr(trained)


# -- state tensors that change in place -------------------------------------------------------------------


def adam_of_numbers(model):
    return torch.optim.Adam(model.parameters(), lr=0.1)


def set_data(name, make):
    """A change of the data of one state tensor of the first parameter."""

    def change(model, optimizer):
        tensor = optimizer.state[next(model.parameters())][name]
        tensor.data = make(tensor)

    return change


CHANGES_IN_PLACE = {
    "other values": set_data("exp_avg", torch.zeros_like),
    "other strides": set_data("exp_avg", lambda t: t.t().contiguous().t()),
    "counter of integers": set_data("step", torch.Tensor.long),
    "counter of another float": set_data("step", torch.Tensor.double),
    "counter with a dimension": set_data("step", lambda t: t.reshape(1)),
}


@pytest.mark.parametrize("name", CHANGES_IN_PLACE)
def test_state_tensor_that_changes_in_place_is_followed(name):
    pair = Pair(adam_of_numbers)
    pair.step()
    pair.step()
    pair.change(CHANGES_IN_PLACE[name])
    pair.step()
    pair.step()


@pytest.mark.parametrize("make", [lambda t: torch.zeros(5, 4), torch.Tensor.double], ids=["shape", "dtype"])
def test_state_tensor_that_eager_refuses_is_refused(make):
    pair = Pair(adam_of_numbers)
    pair.step()
    pair.step()
    pair.change(set_data("exp_avg", make))
    with pytest.raises(RuntimeError, match="expected dtype|must match the size"):
        pair.graph(X)


def test_option_in_a_list_is_the_object_of_the_user_after_the_capture():
    class Listed(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters, lr=0.1)
            self.param_groups[0]["factors"] = factors

    factors = [1.0]
    pair = Pair(lambda model: Listed(model.parameters()))
    pair.step()
    assert pair.optimizers[1].param_groups[0]["factors"] is factors


def test_two_state_tensors_that_set_data_makes_one_memory_are_followed():
    def change(model, optimizer):
        momentum(model, optimizer, 0).data = momentum(model, optimizer, 1).data

    pair = Pair(sgd)
    pair.step()
    pair.step()
    pair.change(change)
    pair.step()
    pair.step()


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "foreach": True, "momentum": 0.9},
        None,
    ],
    ids=str,
)
def test_a_parameter_that_an_optimizer_has_twice_is_updated_as_in_eager(options, layers):
    def training(seed=0):
        torch.manual_seed(seed)
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
        parameters = [*model.parameters(), model[0].weight]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the duplicate
            optimizer = (
                torch.optim.AdamW(parameters) if options is None else torch.optim.SGD(parameters, **options)
            )
        return model, optimizer

    eager, eager_optimizer = training()
    model, optimizer = training()
    step = graph_of(lambda x: mean_step(model, x), optimizer=optimizer, model=model)
    for _ in range(4):
        x = torch.randn(3, 4)
        eager_optimizer.zero_grad()
        expected = mean_step(eager, x)
        eager_optimizer.step()
        assert torch.equal(step(x), expected.detach())
    assert all(map(torch.equal, model.parameters(), eager.parameters()))


def mean_step(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss


def keep_in_attribute_list(optimizer, index, parameter):
    if len(optimizer.history) <= index:
        optimizer.history.append(torch.zeros_like(parameter))
    return optimizer.history[index].mul_(0.9).add_(parameter.grad)


def keep_in_parameter(optimizer, index, parameter):
    if not hasattr(parameter, "kept"):
        parameter.kept = torch.zeros_like(parameter)
    return parameter.kept.mul_(0.9).add_(parameter.grad)


def keep_in_deque(optimizer, index, parameter):
    history = optimizer.state[parameter].setdefault("history", collections.deque(maxlen=2))
    history.append(parameter.grad.clone())
    return sum(history)


def count_in_attribute(optimizer, index, parameter):
    optimizer.counts[index] = optimizer.counts.get(index, 0) + 1
    optimizer.history.append(parameter.grad.norm())
    return parameter.grad / optimizer.counts[index] + optimizer.history[0]


@pytest.mark.eager_calls
@pytest.mark.parametrize(
    "direction", [keep_in_attribute_list, keep_in_parameter, keep_in_deque, count_in_attribute]
)
def test_a_step_that_no_program_holds_leaves_nothing_of_its_capture(direction):
    """The call in eager mode starts from the state of before the capture, which holds no fake tensor."""

    class Keeps(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})
            self.history, self.counts = [], {}

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for index, parameter in enumerate(group["params"]):
                    parameter.add_(direction(self, index, parameter), alpha=-group["lr"])

    def losses(in_graph):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = Keeps(model.parameters())

        def build(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        class Trains(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x):
                return build(x)

        def eager(x):
            optimizer.zero_grad()
            loss = build(x)
            optimizer.step()
            return loss

        step = Trains() if in_graph else eager
        return [step(torch.full((3, 2), float(i))).item() for i in range(6)], [*map(type, optimizer.history)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert losses(True) == losses(False)
