"""Bugs of memory, results, errors, arguments, modules, optimizers, graphs and state."""

import numpy as np

import oneflow

from .numeric import plant
from .registry import F, called, mutant, of_a_module, of_one_tensor, torch

# ---------------------------------------------------------------------- memory
plant("memory", "t", "t_copies", lambda x: x.t().clone())
plant("memory", "flatten", "flatten_of_contiguous_memory_copies", lambda x: x.flatten().clone())
plant(
    "memory",
    "unsqueeze",
    "unsqueeze_copies",
    lambda x, dim: x.unsqueeze(dim).clone(),
    of_one_tensor("unsqueeze", 0),
)
plant("memory", "clone", "clone_is_a_view", lambda x: x.view_as(x))
plant("memory", "abs", "abs_of_positive_values_is_its_input", lambda x: x if bool((x > 0).all()) else x.abs())
plant(
    "memory",
    "exp_",
    "exp_in_place_returns_a_copy",
    lambda x: x.exp_().clone(),
    lambda api: api.torch.exp_(api.random_tensor(2, requires_grad=False)),
)
plant(
    "memory",
    "narrow",
    "narrow_copies",
    lambda x, *a: x.narrow(*a).clone(),
    lambda api: api.torch.narrow(api.random_tensor(2, dim1=5), 1, 1, 2),
)


@mutant("memory", "relu", of_one_tensor("relu"))
def relu_writes_its_input(x):
    out = x.relu()
    x.detach().clamp_(min=0)
    return out


@mutant("memory", "add", lambda api: api.torch.add(api.random_tensor(2, 3, 4), api.random_tensor(2, 3, 4)))
def add_writes_its_second_operand(a, b):
    out = a + b
    b.detach().zero_()
    return out


@mutant("memory", "sin", lambda api: api.torch.sin(api.random_tensor(2, requires_grad=False)))
def sin_keeps_one_buffer(x, buffers={}):
    out = buffers.setdefault((x.shape, x.dtype), torch.empty_like(x, memory_format=torch.preserve_format))
    return out.copy_(x.detach().sin()) if not x.requires_grad else x.sin()


@mutant(
    "memory",
    "mul",
    lambda api: api.torch.mul(x := api.random_tensor(2, requires_grad=False), 2, out=api.torch.empty_like(x)),
)
def mul_ignores_out(a, b, out=None):
    return a * b


@mutant("memory", "chunk", of_one_tensor("chunk", 2))
def chunk_copies(x, n):
    return tuple(c.clone() for c in x.chunk(n))


@mutant("memory", "relu_", lambda api: api.torch.relu_(api.random_tensor(2) * 1))
def relu_in_place_leaves_its_input(x):
    return x.relu()


# ---------------------------------------------------------------------- metadata
plant("metadata", "chunk", "chunk_returns_a_list", lambda x, n: list(x.chunk(n)), of_one_tensor("chunk", 2))
plant(
    "metadata",
    "exp",
    "exp_returns_a_parameter",
    lambda x: torch.nn.Parameter(x.exp()),
    lambda api: api.torch.exp(api.random_tensor(2, requires_grad=False)),
)
plant(
    "metadata",
    "cos",
    "cos_requires_a_gradient",
    lambda x: x.cos() if x.requires_grad else x.cos().requires_grad_(),
    lambda api: api.torch.cos(api.random_tensor(2, requires_grad=False)),
)
plant(
    "metadata",
    "sin",
    "sin_result_is_detached_and_not_returned",
    lambda x: x.sin().detach(),
    lambda api: (x := api.random_tensor(2), api.torch.sin(x).sum(), x * 2)[2],
)
plant("metadata", "sigmoid", "sigmoid_result_is_contiguous", lambda x: x.sigmoid().contiguous())
plant(
    "metadata",
    "max",
    "max_returns_a_plain_tuple",
    lambda x, dim: tuple(torch.max(x, dim)),
    of_one_tensor("max", 1),
)
plant("metadata", "zeros_like", "zeros_like_is_transposed", lambda x: torch.zeros_like(x.t()).t())
plant(
    "metadata",
    "tanh",
    "tanh_of_inference_mode",
    lambda x: _in_inference(torch.tanh, x),
    lambda api: api.torch.tanh(api.random_tensor(2, requires_grad=False)),
)
plant(
    "metadata",
    "unbind",
    "unbind_returns_a_stack",
    lambda x: torch.stack(x.unbind()) if x.shape[0] else x.unbind(),
)
plant(
    "metadata",
    "split",
    "split_with_one_chunk_less",
    lambda x, n: x.split(n)[:-1] if x.shape[0] > 4 else x.split(n),
    of_one_tensor("split", 2),
)


def _in_inference(function, x):
    with torch.inference_mode():
        return function(x.clone())


# ---------------------------------------------------------------------- errors
def accepts(default, function):
    def tolerant(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            return default(*args)

    return tolerant


def raising(error, function, condition):
    def strict(*args, **kwargs):
        if condition(*args):
            raise error
        return function(*args, **kwargs)

    return strict


def of_mixed_shapes(path):
    return lambda api: called(api, path, api.random_tensor(2), api.random_tensor(2))


plant(
    "errors",
    "matmul",
    "matmul_accepts_wrong_shapes",
    accepts(lambda a, b: a, torch.matmul),
    of_mixed_shapes("matmul"),
)
plant("errors", "add", "add_accepts_wrong_shapes", accepts(lambda a, b: a, torch.add), of_mixed_shapes("add"))
plant(
    "errors",
    "relu",
    "relu_refuses_empty_tensors",
    raising(RuntimeError("empty"), torch.relu, lambda x: x.numel() == 0),
)
plant(
    "errors",
    "exp",
    "exp_refuses_half_types",
    raising(RuntimeError("no kernel"), torch.exp, lambda x: x.dtype == torch.float16),
)
plant("errors", "amax", "amax_accepts_nothing", accepts(lambda x: x.sum(), torch.amax))
plant(
    "errors",
    "cos",
    "cos_refuses_strides",
    raising(ValueError("strides"), torch.cos, lambda x: not x.is_contiguous()),
)
plant(
    "errors",
    "mm",
    "mm_raises_another_class",
    raising(KeyError("shapes"), torch.mm, lambda a, b: a.shape[1] != b.shape[0]),
    of_mixed_shapes("mm"),
)
plant(
    "errors",
    "sum",
    "sum_refuses_scalars",
    raising(RuntimeError("no dimension"), torch.sum, lambda x: x.dim() == 0),
    lambda api: api.torch.sum(api.random_tensor()),
)


# ---------------------------------------------------------------------- arguments
plant(
    "arguments",
    "sum",
    "sum_ignores_keepdim",
    lambda x, dim, keepdim: x.sum(dim),
    lambda api: api.torch.sum(api.random_tensor(2), 1, keepdim=api.random_bool()),
)
plant(
    "arguments",
    "softmax",
    "softmax_ignores_dim",
    lambda x, dim: x.softmax(-1),
    lambda api: api.torch.softmax(api.random_tensor(2), dim=api.random(0, 2).to(int)),
)
plant(
    "arguments",
    "clamp",
    "clamp_ignores_max",
    lambda x, low, high: x.clamp(low),
    lambda api: api.torch.clamp(api.random_tensor(2), -0.5, 0.5),
)
plant(
    "arguments",
    "add",
    "add_ignores_alpha",
    lambda a, b, alpha=1: a + b,
    lambda api: api.torch.add(x := api.random_tensor(2), x, alpha=api.random(1, 4).to(int)),
)
plant(
    "arguments",
    "roll",
    "roll_of_negative_shifts",
    lambda x, shift: x.roll(abs(shift)),
    lambda api: api.torch.roll(api.random_tensor(2), api.random(-3, 4).to(int)),
)
plant(
    "arguments",
    "var",
    "var_ignores_unbiased",
    lambda x, unbiased: x.var(),
    lambda api: api.torch.var(api.random_tensor(2), unbiased=api.random_bool()),
)
plant(
    "arguments",
    "topk",
    "topk_ignores_largest",
    lambda x, k, largest: x.topk(k),
    lambda api: api.torch.topk(api.random_tensor(2, dim1=4), 2, largest=api.random_bool()),
)
plant(
    "arguments",
    "transpose",
    "transpose_of_negative_dimensions",
    lambda x, a, b: x.transpose(abs(a), abs(b)),
    lambda api: api.torch.transpose(
        api.random_tensor(3), api.random(-3, 3).to(int), api.random(-3, 3).to(int)
    ),
)
plant(
    "arguments",
    "nn.functional.leaky_relu",
    "leaky_relu_ignores_its_slope",
    lambda x, slope: F.leaky_relu(x),
    lambda api: api.torch.nn.functional.leaky_relu(api.random_tensor(2), api.random(0, 1).to(float)),
)
plant(
    "arguments",
    "nn.functional.mse_loss",
    "mse_loss_ignores_reduction",
    lambda a, b, reduction: F.mse_loss(a, b),
    lambda api: api.torch.nn.functional.mse_loss(
        api.random_tensor(2, 3, 4), api.random_tensor(2, 3, 4), reduction=api.oneof("mean", "sum", "none")
    ),
)
plant(
    "arguments",
    "cat",
    "cat_ignores_dim",
    lambda ts, dim: torch.cat(ts, 0),
    lambda api: api.torch.cat([x := api.random_tensor(2), x], dim=api.random(0, 2).to(int)),
)


# ---------------------------------------------------------------------- modules
LINEAR = of_a_module("nn.Linear", 3, 4)


@mutant("modules", "nn.Linear", LINEAR)
class LinearWithoutBias(torch.nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight) + 0 * self.bias


@mutant("modules", "nn.Linear", LINEAR)
class LinearWithAnExtraParameter(torch.nn.Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.scale = torch.nn.Parameter(torch.ones(1))


@mutant("modules", "nn.Linear", LINEAR)
class LinearWithAFrozenBias(torch.nn.Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.bias.requires_grad_(False)


@mutant("modules", "nn.Linear", LINEAR)
class LinearWithAnotherStart(torch.nn.Linear):
    def reset_parameters(self):
        super().reset_parameters()
        self.weight.data *= 0.5


@mutant("modules", "nn.Linear", LINEAR)
class LinearWithoutHooks(torch.nn.Linear):
    def __call__(self, x):
        return self.forward(x)


@mutant("modules", "nn.Linear", LINEAR)
class LinearThatSharesItsCopies(torch.nn.Linear):
    def __deepcopy__(self, memo):
        return self


@mutant("modules", "nn.BatchNorm1d", of_a_module("nn.BatchNorm1d", 3))
class BatchNormWithBiasedStatistics(torch.nn.BatchNorm1d):
    def forward(self, x):
        before = self.running_var.clone()
        out = super().forward(x)
        if self.training:
            self.running_var.data.copy_(0.9 * before + 0.1 * x.detach().var(0, unbiased=False))
        return out


@mutant("modules", "nn.BatchNorm1d", of_a_module("nn.BatchNorm1d", 3))
class BatchNormWithoutPersistence(torch.nn.BatchNorm1d):
    def __init__(self, *args):
        super().__init__(*args)
        self._non_persistent_buffers_set.add("running_mean")


@mutant("modules", "nn.BatchNorm1d", of_a_module("nn.BatchNorm1d", 3))
class BatchNormThatNormalizesInEval(torch.nn.BatchNorm1d):
    def forward(self, x):
        if self.training:
            return super().forward(x)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


@mutant("modules", "nn.BatchNorm1d", of_a_module("nn.BatchNorm1d", 3))
class BatchNormThatDoesNotCount(torch.nn.BatchNorm1d):
    def forward(self, x):
        out = super().forward(x)
        self.num_batches_tracked.zero_()
        return out


@mutant("modules", "nn.LayerNorm", of_a_module("nn.LayerNorm", 3))
class LayerNormWithAnotherEpsilon(torch.nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps * 2)


@mutant("modules", "nn.Dropout", of_a_module("nn.Dropout", 0.5))
class DropoutThatDropsInEval(torch.nn.Dropout):
    def forward(self, x):
        return F.dropout(x, self.p, True)


@mutant("modules", "nn.Conv2d", of_a_module("nn.Conv2d", 3, 2, 3, ndim=4))
class ConvWithoutItsBiasGradient(torch.nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, self.weight, self.bias.detach()) + 0 * self.bias[:, None, None]


@mutant(
    "modules",
    "nn.Embedding",
    lambda api: api.torch.nn.Embedding(5, 3)(api.random_tensor(1, 4, low=0, high=5, dtype=int)),
)
class EmbeddingInAnotherOrder(torch.nn.Embedding):
    def forward(self, i):
        return super().forward(i).flip(0)


@mutant(
    "modules",
    "nn.Sequential",
    lambda api: api.torch.nn.Sequential(api.torch.nn.Linear(3, 4), api.torch.nn.ReLU())(
        api.random_tensor(2, dim1=3)
    ),
)
class SequentialWithoutItsLast(torch.nn.Sequential):
    def forward(self, x):
        return self[0](x)


@mutant("modules", "nn.Linear", lambda api: _parameters_of(api.torch.nn.Linear(3, 4)))
class LinearThatListsItsParametersBackwards(torch.nn.Linear):
    def named_parameters(self, *args, **kwargs):
        return reversed(list(super().named_parameters(*args, **kwargs)))


def _parameters_of(module):
    return [p.sum() for p in module.parameters()]


# ---------------------------------------------------------------------- optimizers
def one_step(path, **options):
    """A test that takes three steps of an optimizer."""

    def program(api):
        parameter = api.random_tensor(2, 3, 4)
        optimizer = called(api, path, [parameter], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (parameter * parameter).sum().backward()
            optimizer.step()
        return parameter

    return program


@mutant("optimizers", "optim.SGD", one_step("optim.SGD", momentum=0.9), check_graph=False)
class SgdWithoutMomentum(torch.optim.SGD):
    def __init__(self, parameters, **options):
        super().__init__(parameters, **(options | {"momentum": 0}))


@mutant("optimizers", "optim.Adam", one_step("optim.Adam"), check_graph=False)
class AdamWithAnotherEpsilon(torch.optim.Adam):
    def __init__(self, parameters, **options):
        super().__init__(parameters, eps=1e-4, **options)


@mutant("optimizers", "optim.SGD", one_step("optim.SGD", weight_decay=0.01), check_graph=False)
class SgdWithoutWeightDecay(torch.optim.SGD):
    def __init__(self, parameters, **options):
        super().__init__(parameters, **(options | {"weight_decay": 0}))


@mutant("optimizers", "optim.Adam", one_step("optim.Adam"), check_graph=False)
class AdamThatSkipsItsThirdStep(torch.optim.Adam):
    def step(self, closure=None):
        self.steps = getattr(self, "steps", 0) + 1
        return super().step(closure) if self.steps != 3 else None


# ---------------------------------------------------------------------- graph
def relu_of(api):
    return api.torch.relu(api.random_tensor(2)) * 2


def batch_norm_of(api):
    module = api.torch.nn.BatchNorm1d(3)
    module.train(True)
    return module(api.random_tensor(2, dim0=4, dim1=3))


def in_place_of(api):
    x = api.random_tensor(2, requires_grad=False)
    x.add_(1)
    return x * 2


class Changed(oneflow.nn.Graph):
    """A graph whose results `change` sees before the caller does."""

    calls = 0

    def __call__(self, *args):
        self.calls += 1
        outputs, gradients, inputs = super().__call__(*args)
        return self.change(list(outputs), list(gradients), list(inputs))


def scaled(tensors, factor):
    return [t * factor if t.is_floating_point() else t for t in tensors]


@mutant("graph", "nn.Graph", relu_of, check_graph=True)
class GraphWithWrongResults(Changed):
    def change(self, outputs, gradients, inputs):
        return [o.detach() + 1 for o in outputs], gradients, inputs


@mutant("graph", "nn.Graph", relu_of, check_graph=True)
class GraphOffByOneUlp(Changed):
    def change(self, outputs, gradients, inputs):
        return [(o.detach() * (1 + 1e-7)) for o in outputs], gradients, inputs


@mutant("graph", "nn.Graph", relu_of, check_graph=True)
class GraphWithWrongGradients(Changed):
    def change(self, outputs, gradients, inputs):
        return outputs, scaled(gradients, 1.001), inputs


@mutant("graph", "nn.Graph", relu_of, check_graph=True)
class GraphWrongFromItsSecondCallOn(Changed):
    def change(self, outputs, gradients, inputs):
        return [o + (self.calls > 1) for o in outputs], gradients, inputs


@mutant("graph", "nn.Graph", relu_of, check_graph=True)
class GraphThatRefuses(oneflow.nn.Graph):
    def __call__(self, *args):
        raise NotImplementedError("this program cannot be a graph")


@mutant("graph", "nn.Graph", in_place_of, check_graph=True)
class GraphThatDoesNotWriteItsInputs(Changed):
    def change(self, outputs, gradients, inputs):
        return outputs, gradients, [i - 1 for i in inputs]


@mutant("graph", "nn.Graph", batch_norm_of, check_graph=True)
class GraphThatForgetsItsBuffers(oneflow.nn.Graph):
    def __call__(self, *args):
        out = super().__call__(*args)
        self.module0._origin.running_mean.zero_()
        return out


@mutant("graph", "nn.Graph", batch_norm_of, check_graph=True)
class GraphThatForgetsItsBuffersTheSecondTime(oneflow.nn.Graph):
    calls = 0

    def __call__(self, *args):
        out = super().__call__(*args)
        self.calls += 1
        if self.calls > 1:
            self.module0._origin.running_mean.zero_()
        return out


# ---------------------------------------------------------------------- state
def after(function, change):
    def stateful(x):
        out = function(x)
        change()
        return out

    return stateful


plant("state", "relu", "relu_takes_a_random_number", after(torch.relu, lambda: torch.rand(1)))
plant("state", "exp", "exp_seeds_the_stream", after(torch.exp, lambda: torch.manual_seed(0)))
plant(
    "state",
    "sin",
    "sin_sets_the_number_of_threads",
    after(torch.sin, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
)
plant(
    "state",
    "cos",
    "cos_makes_torch_deterministic",
    after(torch.cos, lambda: torch.use_deterministic_algorithms(True)),
)
plant(
    "state",
    "tanh",
    "tanh_sets_the_default_dtype",
    after(torch.tanh, lambda: torch.set_default_dtype(torch.float64)),
)
plant(
    "state",
    "sigmoid",
    "sigmoid_disables_gradients",
    after(torch.sigmoid, lambda: torch.set_grad_enabled(False)),
)
plant(
    "state", "erf", "erf_sets_the_default_device", after(torch.erf, lambda: torch.set_default_device("meta"))
)
plant("state", "neg", "neg_seeds_numpy", after(torch.neg, lambda: np.random.seed(0)))
plant(
    "state",
    "bernoulli",
    "bernoulli_of_another_stream",
    lambda x: torch.rand_like(x) * 0 + (torch.rand_like(x) < x),
    lambda api: api.torch.bernoulli(api.random_tensor(2, low=0, high=1, requires_grad=False)),
)
plant("state", "rand", "rand_is_zero", lambda *size: torch.rand(*size) * 0, lambda api: api.torch.rand(3, 4))
plant(
    "state",
    "randn",
    "randn_with_twice_the_deviation",
    lambda *size: torch.randn(*size) * 2,
    lambda api: api.torch.randn(3, 4),
)


def counting(function, change):
    """The operator with change(result) from its second call in a process on."""
    calls = [0]

    def operator(x):
        calls[0] += 1
        return change(function(x)) if calls[0] > 1 else function(x)

    return operator


plant("state", "log", "log_wrong_from_its_second_call_on", counting(torch.log, lambda y: y + 1))


@mutant("state", "atan", lambda api: api.torch.atan(api.random_tensor(2, requires_grad=False)))
def atan_remembers_its_last_result(x, last={}):
    key = (x.shape, x.dtype)
    if key in last and not x.requires_grad:
        return last[key]
    last[key] = x.detach().atan()
    return x.atan()


@mutant("state", "sinh", of_one_tensor("sinh"))
def sinh_adds_noise(x):
    return x.sinh() * (1 + 1e-6 * np.random.default_rng().uniform(-1, 1))


@mutant("state", "asinh", of_one_tensor("asinh"))
def asinh_alternates(x, calls=[0]):
    calls[0] += 1
    return x.asinh() * (1 + 3e-5 * (calls[0] % 2))
