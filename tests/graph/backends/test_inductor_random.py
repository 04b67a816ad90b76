"""Random numbers on the inductor backend: eager's, bit for bit, and the generator ends in eager's state."""

import pytest
import torch
import torch.nn.functional as F
from graph_cases import train_graph
from torch import nn

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


class Sampling(flow.nn.Graph):
    def __init__(self, function, backend, **options):
        super().__init__()
        self.function = function
        self.config.set_backend(backend, **options)

    def build(self, x):
        return self.function(x)


def samples_and_state(call):
    torch.manual_seed(3)
    arguments = [torch.linspace(-2, 2, 32).view(4, 8) + i for i in range(2)]
    samples = [sample for x in arguments for sample in call(x)]
    return [*samples, torch.get_rng_state()]


def assert_samples_as_eager(function):
    """Two calls of one program sample the same numbers as eager, in the same layout."""
    expected = samples_and_state(function)
    actual = samples_and_state(Sampling(function, "inductor"))
    assert len(actual) == len(expected)
    for index, (a, b) in enumerate(zip(actual, expected)):
        assert a.dtype is b.dtype and a.stride() == b.stride() and torch.equal(a, b), index


def new_tensors(x):
    image = x.view(1, 8, 2, 2).to(memory_format=torch.channels_last)
    return (
        *(torch.rand(5, 7, dtype=dtype) for dtype in (None, torch.half, torch.bfloat16, torch.double)),
        *(torch.randn(37, dtype=dtype) for dtype in (None, torch.half, torch.bfloat16, torch.double)),
        torch.randn(5),
        torch.randn(()),
        torch.rand(0, 3),
        torch.randint(10, (9,)),
        torch.randint(-5, 10, (9,), dtype=torch.int32),
        torch.randint(-5, 10, (9,), dtype=torch.float32),
        torch.randint(-(2**40), 2**41, (9,)),
        *(torch.randperm(11, dtype=dtype) for dtype in (torch.int64, torch.int32)),
        torch.normal(2.0, 3.0, (5,)),
        *(sample(t) for t in (x, x.t(), image) for sample in (torch.rand_like, torch.randn_like)),
        torch.rand_like(x, dtype=torch.double),
        torch.randn_like(x),
        torch.randint_like(x, 10),
        torch.randint_like(x, 3, 10),
        torch.randint_like(x, 10),
    )


def filled_tensors(x):
    image = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    return (
        torch.empty(40).normal_(1.0, 2.0),
        torch.empty(40).normal_(1.0, 2.0),
        torch.empty(40).uniform_(-1.0, 2.0),
        torch.empty(40).exponential_(2.0),
        torch.empty(40).exponential_(2.0),
        torch.empty(40).cauchy_(2.0),
        torch.empty(40).log_normal_(),
        torch.empty(40).geometric_(0.3),
        torch.empty(40, dtype=torch.int64).random_(),
        torch.empty(40).random_(7),
        *(torch.empty(40, dtype=d).random_(-7, 70) for d in (torch.float32, torch.half, torch.int8)),
        torch.empty(40, dtype=torch.int64).random_(-7, 2**40),
        *(torch.empty(40, dtype=d).bernoulli_(0.3) for d in (None, torch.double, torch.bool, torch.int64)),
        torch.empty(4, 8).bernoulli_(x.sigmoid().round(decimals=2)),
        torch.empty(4, 8).t().uniform_(),
        torch.empty(4, 8).t().bernoulli_(0.3),
        torch.zeros(6, 8)[1:5].normal_(),
        image.clone().normal_(),
        image.clone().bernoulli_(0.4),
    )


def distributions_and_layers(x):
    positive = x.abs() + 1
    torch.rand(4)  # nobody reads these, but they advance the generator
    F.dropout(x, 0.5)
    return (
        torch.bernoulli(x.clamp(0, 1)),
        torch.bernoulli(x.clamp(0, 1)),
        torch.bernoulli(x, 0.3),
        torch.normal(x, positive),
        torch.normal(x, 2.0),
        torch.normal(2.0, positive),
        torch.multinomial(positive, 3),
        torch.multinomial(positive, 3, True),
        torch.poisson(positive),
        torch.binomial(positive.ceil(), x.clamp(0, 1)),
        torch._standard_gamma(positive),
        F.dropout(x, 0.3),
        F.dropout(x.t(), 0.3),
        F.dropout(x * 2, 0.3, inplace=True),
        *torch.native_dropout(x, 0.3, True),
        torch.native_dropout((x + 1).t(), 0.3, True)[0],
        F.dropout2d(x.view(2, 4, 2, 2), 0.3),
        F.feature_alpha_dropout(x.view(2, 4, 2, 2), 0.3, True),
        F.rrelu(x, training=True),
        F.fractional_max_pool2d(x.view(1, 1, 4, 8), 2, output_size=(2, 3)),
        torch.rand_like(F.conv2d(x.new_ones(2, 32, 8, 8), x.new_ones(32, 1, 3, 3), groups=32)),
        torch.rand(1, 4).expand(3, 4),
        torch.rand(4) - torch.rand(4),
        torch.randn_like(x) - torch.randn_like(x),
        torch.zeros(4).exponential_() - torch.zeros(4).exponential_(),
    )


@pytest.mark.parametrize("function", [new_tensors, filled_tensors, distributions_and_layers])
def test_samplers(function):
    """Each sampler starts where the one before it left the generator, so this also holds their order."""
    assert_samples_as_eager(function)


def test_a_part_of_a_matrix_is_filled_as_in_eager():
    def columns(x):
        matrix = torch.zeros(6, 40)
        matrix[1:5, ::2].normal_()
        return (matrix,)

    assert_samples_as_eager(columns)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x):
        mean, deviation = self.encoder(F.dropout(x, 0.2)).chunk(2, -1)
        hidden = mean + torch.randn_like(deviation) * deviation.exp()
        return (self.decoder(F.dropout(hidden, 0.1)) - x).square().mean()


def test_training_takes_the_same_path_on_each_backend():
    """A script under `auto` takes the same path whether the compiled program is found on disk or not."""
    losses = []
    for backend in ("aten", "inductor"):
        torch.manual_seed(0)
        model = AutoEncoder()
        batches = [(torch.randn(6, 8),) for _ in range(6)]
        sgd = lambda p: torch.optim.SGD(p, lr=0.1)
        losses.append(train_graph(model, sgd, None, lambda m, x: m(x), batches, backend=backend)[0])
    assert torch.allclose(*map(torch.stack, losses), rtol=1e-5)  # sums in another order


def test_samplers_of_inductor_are_an_option_that_explain_names():
    graph = Sampling(lambda x: torch.rand_like(x), "inductor", fallback_random=False)
    torch.manual_seed(0)
    sample = graph(torch.ones(4, 4))
    torch.manual_seed(0)
    assert not torch.equal(sample, torch.rand(4, 4)) and 0 < sample.mean() < 1
    assert "inductor's own samplers" in graph.explain()


def test_symbolic_sizes():
    def sampled(x):
        return torch.randn_like(x), F.dropout(x, 0.3), torch.bernoulli(x.abs())

    graph = Sampling(sampled, "inductor")
    graph.config._engine.dynamic = True
    for shape in ((3, 5, 8), (4, 6, 8)):
        x = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)
        torch.manual_seed(0)
        actual = [*graph(x), torch.get_rng_state()]
        torch.manual_seed(0)
        expected = [*sampled(x), torch.get_rng_state()]
        assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    assert len(graph._engine.programs) == 1
