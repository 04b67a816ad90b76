"""One compiled region for many sizes: within rounding of eager, variants by guards, the program cache, the default backend."""

import copy
import shutil
import sys

import pytest
import torch
from dynamic_cases import CASES, squared
from time_limits import seconds
from torch import nn

import oneflow as flow
from oneflow._graph.compile import auto
from oneflow._graph.compile.inductor import compiler, symbols
from oneflow._graph.compile.program_cache.store import Store

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or (shutil.which("g++") is None and shutil.which("c++") is None),
    reason="needs Linux and a C++ compiler",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of this test."""
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "100")
    return tmp_path / "programs"


@pytest.fixture
def compilations(monkeypatch):
    """The list of regions that inductor compiled."""
    compiled, compile_region = [], compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda *a: compiled.append(a) or compile_region(*a))
    return compiled


class Training(flow.nn.Graph):
    def __init__(self, module, loss, backend="inductor", dynamic=None):
        super().__init__()
        self.module, self.loss = module, loss
        # plain SGD, because Adam turns the rounding of a gradient near 0 into a step of full length
        self.add_optimizer(torch.optim.SGD(module.parameters(), lr=0.1))
        self.config.set_backend(backend)
        self.config.dynamic(dynamic)

    def build(self, *batch):
        loss = self.loss(self.module, *batch)
        loss.backward()
        return loss


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def loss_of(m, x):
    return squared(m(x))


def variants(graph):
    return graph._engine._last.run.region.variants


def train_in_eager_mode(module, loss, batches):
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.1), []
    for batch in batches:
        optimizer.zero_grad()
        value = loss(module, *batch)
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return losses


def assert_trains_like_eager(graph, module, loss, batches, rtol=1e-4):
    """Within rounding: inductor sums in another order, and has its own exp and tanh."""
    reference = copy.deepcopy(module)
    found = [graph(*batch).detach() for batch in batches]
    torch.testing.assert_close(
        found, train_in_eager_mode(reference, loss, batches), rtol=rtol, atol=rtol / 10
    )
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=rtol, atol=rtol / 10)


def test_one_binary_serves_all_sizes_and_the_next_graph(folder, compilations):
    batches = [(torch.randn(n, 8),) for n in (24, 16, 33, 8, 50)]
    for _ in range(2):
        module = perceptron()
        graph = Training(module, loss_of, dynamic=True)
        assert_trains_like_eager(graph, module, loss_of, batches)
        assert len(graph._engine.programs) == 1 and len(variants(graph)) == 1
    assert len(compilations) == 1 and len(Store(folder).entries()) == 1


def test_sizes_outside_the_guards_of_the_code_get_another_variant(folder, compilations, monkeypatch):
    graph = Training(module := perceptron(), loss_of, dynamic=True)
    batches = [(torch.randn(n, 8),) for n in (24, 3000, 16, 2000)]
    assert_trains_like_eager(graph, module, loss_of, batches)
    served = len(compilations)
    assert len(graph._engine.programs) == 1 and served == len(variants(graph)) > 1, [
        str(f.guards) for _, f in variants(graph)
    ]
    monkeypatch.setattr(symbols, "MAX_VARIANTS", 1)
    other = Training(module := perceptron(), loss_of, dynamic=True)
    assert_trains_like_eager(other, module, loss_of, batches)  # the captured operators serve the rest
    assert len(variants(other)) == 1


def test_the_default_backend_compiles_a_dynamic_program_in_the_background(folder, monkeypatch):
    monkeypatch.setattr(auto, "experience", auto.Experience())
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    module = perceptron()
    reference = copy.deepcopy(module)
    graph = Training(module, loss_of, backend="auto", dynamic=True)
    batches, sizes = [], (24, 16, 33, 8, 50)
    import time

    begin = time.monotonic()
    while graph._engine.program is None or graph._engine._last.run.backend != "inductor":
        assert time.monotonic() - begin < seconds(120), "the child process did not end"
        batches.append((torch.randn(sizes[len(batches) % 5], 8),))
        graph(*batches[-1])
        time.sleep(0.05)
    for n in sizes:
        batches.append((torch.randn(n, 8),))
        graph(*batches[-1])
    assert len(graph._engine.programs) == 1
    train_in_eager_mode(reference, loss_of, batches)
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)


def without_dropout(module):
    """The compiled code samples other random numbers than eager."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    return module


# torch's decomposition of the gradient needs each size of the image as a number
PROGRAMS = {"interpolation": 5}
ROUNDING = {"autocast": 1e-2}  # bfloat16 has 8 bits; compiled code rounds less often than eager
RANDOM = {"attention with dropout", "dropout", "checkpoint"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in RANDOM])
def test_compiled_programs_train_like_eager_at_every_size(name):
    case = CASES[name]
    torch.manual_seed(0)
    module = without_dropout(case.module())
    graph = Training(module, case.loss)
    batches = [case.batch(n) for n in case.sizes]
    assert_trains_like_eager(graph, module, case.loss, batches, ROUNDING.get(name, 1e-4))
    assert len(graph._engine.programs) <= PROGRAMS.get(name, case.programs), graph.explain()
