"""Every optimizer of torch's optim_db in eager mode: each dtype and each choice of options, over four
steps.
"""

import pytest
import torch
from outcomes import outcome_of
from torch.testing._internal.common_optimizers import optim_db

STEPS = 4


def class_of(info):
    """Return the class that a program gets by the name of the optimizer."""
    return getattr(torch.optim, info.optim_cls.__name__, info.optim_cls)


def network_and_input(name, dtype):
    """Return a small network that the optimizer can train, and its input."""
    if name == "SparseAdam":
        return torch.nn.Embedding(7, 4, sparse=True).to(dtype), torch.arange(3)
    layer = torch.nn.Linear(5, 4, bias=name != "Muon")  # Muon takes matrices only
    return torch.nn.Sequential(layer, torch.nn.Tanh()).to(dtype), torch.randn(3, 5, dtype=dtype)


def trained(info, options, dtype):
    """Train a small network. Return the losses, the weights and the state of the optimizer."""
    network, x = network_and_input(info.optim_cls.__name__, dtype)
    options = {key: value for key, value in options.items() if key != "params"}
    optimizer = class_of(info)(network.parameters(), **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = (network(x) - 0.25).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            losses.append(optimizer.step(closure))
        else:
            losses.append(closure().detach())
            optimizer.step()
    state = optimizer.state_dict()["state"]
    return losses, [*network.state_dict().values()], [*state.values()], repr(optimizer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in optim_db])
def test_options(info, dtype, record):
    for options in info.optim_inputs_func(device="cpu"):
        record.add(options.desc, outcome_of(lambda: trained(info, options.kwargs, dtype)))


@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in optim_db])
def test_errors(info, record):
    for number, error in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32)):
        options = error.optimizer_error_input
        outcome = outcome_of(lambda: repr(class_of(info)(options.params, **options.kwargs)))
        record.add(f"error input {number}", outcome)
