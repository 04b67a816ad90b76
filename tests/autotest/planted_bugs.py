"""One planted bug for each kind of difference that the harness can find, with the program that finds it."""

import types
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch
from planted import Library, graph_class

import oneflow
from oneflow_autotest.placement import GlobalScope


@dataclass
class Bug:
    program: Callable  # of the harness's API
    check: str  # the check that must report it
    library: Any
    faithful: Any  # the same library without the bug
    options: dict


BUGS: dict[str, Bug] = {}


def planted(check, faithful=oneflow, options=None, **replaced):
    """Register the decorated program as the one that finds a bug of `faithful` with these names replaced."""

    def decorate(program):
        library = Library(faithful, **replaced)
        library._own["__name__"] = "buggy"
        BUGS[program.__name__] = Bug(
            program, check, library, faithful, {"check_graph": False} | (options or {})
        )
        return program

    return decorate


def gradient_of(function, backward):
    """An operator with this backward."""

    class Operator(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return function(x)

        backward = staticmethod(lambda ctx, g: globals_of_bug["backward"](g))

    globals_of_bug = {"backward": backward}
    return Operator.apply


def writes_its_input(x):
    out = x.relu()
    x.detach().mul_(2)
    return out


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


class GradientRaises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("no backward")


class ShiftedLinear(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) + self.bias - self.bias.detach()


class DriftingBatchNorm(torch.nn.BatchNorm1d):
    def forward(self, x):
        self.running_mean += 1
        return super().forward(x)


class WritesItsWeight(torch.nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        self.weight.data = self.weight.data * 2
        return out


def relu_of(api, **options):
    return api.torch.relu(api.random_tensor(ndim=2, low=-1, high=1, **options))


def linear_of(api):
    return api.torch.nn.Linear(3, 2)(api.random_tensor(ndim=2, dim1=3))


def batch_norm_of(api):
    return api.torch.nn.BatchNorm1d(3)(api.random_tensor(2, dim0=4, dim1=3))


# ------------------------------------------------------------------ values
@planted("values", relu=lambda x: x.relu() + 1)
def wrong_value(api):
    return relu_of(api)


@planted("values", relu=lambda x: x.relu() + 1)
def wrong_value_that_the_test_does_not_return(api):
    return relu_of(api) * 0


@planted("values", relu=lambda x: x.relu() * float("nan"))
def not_a_number(api):
    return relu_of(api)


@planted("values", options={"rtol": 0, "atol": 1e-6}, relu=lambda x: x.relu() + 3e-6)
def a_value_beyond_the_tolerance_of_the_test(api):
    return relu_of(api)


@planted("values", relu=lambda x: x.relu() + 0.1)
def wrong_value_in_bfloat16(api):
    return api.torch.relu(api.random_tensor(2, requires_grad=False).to(api.torch.bfloat16))


@planted("values", relu=lambda x: x.relu() + 1)
def wrong_value_of_a_large_tensor(api):
    return api.torch.relu(api.random_tensor(2, 50, 50))


@planted("values", sort=lambda x: torch.return_types.sort(reversed_(x)))
def wrong_order(api):
    return api.torch.sort(api.random_tensor(1, 5, low=0, high=1))[0]


def reversed_(x):
    values, indices = torch.sort(x)
    return values.flip(0), indices.flip(0)


@planted("values", is_floating_point=lambda x: False)
def wrong_plain_value(api):
    return api.torch.is_floating_point(api.random_tensor(1))


@planted("shape", unique=lambda x: torch.unique(x)[:0])
def wrong_length(api):
    return len(api.torch.unique(api.random_tensor(1, 4, requires_grad=False)))


@planted("values", ones=lambda *a: torch.zeros(*a))
def wrong_truth_of_a_value(api):
    if api.torch.ones(1) > 0.5:
        return api.random_tensor(1)


@planted("values", relu=lambda x: x.relu() + 1)
def wrong_after_random_numbers(api):
    x = api.torch.nn.functional.dropout(api.random_tensor(2, 4, 4), 0.5)
    return api.torch.relu(x + api.torch.rand(4, 4))


@planted("inputs written", relu=writes_its_input)
def input_written(api):
    return relu_of(api)


@planted("second call", nn__Linear=WritesItsWeight)
def parameter_written(api):
    return linear_of(api)


@planted("buffers", nn__BatchNorm1d=DriftingBatchNorm)
def wrong_buffer(api):
    return batch_norm_of(api)


# ------------------------------------------------------------------ shape, dtype, device, type
@planted("shape", relu=lambda x: x.relu().unsqueeze(0))
def wrong_shape(api):
    return relu_of(api)


@planted("dtype", options={"check_dtype": True}, relu=lambda x: x.relu().double())
def wrong_float_dtype(api):
    return relu_of(api)


@planted("dtype", argmax=lambda x: x.argmax().int())
def wrong_integer_dtype(api):
    return api.torch.argmax(api.random_tensor(1, 3))


@planted("dtype", promote_types=lambda a, b: torch.float64)
def wrong_dtype_as_a_result(api):
    return api.torch.promote_types(torch.int8, torch.float32)


@planted("device", relu=lambda x: torch.empty_like(x, device="meta"))
def result_on_another_device(api):
    return api.torch.relu(api.random_tensor(2, requires_grad=False))


@planted("values", abs=lambda x: x.abs() + 1)
def wrong_value_beside_tensors_without_values(api):
    return api.torch.empty(2, device="meta"), api.torch.abs(api.random_tensor(1))


@planted("device", get_default_device=lambda: torch.device("meta"))
def wrong_device_as_a_result(api):
    return api.torch.get_default_device()


@planted("number and type of outputs", split=lambda x, n: torch.split(x, n)[:-1])
def too_few_outputs(api):
    return api.torch.split(api.random_tensor(1, 4), 2)


@planted("number and type of outputs", relu=lambda x: 3.0)
def a_number_for_a_tensor(api):
    return relu_of(api)


class LosesAChild(torch.nn.Sequential):
    def children(self):
        return iter(list(super().children())[:-1])


@planted("number and type of outputs", nn__Sequential=LosesAChild)
def too_few_elements_of_an_iterator(api):
    for child in api.torch.nn.Sequential(api.torch.nn.ReLU(), api.torch.nn.Tanh()).children():
        child(api.random_tensor(1))


class LosesItsBias(torch.nn.Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.bias = None


@planted("module", nn__Linear=LosesItsBias)
def a_module_without_its_bias(api):
    return api.torch.nn.Linear(3, 2).bias


class HidesItsBias(torch.nn.Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.is_made = True

    def __getattribute__(self, name):
        is_hidden = name == "bias" and "is_made" in super().__getattribute__("__dict__")
        return None if is_hidden else super().__getattribute__(name)


@planted("number and type of outputs", nn__Linear=HidesItsBias)
def none_for_a_tensor(api):
    return api.torch.nn.Linear(3, 2).bias


# ------------------------------------------------------------------ gradients
@planted("gradient", relu=gradient_of(torch.relu, lambda g: g + 1))
def wrong_gradient(api):
    return relu_of(api)


@planted("gradient", relu=gradient_of(torch.relu, lambda g: None))
def no_gradient(api):
    return relu_of(api)


@planted("gradient", relu=lambda x: x.detach().relu())
def output_without_gradient(api):
    return relu_of(api)


@planted("gradient", relu=lambda x: x.relu().requires_grad_())
def output_with_a_needless_gradient(api):
    return relu_of(api, requires_grad=False)


@planted("gradient", add=lambda a, b: gradient_of(torch.clone, lambda g: g * 2)(a + b))
def wrong_gradient_of_a_function_that_is_also_an_operator(api):
    x = api.random_tensor(1, 3)
    return api.torch.add(x, x)


@planted("values", eq=lambda a, b: (a == b).logical_not())
def wrong_value_of_a_function_that_is_also_an_operator(api):
    x = api.random_tensor(1, 3, requires_grad=False)
    return api.torch.eq(x, x)


@planted("gradient", nn__Linear=ShiftedLinear)
def wrong_gradient_of_a_parameter(api):
    return linear_of(api)


@planted("gradient", var_mean=lambda x: torch.var_mean(gradient_of(torch.clone, lambda g: g * 2)(x)))
def wrong_gradient_through_several_outputs(api):
    return api.torch.var_mean(api.random_tensor(1, 4))


@planted("one side raised", relu=GradientRaises.apply)
def only_the_backward_of_the_candidate_raises(api):
    return relu_of(api)


# ------------------------------------------------------------------ errors
@planted("one side raised", relu=raises(RuntimeError("too large")))
def only_the_candidate_raises(api):
    return relu_of(api)


@planted("one side raised", cat=lambda tensors: tensors[0])
def only_the_reference_raises(api):
    return api.torch.cat([api.random_tensor(1, 2), api.random_tensor(2)])


@planted("class of error", cat=raises(KeyError("shapes")))
def another_class_of_error(api):
    return api.torch.cat([api.random_tensor(1, 2), api.random_tensor(2)])


# ------------------------------------------------------------------ promises of a call
@planted("strides", bernoulli=lambda x: torch.bernoulli(x).t().contiguous().t())
def wrong_strides_of_random_numbers(api):
    return api.torch.bernoulli(api.random_tensor(2, 3, 4, low=0, high=1, requires_grad=False))


class SinWithoutSecondDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].detach().cos()


@planted("second derivative", sin=SinWithoutSecondDerivative.apply)
def wrong_second_derivative(api):
    return api.torch.sin(api.random_tensor(2, 2, 3))


# ------------------------------------------------------------------ settings of the process
def after(change):
    """A relu that changes a setting of the process."""

    def relu(x):
        out = x.relu()
        change()
        return out

    return relu


@planted("settings", relu=after(lambda: torch.set_grad_enabled(False)))
def leaves_gradients_disabled(api):
    return relu_of(api)


@planted("settings", relu=after(lambda: torch.set_default_dtype(torch.float64)))
def leaves_another_default_dtype(api):
    return relu_of(api)


@planted("settings", relu=after(lambda: np.random.seed(0)))
def leaves_another_random_stream_of_numpy(api):
    return relu_of(api)


def kept_in_another_default_dtype(g):
    torch.set_default_dtype(torch.float64)
    return g


@planted("settings", relu=gradient_of(lambda x: x * 2 - x, kept_in_another_default_dtype))
def leaves_another_default_dtype_after_backward(api):
    return api.torch.relu(api.random_tensor(ndim=2, low=1, high=2))


# ------------------------------------------------------------------ global tensors
@planted("values", relu=lambda x: x.relu() + 1)
def wrong_value_of_a_global_tensor(api):
    with GlobalScope():
        x = api.random_tensor(2, requires_grad=False)
        return api.torch.relu(x.to_global(placement=oneflow.placement("cpu", [0]), sbp=oneflow.sbp.split(0)))


@planted("gradient", nn__Linear=ShiftedLinear)
def wrong_gradient_of_a_global_module(api):
    with GlobalScope():
        return linear_of(api)


# ------------------------------------------------------------------ graphs
GRAPH = {"check_graph": True}


@planted("graph: values", options=GRAPH, nn__Graph=graph_class(outputs=lambda t: t + 1))
def wrong_value_in_the_graph(api):
    return relu_of(api)


@planted("graph: gradient", options=GRAPH, nn__Graph=graph_class(gradients=lambda t: t + 1))
def wrong_gradient_in_the_graph(api):
    return relu_of(api)


@planted("graph: gradient", options=GRAPH, nn__Graph=graph_class(gradients=lambda t: t + (t.numel() == 2)))
def wrong_parameter_gradient_in_the_graph(api):
    return linear_of(api)


@planted("graph: in-place effect, values", options=GRAPH, nn__Graph=graph_class(inputs=lambda t: t - 1))
def the_graph_does_not_write_its_input(api):
    x = api.random_tensor(1, 3, requires_grad=False)
    x.add_(1)
    return x * 2


@planted("graph raised", options=GRAPH, nn__Graph=graph_class(refuse=RuntimeError("no such operator")))
def the_graph_raises(api):
    return relu_of(api)


class GraphThatDrifts(oneflow.nn.Graph):
    def __call__(self, *args):
        out = super().__call__(*args)
        self.module0._origin.running_mean.add_(1)
        return out


@planted("graph: buffers, values", options=GRAPH, nn__Graph=GraphThatDrifts)
def wrong_buffer_in_the_graph(api):
    m = api.torch.nn.BatchNorm1d(3)
    m.train(True)
    return m(api.random_tensor(2, dim0=4, dim1=3))


# ------------------------------------------------------------------ a library with tensors of its own and no
NUMPY = types.SimpleNamespace(
    __name__="numpylib",
    Tensor=np.ndarray,
    tensor=np.array,
    exp=np.exp,
    log=np.log,
    sum=np.sum,
    matmul=np.matmul,
    argmax=np.argmax,
    float32=np.float32,
    stack=lambda xs: np.stack(xs),
)
WITHOUT_GRADIENTS = {"auto_backward": False}


@planted("values", faithful=NUMPY, options=WITHOUT_GRADIENTS, log=np.log2)
def wrong_value_of_a_numpy_library(api):
    x = api.random_tensor(2, low=1, high=2)
    x *= 2
    return api.torch.log(api.torch.exp(x) + 1), api.torch.sum(x)


@planted("dtype", faithful=NUMPY, options=WITHOUT_GRADIENTS, argmax=lambda x: np.argmax(x).astype(np.int32))
def wrong_dtype_of_a_numpy_scalar(api):
    return api.torch.argmax(api.random_tensor(1, 3))


@planted("one side raised", faithful=NUMPY, options=WITHOUT_GRADIENTS, stack=raises(ValueError("no stack")))
def only_a_numpy_library_raises(api):
    return api.torch.stack([api.random_tensor(1, 3)])
