"""A graph follows changes of optimizers between calls: state, groups, options. Bitwise equal to eager."""

import copy

import pytest
import torch
from stale_state_cases import assert_follows, option, programs_after

# -- optimizers ----------------------------------------------------------------------------------------------


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def two_groups(model):
    return torch.optim.SGD(
        [{"params": list(model.first.parameters())}, {"params": list(model.second.parameters()), "lr": 0.02}],
        lr=0.1,
        momentum=0.9,
    )


def replace_last_state(model, optimizer):
    parameter = model.second.bias
    optimizer.state[parameter] = {k: v.clone().fill_(0.5) for k, v in optimizer.state[parameter].items()}


def delete_last_state(model, optimizer):
    del optimizer.state[model.second.bias]


def delete_state_key(model, optimizer):
    del optimizer.state[model.second.bias]["momentum_buffer"]


def replace_state_tensor(model, optimizer):
    optimizer.state[model.second.bias]["momentum_buffer"] = torch.full((4,), 0.25)


def swap_states(model, optimizer):
    first, second = model.first.bias, model.second.bias
    optimizer.state[first], optimizer.state[second] = optimizer.state[second], optimizer.state[first]


def clear_state(model, optimizer):
    optimizer.state.clear()


def new_state_container(model, optimizer):
    optimizer.state = type(optimizer.state)(dict, {p: dict(s) for p, s in optimizer.state.items()})
    optimizer.state[model.second.weight]["momentum_buffer"] = torch.ones(4, 4)


def load_state(model, optimizer):
    state = copy.deepcopy(optimizer.state_dict())
    for inner in state["state"].values():
        inner["momentum_buffer"].mul_(0.5)
    optimizer.load_state_dict(state)


def remove_last_parameter(model, optimizer):
    optimizer.param_groups[0]["params"].pop()


def remove_first_parameter(model, optimizer):
    del optimizer.param_groups[0]["params"][0]


def new_parameter_list(model, optimizer):
    optimizer.param_groups[0]["params"] = list(model.second.parameters())


def reversed_parameters(model, optimizer):
    optimizer.param_groups[0]["params"].reverse()


def append_parameter(model, optimizer):
    optimizer.param_groups[0]["params"].extend(model.norm.parameters())


def add_group(model, optimizer):
    optimizer.add_param_group({"params": list(model.norm.parameters()), "lr": 0.5})


def remove_group(model, optimizer):
    del optimizer.param_groups[1]


def swap_groups(model, optimizer):
    optimizer.param_groups.reverse()


def replace_group(model, optimizer):
    optimizer.param_groups[0] = dict(optimizer.param_groups[0], lr=0.7)


def replace_groups(model, optimizer):
    optimizer.param_groups = [dict(g, lr=0.3) for g in optimizer.param_groups]


@pytest.mark.parametrize(
    "change",
    [
        replace_last_state,
        delete_last_state,
        delete_state_key,
        replace_state_tensor,
        swap_states,
        clear_state,
        new_state_container,
        load_state,
        remove_last_parameter,
        remove_first_parameter,
        new_parameter_list,
        reversed_parameters,
        replace_group,
        replace_groups,
        option("momentum", 0.5),
        option("momentum", 0),
        option("nesterov", True),
        option("weight_decay", 0.1),
        option("lr", 0.3),
        option("maximize", True),
        option("dampening", 0.1),
    ],
    ids=lambda f: f.__name__,
)
def test_changed_sgd_is_followed(change):
    assert_follows(change)


@pytest.mark.parametrize(
    "change",
    [
        append_parameter,
        add_group,
        remove_group,
        swap_groups,
        remove_last_parameter,
        replace_group,
        replace_groups,
        option("momentum", 0.5),
        option("lr", 0.3),
    ],
    ids=lambda f: f.__name__,
)
def test_changed_groups_are_followed(change):
    assert_follows(change, make_optimizer=two_groups)


@pytest.mark.parametrize("change", [
    replace_last_state, delete_last_state, swap_states, clear_state, remove_first_parameter,
    option("betas", (0.5, 0.9)), option("eps", 1e-3), option("weight_decay", 0.1), option("lr", 0.3),
], ids=lambda f: f.__name__)  # fmt: skip
def test_changed_adam_is_followed(change):
    assert_follows(change, make_optimizer=adam)


def test_loading_a_checkpoint_makes_no_program():
    def load(model, optimizer):
        model.load_state_dict(copy.deepcopy(model.state_dict()))
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    assert programs_after(load) == 1


def tie_states(model, optimizer):
    optimizer.state[model.second.weight] = optimizer.state[model.first.weight]


def tie_state_tensor(model, optimizer):
    first, second = (optimizer.state[layer.weight] for layer in (model.first, model.second))
    second["exp_avg"] = first["exp_avg"]


def tie_counter(model, optimizer):
    first, second = (optimizer.state[layer.weight] for layer in (model.first, model.second))
    second["step"] = first["step"]


@pytest.mark.parametrize("change", [tie_states, tie_state_tensor, tie_counter], ids=lambda f: f.__name__)
def test_parameters_made_to_share_optimizer_state_are_followed(change):
    assert_follows(change, make_optimizer=adam)
