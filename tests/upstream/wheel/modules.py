"""Every layer of torch's module_db in eager mode: each dtype, each sample, in training and in evaluation."""

import pytest
import torch
from op_samples import copied, seed_all, with_gradients
from outcomes import outcome_of
from torch.testing._internal.common_modules import module_db

CASES = [
    pytest.param(info, dtype, id=f"{info.name.replace('nn.', '')}-{str(dtype).partition('.')[2]}")
    for info in module_db
    for dtype in sorted(info.dtypes, key=str)
]


def class_of(info):
    """Return the class that a program gets by the name of the layer."""
    return getattr(torch.nn, info.module_cls.__name__, info.module_cls)


def strided(t):
    """Return the values in memory with gaps."""
    if not isinstance(t, torch.Tensor) or not t.dim():
        return t
    memory = t.detach().unsqueeze(-1).repeat_interleave(2, -1)[..., 0]
    return memory.requires_grad_(t.requires_grad)


def outcome_of_layer(info, sample, dtype, training, change):
    """Run a new layer on a sample. The outcome has the results, the gradients, the state and the text
    of it.
    """
    create, given = sample.constructor_input, sample.forward_input

    def call():
        layer = class_of(info)(*create.args, **create.kwargs)
        layer.to(dtype=dtype).train(training)
        args, kwargs = copied((given.args, given.kwargs))
        args = tuple(map(change, args))
        result = with_gradients(lambda _, *a, **k: layer(*a, **k), (None, args, kwargs))
        gradients = [p.grad for p in layer.parameters()]
        return result, gradients, [*layer.state_dict().values()], repr(layer), [*layer.state_dict()]

    return outcome_of(call)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info, dtype", CASES)
def test_samples(info, dtype, training, layout, record):
    seed_all(3)
    inputs = info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training)
    for number, sample in enumerate(inputs):
        if sample.forward_input is None:
            continue
        change = strided if layout == "strided" else lambda t: t
        record.add(f"sample {number}", outcome_of_layer(info, sample, dtype, training, change))


@pytest.mark.parametrize(
    "info", [pytest.param(info, id=info.name) for info in module_db if info.module_error_inputs_func]
)
def test_errors(info, record):
    seed_all(3)
    errors = info.module_error_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=True)
    for number, error in enumerate(errors):
        sample = error.module_error_input
        record.add(
            f"error input {number}",
            outcome_of_layer(info, sample, torch.float32, True, lambda t: t)
            if sample.forward_input is not None
            else outcome_of(
                lambda: len(
                    [class_of(info)(*sample.constructor_input.args, **sample.constructor_input.kwargs)]
                )
            ),
        )
