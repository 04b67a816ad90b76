"""Parameter lists that optimizers refuse, with the error class of OneFlow 0.9.0 on a CPU; clipping of missing
gradients.
"""

import pytest
import torch

import oneflow as flow
from oneflow import nn

OPTIMIZERS = ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LAMB", "Adadelta"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_empty_iterator_of_parameters_is_accepted(name):
    optimizer = getattr(flow.optim, name)(nn.ReLU().parameters(), lr=0.1)
    assert [group["params"] for group in optimizer.param_groups] == [[]]
    assert optimizer.step() is None and optimizer.zero_grad() is None
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("error", [IndexError, ValueError])
def test_an_empty_list_of_parameters_is_refused_in_both_classes(name, error):
    with pytest.raises(error, match="empty parameter list"):
        getattr(flow.optim, name)([], lr=0.1)


@pytest.mark.parametrize(
    "parameters,error",
    [
        ([3], ValueError),
        ([3], TypeError),
        ("ab", ValueError),
        (3, TypeError),
        (None, TypeError),
        ([{}], AssertionError),
        (flow.ones(2), TypeError),
    ],
)
def test_parameters_of_another_kind_are_refused(parameters, error):
    with pytest.raises(error):
        flow.optim.SGD(parameters, lr=0.1)


def test_a_group_without_parameters_is_refused_in_both_classes():
    optimizer = flow.optim.SGD([nn.Parameter(flow.ones(2))], lr=0.1)
    for error in (KeyError, ValueError):
        with pytest.raises(error, match="needs the key 'params'; this one has"):
            optimizer.add_param_group({})
    with pytest.raises(AssertionError):
        optimizer.add_param_group([])
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    "parameters",
    [lambda: nn.Parameter(flow.ones(2)), lambda: [nn.Parameter(flow.ones(2))], list, lambda: iter([])],
)
def test_values_of_gradients_that_do_not_exist_are_not_clipped(parameters):
    assert nn.utils.clip_grad_value_(parameters(), 1.0) is None


def test_values_are_clipped_where_a_gradient_exists():
    trained, idle = nn.Parameter(flow.ones(2)), nn.Parameter(flow.ones(2))
    (trained * flow.tensor([3.0, -0.5])).sum().backward()
    nn.utils.clip_grad_value_([trained, idle], 1.0)
    assert trained.grad.tolist() == [1.0, -0.5] and idle.grad is None


def test_torchs_dialect_keeps_torchs_function():
    flow.set_dialect("torch")
    try:
        assert flow.nn.utils.clip_grad_value_ is torch.nn.utils.clip_grad_value_
    finally:
        flow.set_dialect("oneflow")


def test_a_parameter_listed_twice():
    """OneFlow takes both lists and updates twice in each step; torch warns and updates twice, or refuses two
    groups.
    """
    parameter = nn.Parameter(flow.ones(2))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = flow.optim.SGD([parameter, parameter], lr=0.1)
    (parameter * parameter).sum().backward()
    optimizer.step()
    assert flow.allclose(parameter, flow.tensor([0.6, 0.6]))  # 0.9.0 has 0.6 too
    with pytest.raises(ValueError, match="more than one parameter group"):
        flow.optim.SGD([{"params": [parameter]}, {"params": [parameter]}], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [parameter]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("value", [torch.nn.Linear(2, 2), torch.nn.ModuleList([torch.nn.Linear(2, 2)]), None])
def test_a_module_in_place_of_its_parameters_is_named(value):
    type_name = type(value).__name__
    with pytest.raises(TypeError, match=rf"found {type_name}; pass module.parameters\(\)"):
        flow.optim.Adam(value)


@pytest.mark.parametrize("clip", [flow.nn.utils.clip_grad_norm_, flow.nn.utils.clip_grad_value_])
def test_a_module_in_place_of_gradients_is_named(clip):
    message = rf"{clip.__name__} takes an iterable of parameters, found Linear; pass module.parameters\(\)"
    with pytest.raises(TypeError, match=message):
        clip(torch.nn.Linear(2, 2), 1.0)
