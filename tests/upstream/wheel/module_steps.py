"""Training steps of every layer of torch's module_db, compiled: aten gives the bits of eager mode."""

import pytest
import torch
from compiled import AS_PROGRAM, IN_EAGER_MODE, compared
from modules import class_of
from op_samples import copied, seed_all, tensors
from torch.testing._internal.common_modules import module_db

STEPS = 3
SAMPLES = 6
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def make_training(info, sample, dtype):
    """Return a step that trains a new layer on the arguments of a sample, and a function that returns the
    state.
    """
    seed_all(3)
    create = sample.constructor_input
    layer = class_of(info)(*create.args, **create.kwargs).to(dtype=dtype).train()
    weights = [*layer.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9) if weights else None

    def step(args, kwargs):
        results = tensors(layer(*args, **kwargs))
        loss = sum(t.float().pow(2).sum() for t in results if t.is_floating_point())
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        return results

    return step, lambda: [*layer.state_dict().values()]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("info", [pytest.param(info, id=info.name.replace("nn.", "")) for info in module_db])
def test_step(info, dtype, record_property):
    if dtype not in info.dtypes:
        pytest.skip(f"{info.name} has no {dtype}")
    seed_all(3)
    ran = []
    every = info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=True)
    for sample in every[:: max(1, len(every) // SAMPLES)]:
        given = sample.forward_input
        if given is None or not {*map(type, given.kwargs.values())} <= {torch.Tensor, bool, int, float}:
            continue
        calls = [lambda: copied((given.args, given.kwargs))] * STEPS
        ran.append(compared(lambda: make_training(info, sample, dtype), calls))
    record_property("note", IN_EAGER_MODE if IN_EAGER_MODE in ran else AS_PROGRAM)
