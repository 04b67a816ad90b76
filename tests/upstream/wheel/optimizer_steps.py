"""Training steps with every optimizer of torch's optim_db, compiled: aten gives the bits of eager mode."""

import pytest
import torch
from compiled import AS_PROGRAM, IN_EAGER_MODE, compared, state_of
from op_samples import seed_all
from optimizers import class_of, network_and_input
from torch.testing._internal.common_optimizers import optim_db

STEPS = 4


def make_training(info, options, dtype):
    """Return a step that trains a small network, and a function that returns weights and optimizer state."""
    seed_all(3)
    network, _ = network_and_input(info.optim_cls.__name__, dtype)
    options = {key: value for key, value in options.items() if key != "params"}
    optimizer = class_of(info)(network.parameters(), **options)

    def closure(x):
        optimizer.zero_grad()
        loss = (network(x) - 0.25).pow(2).sum()
        loss.backward()
        return loss

    def step(x):
        if info.step_requires_closure:
            return optimizer.step(lambda: closure(x))
        loss = closure(x)
        optimizer.step()
        return loss.detach()

    return step, lambda: [*network.state_dict().values(), *state_of(optimizer)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in optim_db])
def test_step(info, dtype, record_property):
    ran = []
    seed_all(4)
    inputs = [network_and_input(info.optim_cls.__name__, dtype)[1] for _ in range(STEPS)]
    for options in info.optim_inputs_func(device="cpu"):
        calls = [lambda x=x: (x.clone(),) for x in inputs]
        ran.append(compared(lambda: make_training(info, options.kwargs, dtype), calls))
    record_property("note", IN_EAGER_MODE if IN_EAGER_MODE in ran else AS_PROGRAM)
