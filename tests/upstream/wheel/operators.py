"""Every operator of torch's op_db in eager mode: each dtype, each sample, as a function and as a method."""

import operator

import pytest
import torch
from op_samples import LEFT_OUT, case, copied, left_out, samples_of_torch, seed_all, with_gradients
from outcomes import outcome_of

torch_itself = samples_of_torch.torch  # the drop-in does not replace names of torch's own modules
NAMES = {op.name for op in samples_of_torch.op_db}
assert left_out.keys() <= NAMES, f"op_db lacks an operator of {LEFT_OUT}"


def public(namespace, name):
    """Return the attribute with a dotted name, or None."""
    try:
        return operator.attrgetter(name)(namespace)
    except AttributeError:
        return None


def function_of(op):
    """Return the function that a program gets by the name of the operator. Some entries wrap it."""
    function = public(torch_itself, op.name)
    return public(torch, op.name) if function is not None and function is op.op else op.op


def method_of(op, variant):
    """Return the method of Tensor, if the table's is the method by the name of the operator."""
    return getattr(torch.Tensor, variant.__name__, variant)


def forms(op):
    """Return {form: function} of an operator. The package adds methods to Tensor, but not to its base
    class.
    """
    result = {"function": function_of(op)}
    for form, variant in (("method", op.method_variant), ("in place", op.inplace_variant)):
        if hasattr(torch_itself._C.TensorBase, getattr(variant, "__name__", "")):
            result[form] = method_of(op, variant)
    return result


def samples(op, dtype):
    """Return the samples of an operator and a dtype, as tuples."""
    seed_all(3)
    requested = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    return [*op.sample_inputs("cpu", dtype, requires_grad=requested)]


CASES = [
    pytest.param(op, dtype, id=f"{case(op)}-{str(dtype).partition('.')[2]}")
    for op in samples_of_torch.op_db
    if op.name not in left_out
    for dtype in sorted(op.supported_dtypes("cpu"), key=str)
]


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("op, dtype", CASES)
def test_samples(op, dtype, layout, record):
    for number, sample in enumerate(samples(op, dtype)):
        sample = sample.noncontiguous() if layout == "strided" else sample
        for form, function in forms(op).items():
            if form == "in place" and sample.broadcasts_input:
                continue
            inputs = copied((sample.input, sample.args, sample.kwargs))
            if form == "in place":  # a leaf that requires a gradient cannot be written
                inputs = (inputs[0].detach(), *inputs[1:])
            outcome = outcome_of(lambda: with_gradients(function, inputs), inputs)
            record.add(f"sample {number} {form}", outcome)


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, id=case(op))
        for op in samples_of_torch.op_db
        if op.error_inputs_func is not None and op.name not in left_out
    ],
)
def test_errors(op, record):
    seed_all(3)
    function = function_of(op)
    for number, error in enumerate(op.error_inputs("cpu")):
        sample = error.sample_input
        call = lambda: function(sample.input, *sample.args, **sample.kwargs)
        record.add(f"error input {number}", outcome_of(call))
