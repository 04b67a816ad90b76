"""Right implementations of torch's operators and modules, by other formulas: a test of one must pass.

Each is a function of torch's name, written with primitive operations or NumPy, and a program that calls it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .registry import F, called, torch

ELEMENTS = 70_000  # of a large tensor: torch splits a loop over threads above 32,768 elements
HALF_TYPES = (torch.float16, torch.bfloat16)


@dataclass
class Sampler:
    """What a program samples with: tensors and modules of one dtype, in one range of sizes."""

    api: Any
    dtype: torch.dtype
    is_large: bool = False

    def side(self, ndim):
        """Return a size for each dimension of a tensor with `ndim` of them."""
        if not self.is_large:
            return self.api.random(2, 8).to(int)
        side = int(ELEMENTS ** (1 / ndim)) + 1
        return self.api.random(side, side + 3).to(int)

    def tensor(self, *sizes, **options):
        return self.api.random_tensor(len(sizes), *sizes, dtype=self.dtype, **options)

    def integers(self, *sizes, high):
        return self.api.random_tensor(len(sizes), *sizes, low=0, high=high, dtype=int)

    def call(self, path, *args, **kwargs):
        return called(self.api, path, *args, **kwargs)

    def module(self, path, *args, **kwargs):
        return self.call(path, *args, **kwargs).to(self.dtype)


@dataclass
class Right:
    """An implementation of `torch.<path>`.

    is_for_half: every intermediate result may be rounded to a half type. Otherwise an implementation for half
    types computes in float32 and rounds once, as torch's kernels do.
    """

    path: str
    implementation: Any
    program: Callable[[Sampler], Any]
    is_for_half: bool = False

    def replacement(self, computes_in):
        """Return the implementation that computes in another dtype and rounds its result, or None."""
        if computes_in is None:
            return self.implementation
        if isinstance(self.implementation, type):
            return computing_module(self.implementation, computes_in)
        return computing_in(computes_in, self.implementation)


RIGHT: list[Right] = []


def right(path, program, is_for_half=False):
    """Register the decorated function or module as an implementation of `torch.<path>`."""

    def decorate(implementation):
        RIGHT.append(Right(path, implementation, program, is_for_half))
        return implementation

    return decorate


def converted(x, dtype):
    """Return the float tensors in x in another dtype."""
    if isinstance(x, torch.Tensor):
        return x.to(dtype) if x.is_floating_point() else x
    if isinstance(x, tuple) and not hasattr(x, "n_fields"):
        return tuple(converted(e, dtype) for e in x)
    if hasattr(x, "n_fields"):
        return type(x)([converted(e, dtype) for e in x])
    return x


def computing_in(dtype, function):
    def implementation(*args, **kwargs):
        own = next(a.dtype for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
        wide = {name: converted(value, dtype) for name, value in kwargs.items()}
        return converted(function(*(converted(a, dtype) for a in args), **wide), own)

    return implementation


def computing_module(module, dtype):
    """Return a subclass whose forward computes with converted parameters, and rounds its result."""

    class Computing(module):
        def forward(self, *inputs):
            own = next(p.dtype for p in self.parameters())
            wide = {name: p.to(dtype) for name, p in self.named_parameters()}
            wide |= {name: converted(b, dtype) for name, b in self.named_buffers()}
            result = torch.func.functional_call(_Forward(self, module), _prefixed(wide), _wide(inputs, dtype))
            for name, buffer in self.named_buffers():
                buffer.copy_(wide[name])
            return converted(result, own)

    return Computing


class _Forward(torch.nn.Module):
    """The forward of a parent class, as a module of its own that functional_call can fill."""

    def __init__(self, module, parent):
        super().__init__()
        self.module, self.parent = module, parent

    def forward(self, *inputs):
        return self.parent.forward(self.module, *inputs)


def _prefixed(tensors):
    return {f"module.{name}": t for name, t in tensors.items()}


def _wide(inputs, dtype):
    return tuple(converted(x, dtype) for x in inputs)


# ---------------------------------------------------------------------- one tensor
def of_a_matrix(path, *rest, **keywords):
    return lambda s: s.call(path, s.tensor(s.side(2), s.side(2)), *rest, **keywords)


def of_positive_values(path, *rest, **keywords):
    return lambda s: s.call(path, s.tensor(s.side(2), s.side(2), low=0.1, high=3), *rest, **keywords)


def plain(path, function, program=None, is_for_half=False):
    right(path, program or of_a_matrix(path), is_for_half)(function)


LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453

plain("exp", lambda x: torch.exp2(x * LOG2_E))
plain("log", lambda x: x.log2() * LN_2, of_positive_values("log"), True)
plain("sqrt", lambda x: x**0.5, of_positive_values("sqrt"), True)
plain("rsqrt", lambda x: 1 / x.sqrt(), of_positive_values("rsqrt"), True)
plain("reciprocal", lambda x: x**-1, of_positive_values("reciprocal"), True)
plain("square", lambda x: x * x, None, True)
plain("sigmoid", lambda x: (1 + (x / 2).tanh()) / 2)
plain("tanh", lambda x: 2 * torch.sigmoid(2 * x) - 1)
plain("sin", lambda x: torch.cos(x - np.pi / 2))
plain("abs", lambda x: x * x.sign(), None, True)
plain("nn.functional.relu", lambda x: x * (x > 0), None, True)
plain("nn.functional.gelu", lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)))
plain("nn.functional.silu", lambda x: x * torch.sigmoid(x), None, True)
plain("nn.functional.softplus", lambda x: torch.logaddexp(x, torch.zeros_like(x)), None, True)
plain("nn.functional.logsigmoid", lambda x: -torch.logaddexp(-x, torch.zeros_like(x)), None, True)
plain("nn.functional.elu", lambda x: torch.where(x > 0, x, x.clamp(max=0).expm1()), None, True)
plain("nn.functional.mish", lambda x: x * torch.logaddexp(x, torch.zeros_like(x)).tanh(), None, True)


# ---------------------------------------------------------------------- reductions
def halves(x):
    """Sum a vector by adding its two halves, until one element is left."""
    while len(x) > 1:
        n = len(x) // 2
        x = torch.cat([x[:n] + x[n : 2 * n], x[2 * n :]])
    return x[0]


def softmax(x, dim):
    e = (x - x.detach().amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def log_softmax(x, dim):
    z = x - x.detach().amax(dim, keepdim=True)
    return z - z.exp().sum(dim, keepdim=True).log()


def logsumexp(x, dim):
    largest = x.detach().amax(dim, keepdim=True)
    return ((x - largest).exp().sum(dim, keepdim=True).log() + largest).squeeze(dim)


def cumsum(x, dim):
    return torch.stack(tuple(accumulated(x.unbind(dim))), dim)


def accumulated(parts):
    total = None
    for part in parts:
        total = part if total is None else total + part
        yield total


plain("sum", lambda x: halves(x.reshape(-1)))
plain("mean", lambda x: halves(x.reshape(-1)) / x.numel())
plain("amax", lambda x, dim: x.transpose(0, 1).amax(1 - dim), of_a_matrix("amax", 1), True)
plain("norm", lambda x: (x * x).sum().sqrt(), of_positive_values("norm"))
plain("logsumexp", logsumexp, of_a_matrix("logsumexp", 1))
plain("cumsum", cumsum, of_a_matrix("cumsum", 1))
plain("nn.functional.softmax", softmax, of_a_matrix("nn.functional.softmax", dim=-1))
plain("nn.functional.log_softmax", log_softmax, of_a_matrix("nn.functional.log_softmax", dim=0))


@right("var", of_a_matrix("var", 1))
def var(x, dim):
    centered = x - x.mean(dim, keepdim=True)
    return (centered * centered).sum(dim) / (x.shape[dim] - 1)


# ---------------------------------------------------------------------- products
def of_a_product(path):
    return lambda s: s.call(path, s.tensor(s.side(2), n := s.side(2)), s.tensor(n, s.side(2)))


def of_a_batch(s):
    batch, inner = s.side(3), s.side(3)
    return s.call("bmm", s.tensor(batch, s.side(3), inner), s.tensor(batch, inner, s.side(3)))


def attend(s):
    path, sizes = "nn.functional.scaled_dot_product_attention", (2, s.side(3), s.side(3), s.side(3))
    return s.call(path, *(s.tensor(*sizes, low=-2, high=2) for _ in range(3)))


def attention(q, k, v):
    return softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v


plain("matmul", lambda a, b: torch.einsum("ik,kj->ji", a, b).t(), of_a_product("matmul"), True)
plain("mm", lambda a, b: sum(a[:, k, None] * b[k] for k in range(len(b))), of_a_product("mm"))
plain("bmm", lambda a, b: torch.stack([x @ y for x, y in zip(a, b)]), of_a_batch, True)
plain("nn.functional.scaled_dot_product_attention", attention, attend)


# ---------------------------------------------------------------------- convolution, pooling, shapes
def images(s, **options):
    return s.tensor(2, 3, s.side(4), s.side(4) * 2 + 2, **options)


def avg_pool2d(x, size):
    return x.unfold(2, size, size).unfold(3, size, size).sum((-1, -2)) / size**2


def max_pool2d(x, size):
    return x.unfold(2, size, size).unfold(3, size, size).flatten(-2).max(-1)[0]


def roll(x, shift, dim):
    return torch.cat(
        [x.narrow(dim, x.shape[dim] - shift, shift), x.narrow(dim, 0, x.shape[dim] - shift)], dim
    )


plain(
    "nn.functional.avg_pool2d", avg_pool2d, lambda s: s.call("nn.functional.avg_pool2d", images(s), 2), True
)
plain(
    "nn.functional.max_pool2d", max_pool2d, lambda s: s.call("nn.functional.max_pool2d", images(s), 2), True
)
plain("roll", roll, of_a_matrix("roll", 1, 1), True)
plain(
    "triu",
    lambda x: x * (torch.arange(x.shape[1]) >= torch.arange(x.shape[0])[:, None]).to(x.dtype),
    None,
    True,
)
plain("flip", lambda x, dims: x[torch.arange(len(x) - 1, -1, -1)], of_a_matrix("flip", [0]), True)


@right("sort", lambda s: s.call("sort", s.tensor(s.side(2), s.side(2)), stable=True), True)
def sort(x, stable):
    order = np.argsort(x.detach().double().numpy(), axis=-1, kind="stable")
    indices = torch.from_numpy(order)
    return torch.return_types.sort((x.gather(-1, indices), indices))


@right("argmax", of_a_matrix("argmax", 1), True)
def argmax(x, dim):
    return torch.from_numpy(np.argmax(x.detach().double().numpy(), axis=dim))


# ---------------------------------------------------------------------- normalization and losses
def of_rows(s):
    return s.call("nn.functional.layer_norm", s.tensor(s.side(2), n := s.side(2)), (n,))


@right("nn.functional.layer_norm", of_rows)
def layer_norm(x, shape):
    centered = x - x.mean(-1, keepdim=True)
    return centered / ((centered * centered).mean(-1, keepdim=True) + 1e-5).sqrt()


@right("nn.functional.normalize", of_a_matrix("nn.functional.normalize", dim=1))
def normalize(x, dim):
    squares = (x * x).sum(dim, keepdim=True)
    is_zero = squares == 0
    return x / torch.where(is_zero, 1e-12, squares.where(~is_zero, 1).sqrt())


def of_two(path, bounds=(None, None), bounds_of_target=(None, None)):
    def program(s):
        n, m = s.side(2), s.side(2)
        x = s.tensor(n, m, low=bounds[0], high=bounds[1])
        target = s.tensor(n, m, low=bounds_of_target[0], high=bounds_of_target[1], requires_grad=False)
        return s.call(path, x, target)

    return program


def of_classes(s):
    n = s.side(2)
    return s.call("nn.functional.cross_entropy", s.tensor(n, s.side(2)), s.integers(n, high=2))


def cross_entropy(x, target):
    return -log_softmax(x, 1)[torch.arange(len(target)), target].mean()


def with_logits(x, target):
    return (torch.logaddexp(x, torch.zeros_like(x)) - x * target).mean()


def cosine_similarity(a, b):
    products = torch.einsum("ij,ij->i", a, b)
    return products / ((a * a).sum(1).sqrt() * (b * b).sum(1).sqrt()).clamp(min=1e-8)


plain("nn.functional.mse_loss", lambda a, b: ((a - b) ** 2).mean(), of_two("nn.functional.mse_loss"))
plain("nn.functional.l1_loss", lambda a, b: (a - b).abs().mean(), of_two("nn.functional.l1_loss"))
plain(
    "nn.functional.binary_cross_entropy_with_logits",
    with_logits,
    of_two("nn.functional.binary_cross_entropy_with_logits", bounds_of_target=(0, 1)),
)
plain(
    "nn.functional.cosine_similarity",
    cosine_similarity,
    of_two("nn.functional.cosine_similarity", (0.1, 2), (0.1, 2)),
)
plain("nn.functional.cross_entropy", cross_entropy, of_classes)


# ---------------------------------------------------------------------- modules
def of_a_module(path, *arguments):
    return lambda s: s.module(path, *arguments)(s.tensor(s.side(2) + 1, arguments[0]))


def of_images(path, *arguments):
    return lambda s: s.module(path, *arguments)(images(s, low=-2, high=2))


@right("nn.Linear", of_a_module("nn.Linear", 6, 5))
class Linear(torch.nn.Linear):
    def forward(self, x):
        return (x[..., None, :] * self.weight).sum(-1) + self.bias


@right("nn.Conv2d", of_images("nn.Conv2d", 3, 4, 3))
class Conv2d(torch.nn.Conv2d):
    def forward(self, x):
        columns = self.weight.flatten(1) @ F.unfold(x, 3)
        rows = columns.unflatten(2, (x.shape[2] - 2, x.shape[3] - 2))
        return rows + self.bias[:, None, None]


@right("nn.LayerNorm", of_a_module("nn.LayerNorm", 6))
class LayerNorm(torch.nn.LayerNorm):
    def forward(self, x):
        return layer_norm(x, self.normalized_shape) * self.weight + self.bias


@right("nn.BatchNorm1d", of_a_module("nn.BatchNorm1d", 4))
class BatchNorm1d(torch.nn.BatchNorm1d):
    def forward(self, x):
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean = x.mean(0)
            variance = ((x - mean) ** 2).mean(0)
            with torch.no_grad():
                unbiased = variance * len(x) / (len(x) - 1)
                self.running_mean.mul_(0.9).add_(0.1 * mean)
                self.running_var.mul_(0.9).add_(0.1 * unbiased)
                self.num_batches_tracked.add_(1)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


@right("nn.GroupNorm", of_images("nn.GroupNorm", 1, 3))
class GroupNorm(torch.nn.GroupNorm):
    def forward(self, x):
        rows = layer_norm(x.flatten(1), None).reshape(x.shape)
        return rows * self.weight[:, None, None] + self.bias[:, None, None]


@right("nn.Embedding", lambda s: s.module("nn.Embedding", 5, 4)(s.integers(s.side(2), high=5)), True)
class Embedding(torch.nn.Embedding):
    def forward(self, indices):
        return F.one_hot(indices, self.num_embeddings).to(self.weight.dtype) @ self.weight


@right("nn.GRUCell", of_a_module("nn.GRUCell", 4, 3))
class GRUCell(torch.nn.GRUCell):
    def forward(self, x):
        hidden = x.new_zeros(len(x), self.hidden_size)
        of_input = (x @ self.weight_ih.t() + self.bias_ih).chunk(3, 1)
        of_hidden = (hidden @ self.weight_hh.t() + self.bias_hh).chunk(3, 1)
        reset, update = (torch.sigmoid(a + b) for a, b in zip(of_input[:2], of_hidden))
        return (1 - update) * torch.tanh(of_input[2] + reset * of_hidden[2]) + update * hidden


@right("nn.LSTMCell", lambda s: s.module("nn.LSTMCell", 4, 3)(s.tensor(s.side(2), 4))[0])
class LSTMCell(torch.nn.LSTMCell):
    def forward(self, x):
        i, f, g, o = (x @ self.weight_ih.t() + self.bias_ih + self.bias_hh).chunk(4, 1)
        cell = torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell
