"""One compiled region for many sizes: equal to eager within rounding, variants selected by guards, the
program cache, the default backend.
"""

import copy
import json
import sys
import time

import pytest
import torch
from dynamic_cases import CASES, squared
from time_limits import seconds
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import oneflow as flow
from oneflow._graph.compile import auto
from oneflow._graph.compile.inductor import symbols
from oneflow._graph.compile.inductor.matmul import multiply_in_blocks
from oneflow._graph.compile.program_cache.store import Store
from oneflow._kernels import _ext

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of this test."""
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv("ONEFLOW_CACHE_SIZE", "100")
    return tmp_path / "programs"


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
    return graph._engine.last_entry.run.region.variants


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
    actual = [graph(*batch).detach() for batch in batches]
    torch.testing.assert_close(
        actual, train_in_eager_mode(reference, loss, batches), rtol=rtol, atol=rtol / 10
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


def test_the_smaller_last_batch_is_compiled_in_the_first_epoch_only(folder, compilations):
    graph, counts = Training(module := perceptron(), loss_of), []
    epoch = [(torch.randn(n, 8),) for n in (32, 32, 32, 20)]
    for _ in range(3):
        assert_trains_like_eager(graph, module, loss_of, epoch)
        counts.append(len(compilations))
    assert counts == [2, 2, 2]  # a static region, and one with symbols


def called_at(rows, build=loss_of):
    """Train a new graph, which knows nothing of the graphs before it."""
    graph = Training(module := perceptron(), build)
    assert_trains_like_eager(graph, module, build, [(torch.randn(n, 8),) for n in rows])
    return [program.dimensions is not None for program in graph._engine.programs]


def test_a_new_graph_starts_with_the_dimensions_that_varied_before(folder, compilations):
    assert called_at([24, 16, 33]) == [False, True] and len(compilations) == 2
    assert called_at([50, 24, 16]) == [True]  # one program with symbols, from the cache
    assert called_at([24, 24]) == [False]  # the static program of the first graph
    assert called_at([24, 33]) == [False, True]
    assert len(compilations) == 2


@pytest.mark.parametrize(
    "damage", ["cut", "of another form", "with another dimension", "others may write it"]
)
def test_a_damaged_note_about_sizes_is_not_used(folder, compilations, damage):
    called_at([24, 16])
    (note,) = (path for path in folder.glob("*.note") if "sizes" in json.loads(path.read_text()))
    if damage == "others may write it":
        note.chmod(0o666)
        with pytest.warns(UserWarning, match="others may write it"):
            assert called_at([33]) == [False]
        return
    content = {
        "cut": "{",
        "of another form": '{"sizes": [5]}',
        "with another dimension": '{"sizes": [[[7, 24]]]}',
    }
    note.write_text(content[damage])
    assert called_at([33]) == [False]


def test_notes_about_sizes_are_removed_with_the_programs(folder, monkeypatch):
    store = Store(folder)
    monkeypatch.setattr("oneflow._graph.compile.program_cache.store._MOST_NOTES", 4)
    for i in range(5):
        store.put_note(f"{i:064x}", {"sizes": []})
    assert len(list(folder.glob("*.note"))) == 3
    store.clear()
    assert not list(folder.iterdir())


def test_the_default_backend_compiles_each_variant_in_the_background(folder, monkeypatch):
    monkeypatch.setattr(auto, "experience", auto.Experience())
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    module = perceptron()
    reference = copy.deepcopy(module)
    graph = Training(module, loss_of, backend="auto", dynamic=True)
    batches, sizes = [], (24, 16, 33, 8, 50)

    def train_until(condition, rows):
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() - begin < seconds(120), "the child process did not end"
            batches.append((torch.randn(rows[len(batches) % len(rows)], 8),))
            graph(*batches[-1])
            time.sleep(0.05)

    def switched():
        return graph._engine.program is not None and graph._engine.last_entry.run.backend == "inductor"

    train_until(switched, sizes)
    table = graph._engine.last_entry.run.compiled.region
    train_until(lambda: len(table.variants) == 2, (24, 3000, 16))  # sums of many rows are compiled otherwise
    assert len(graph._engine.programs) == 1 and len(Store(folder).entries()) == 2
    train_in_eager_mode(reference, loss_of, batches)
    torch.testing.assert_close(module.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)


def test_sizes_in_another_order_find_the_variants_in_the_cache(folder, compilations, monkeypatch):
    monkeypatch.setattr(auto.background, "start", None)
    rows = (24, 3000, 16, 2000)
    for backend, sizes in (("inductor", rows), ("inductor", rows[::-1]), ("auto", (*rows[1:], *rows))):
        graph = Training(module := perceptron(), loss_of, backend, dynamic=True)
        assert_trains_like_eager(graph, module, loss_of, [(torch.randn(n, 8),) for n in sizes])
        assert len(compilations) == len(Store(folder).entries()) == 2
    assert len(graph._engine.last_entry.run.compiled.region.variants) == 2


def test_a_variant_that_cannot_be_compiled_gives_one_warning(folder, monkeypatch, recwarn):
    graph = Training(module := perceptron(), loss_of, dynamic=True)
    graph(torch.randn(24, 8))
    monkeypatch.setattr(auto, "experience", auto.Experience())
    monkeypatch.setattr(auto, "_capture_seconds", lambda program: 0.0)
    monkeypatch.setattr(auto.background, "_CODE", "import sys; sys.exit('no room for a child')")
    graph = Training(module := perceptron(), loss_of, "auto", dynamic=True)
    batches = [(torch.randn(n, 8),) for n in (16, 24, 33)]
    assert_trains_like_eager(graph, module, loss_of, batches)
    others = graph._engine.last_entry.run.compiled.region.other_variant
    begin = time.monotonic()
    while not others.has_failed:
        assert time.monotonic() - begin < seconds(60)
        graph(torch.randn(3000, 8))
    graph(torch.randn(3000, 8))
    assert len([w for w in recwarn if "no room for a child" in str(w.message)]) == 1


def without_dropout(module):
    """The compiled code samples other random numbers than eager."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    return module


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
    assert len(graph._engine.programs) <= case.programs, graph.explain()


@pytest.mark.skipif(_ext.status() != "loaded", reason="needs the compiled library")
def test_products_of_symbolic_sizes_use_the_block_kernels_without_a_guard():
    traced = make_fx(lambda a, b: a @ b, tracing_mode="symbolic")(torch.ones(9, 128), torch.ones(128, 300))
    guards = len(traced.shape_env.guards)
    multiply_in_blocks(traced.graph)
    assert traced.graph.find_nodes(op="call_function", target=torch.ops.oneflow.mm.default)
    assert len(traced.shape_env.guards) == guards
