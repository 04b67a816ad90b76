"""Every check fails with its own message on a library that has the corresponding bug."""

import pytest
import torch
from planted import Library, failure, graph_class, harness, passes

from oneflow_autotest import Mismatch


def relu_of(api):
    return api.torch.relu(api.random_tensor(ndim=2, low=-1, high=1))


def linear_of(api):
    m = api.torch.nn.Linear(3, 2)
    return m(api.random_tensor(ndim=2, dim1=3))


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_faithful_library_passes():
    passes(harness(), relu_of)
    passes(harness(), linear_of)


def test_wrong_value():
    e = failure(harness(relu=lambda x: x.relu() + (x > 0.5)), relu_of)
    assert e.check == "values" and "1 of 1 elements differ" in str(e)
    assert "lib.relu(x0)" in str(e)


def test_wrong_value_of_an_intermediate_result_is_reported_where_it_arises():
    e = failure(harness(relu=lambda x: x.relu() * 2), lambda api: relu_of(api).sum().exp())
    assert e.check == "values" and str(e).startswith("values: v1 differs")


def test_wrong_gradient_only():
    e = failure(harness(relu=WrongGradient.apply), relu_of)
    assert e.check == "gradient" and "the gradient of x0 differs" in str(e)


def test_missing_gradient():
    e = failure(harness(relu=lambda x: x.detach().relu()), relu_of)
    assert e.check == "gradient" and "requires a gradient in pytorch and not in buggy" in str(e)


def test_wrong_gradient_of_a_parameter():
    class Linear(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + self.bias - self.bias.detach()

    e = failure(harness(nn__Linear=Linear), linear_of)
    assert e.check == "gradient" and "the gradient of parameter bias of m0 differs" in str(e)


def test_wrong_buffer():
    class BatchNorm1d(torch.nn.BatchNorm1d):
        def forward(self, x):
            self.running_mean += 1
            return super().forward(x)

    e = failure(
        harness(nn__BatchNorm1d=BatchNorm1d),
        lambda api: api.torch.nn.BatchNorm1d(3)(api.random_tensor(2, dim0=4, dim1=3)),
    )
    assert e.check == "buffers" and "running_mean" in str(e)


def test_wrong_shape():
    e = failure(harness(relu=lambda x: x.relu().unsqueeze(0)), relu_of)
    assert e.check == "shape" and "(1, 1)" in str(e) and "(1, 1, 1)" in str(e)


def test_wrong_float_dtype_of_the_same_kernels():
    api = harness(relu=lambda x: x.relu().double())
    assert failure(api, relu_of).check == "dtype"
    passes(api, relu_of, check_graph=False, check_dtype=False)


@pytest.mark.parametrize("convert", [torch.Tensor.int, torch.Tensor.bool])
def test_wrong_integer_dtype_always(convert):
    e = failure(
        harness(argmax=lambda x: convert(x.argmax())),
        lambda api: api.torch.argmax(api.random_tensor(ndim=1, dim0=3)),
    )
    assert e.check == "dtype" and "int64" in str(e)


def test_wrong_number_of_outputs():
    e = failure(
        harness(split=lambda x, n: torch.split(x, n)[:-1]),
        lambda api: api.torch.split(api.random_tensor(ndim=1, dim0=4), 2),
    )
    assert e.check == "number and type of outputs" and "a tuple of 2" in str(e) and "a tuple of 1" in str(e)


def test_wrong_type_of_output():
    e = failure(harness(relu=lambda x: 3.0), relu_of)
    assert e.check == "number and type of outputs" and "a float in buggy" in str(e)


def test_only_the_candidate_raises():
    def relu(x):
        if x.numel() > 3:
            raise RuntimeError("too large")
        return x.relu()

    e = failure(harness(relu=relu), relu_of)
    assert e.check == "one side raised" and "buggy raised RuntimeError: too large" in str(e)


def test_only_the_reference_raises():
    e = failure(
        harness(cat=lambda tensors: tensors[0]),
        lambda api: api.torch.cat([api.random_tensor(1, dim0=2), api.random_tensor(2)]),
    )
    assert e.check == "one side raised" and "buggy accepts it" in str(e)


def test_another_class_of_error():
    def cat(tensors):
        raise KeyError("shapes")

    api = harness(cat=cat)
    program = lambda api: api.torch.cat([api.random_tensor(1, dim0=2), api.random_tensor(2)])
    e = failure(api, program)
    assert e.check == "class of error" and "RuntimeError in pytorch and KeyError in buggy" in str(e)


def test_in_place_leak():
    def relu(x):
        out = x.relu()
        x.detach().mul_(2)
        return out

    e = failure(harness(relu=relu), relu_of)
    assert e.check == "inputs written" and "arguments written [False] in pytorch, [True] in buggy" in str(e)


def test_wrong_plain_value():
    e = failure(
        harness(is_floating_point=lambda x: False),
        lambda api: api.torch.is_floating_point(api.random_tensor(1)),
    )
    assert e.check == "values" and "True in pytorch and False in buggy" in str(e)


@pytest.mark.parametrize(
    "name, other, check",
    [
        ("promote_types", torch.float64, "dtype"),
        ("get_default_device", torch.device("meta"), "device"),
        ("result_type", None, "dtype"),
    ],
)
def test_wrong_dtype_or_device_as_a_result(name, other, check):
    arguments = {
        "promote_types": (torch.int8, torch.float32),
        "get_default_device": (),
        "result_type": (1, 1.0),
    }[name]
    program = lambda api: getattr(api.torch, name)(*arguments)
    passes(harness(), program, check_graph=False)
    e = failure(harness(**{name: lambda *args: other}), program)
    assert e.check == check and f" and {other} in buggy" in str(e)


def test_a_tolerance_of_zero_is_one():
    api = harness(nn__init=Library(torch.nn.init, calculate_gain=lambda name: 2**0.5 + 1e-6))
    program = lambda api: api.torch.nn.init.calculate_gain("relu")
    passes(api, program, check_graph=False)
    e = failure(api, program, rtol=0, atol=0)
    assert e.check == "values" and "1.4142" in str(e)


# ------------------------------------------------------------------ the same program as a graph
def inplace_of(api):
    x = api.random_tensor(ndim=1, dim0=3, requires_grad=False)
    x.add_(1)
    return x * 2


def batch_norm_of(api):
    return api.torch.nn.BatchNorm1d(3)(api.random_tensor(2, dim0=4, dim1=3))


def test_graph_checks_pass_without_a_bug():
    for api in (harness(), harness(nn__Graph=graph_class())):
        for program in (relu_of, linear_of, inplace_of, batch_norm_of):
            passes(api, program, check_graph=True, n=3)


def test_wrong_value_in_the_graph_only():
    e = failure(harness(nn__Graph=graph_class(outputs=lambda t: t + 1)), relu_of, check_graph=True)
    assert e.check == "graph: values" and "eager" in str(e) and "class Program(flow.nn.Graph)" in str(e)


def test_wrong_gradient_in_the_graph_only():
    e = failure(harness(nn__Graph=graph_class(gradients=lambda t: t + 1)), relu_of, check_graph=True)
    assert e.check == "graph: gradient" and "the gradient of x0" in str(e)


def test_wrong_parameter_gradient_in_the_graph_only():
    e = failure(
        harness(nn__Graph=graph_class(gradients=lambda t: t + (t.numel() == 2))), linear_of, check_graph=True
    )
    assert e.check == "graph: gradient" and "parameter bias of m0" in str(e)


def test_the_graph_does_not_write_its_input():
    e = failure(harness(nn__Graph=graph_class(inputs=lambda t: t - 1)), inplace_of, check_graph=True)
    assert e.check == "graph: in-place effect, values" and "x0" in str(e)


def test_the_graph_raises():
    e = failure(
        harness(nn__Graph=graph_class(refuse=RuntimeError("no such operator"))), relu_of, check_graph=True
    )
    assert type(e).__name__ == "OneFlowGraphBuildOrRunError" and "no such operator" in str(e)


def test_the_graph_updates_a_buffer_wrongly():
    import oneflow

    class Graph(oneflow.nn.Graph):
        def __call__(self, *args):
            out = super().__call__(*args)
            self.module0._origin.running_mean.add_(1)
            return out

    e = failure(harness(nn__Graph=Graph), batch_norm_of, check_graph=True)
    assert e.check == "graph: buffers, values" and "running_mean" in str(e)


def test_check_graph_false_and_validated_false_do_not_run_a_graph():
    api = harness(nn__Graph=graph_class(outputs=lambda t: t + 1))
    for off in (False, "ValidatedFalse", "ValidatedFlase"):
        passes(api, relu_of, check_graph=off)
    assert isinstance(failure(api, relu_of, check_graph=True), Mismatch)


def test_a_setting_that_both_sides_change_is_no_difference():
    def program(api):
        x = api.random_tensor(2, 3, 4)
        with api.torch.no_grad():
            y = x * 2
        api.torch.set_grad_enabled(False)
        z = x + 1
        api.torch.set_grad_enabled(True)
        return y, z, x * 3

    passes(harness(), program, check_graph=False)
    assert torch.is_grad_enabled()
