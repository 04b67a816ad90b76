"""The inductor backend against eager: training agrees up to rounding."""

import copy
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graph_cases import train_eager, train_graph
from torch import nn

import oneflow as flow

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.slow,
]


def close(a, b):
    # float32 sums in another order; ten steps keep it well below this
    return torch.allclose(a, b, rtol=2e-4, atol=2e-5)


def mlp():  # no bias before the batch norm: its gradient is rounding noise, which Adam would blow up
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batches():
    torch.manual_seed(1)
    return [(torch.randn(6, 4), torch.randint(0, 2, (6,))) for _ in range(10)]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: flow.optim.LAMB(p, lr=0.01),
    ],
)
def test_training(make):
    model = mlp()
    other = copy.deepcopy(model)
    schedule = lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)
    expected, _ = train_eager(model, make, schedule, loss_of, batches())
    got, optimizer, graph = train_graph(other, make, schedule, loss_of, batches(), backend="inductor")
    assert all(close(a, b) for a, b in zip(expected, got))
    assert all(close(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))
    assert len(graph._engine.programs) == 1


def test_dropout_draws_new_numbers_and_is_reproducible():
    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.d = nn.Dropout(0.5)
            self.config.set_backend("inductor")

        def build(self, x):
            return self.d(x)

    graph = G()
    x = torch.ones(1000)
    flow.manual_seed(1)
    a, b = graph(x), graph(x)
    flow.manual_seed(1)
    assert torch.equal(graph(x), a) and not torch.equal(a, b)
    assert 0.4 < (a == 0).float().mean() < 0.6


def test_masks_of_small_tensors_are_sampled_in_eagers_order():
    """Inductor moved one of two samplings across the other, to save memory."""
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3), nn.Linear(4, 4))
    model = copy.deepcopy(eager)

    class Forward(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = model
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.0))
            self.config.set_backend("inductor")

        def build(self, x):
            loss = self.m(x).square().mean()
            loss.backward()
            return loss

    graph, x = Forward(), torch.randn(2, 4)
    for seed in range(5):
        losses = []
        for function in (graph, lambda x: eager(x).square().mean()):
            torch.manual_seed(seed)
            losses.append(function(x))
        assert close(*losses)


def test_recomputation_is_not_merged_back():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x):
            return x + self.b(torch.relu(self.a(x)))

    def products(recompute):
        torch.manual_seed(0)
        model = nn.Sequential(Block(), Block())

        def setup(graph):
            for k in range(2):
                graph.model[k].config.activation_checkpointing = recompute

        _, _, graph = train_graph(
            model,
            lambda p: torch.optim.SGD(p, lr=0.1),
            None,
            lambda m, x: m(x).pow(2).mean(),
            [(torch.ones(4, 8),)],
            backend="inductor",
            setup=setup,
        )
        return sum("mm" in str(n.target) for n in graph._engine.last_entry.run.region.graph.nodes)

    assert products(True) > products(False)


def test_an_operator_inductor_cannot_take_falls_back_when_the_backend_was_not_chosen(monkeypatch):
    from oneflow._graph.compile.inductor import compiler

    def broken(*args):
        raise RuntimeError("no")

    monkeypatch.setattr(compiler, "compile_region", broken)
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", "inductor")

    class G(flow.nn.Graph):
        def build(self, x):
            return x + 1

    with pytest.warns(UserWarning, match="runs on the aten backend"):
        assert torch.equal(G()(torch.zeros(2)), torch.ones(2))
    graph = G()
    graph.config.set_backend("inductor")
    with pytest.raises(RuntimeError, match="no"):
        graph(torch.zeros(2))


def trained(**options):
    torch.manual_seed(0)
    return train_graph(
        mlp(),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        None,
        loss_of,
        batches()[:2],
        backend="inductor",
        setup=lambda g: g.config.set_backend("inductor", **options),
    )


def test_a_region_is_one_cpp_file_that_python_calls_once(monkeypatch):
    from torch._inductor.codecache import CppCodeCache

    files = []
    original = CppCodeCache.load_async.__func__
    monkeypatch.setattr(
        CppCodeCache,
        "load_async",
        classmethod(
            lambda cls, *args, **kwargs: files.append(cls.__name__) or original(cls, *args, **kwargs)
        ),
    )
    _, _, graph = trained(**{"cpp.simdlen": 256})  # compiled by no test before
    assert files == ["CppWrapperCodeCache"]
    assert graph._engine.last_entry.run.region.settings["cpp_wrapper"]


def test_a_long_region_is_one_file_whose_calls_are_not_optimized(monkeypatch, tmp_path):
    from torch._inductor import cpp_builder
    from torch._inductor.codecache import CppWrapperCodeCache

    from oneflow._graph.compile.inductor import settings

    run, compiled = cpp_builder.run_compile_cmd, []

    def compiler(command, *args, **kwargs):
        compiled.extend(Path(word).read_text() for word in str(command).split() if word.endswith(".cpp"))
        return run(command, *args, **kwargs)

    monkeypatch.setattr(settings, "_SMALL_REGION", 1)
    monkeypatch.setattr(cpp_builder, "run_compile_cmd", compiler)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("inductor")

        def build(self, x):
            return (x.sin() + 1.2345).sum(0)

    x = torch.randn(5, 3)
    assert close(G()(x), (x.sin() + 1.2345).sum(0))
    (source,) = compiled
    kernel, calls = source.index("cpp_fused_"), source.index("void inductor_entry_impl(")
    assert kernel < source.index('optimize("O0")') < calls
    assert "load_async" not in vars(CppWrapperCodeCache)


@pytest.mark.parametrize(
    "index",
    [
        "3*x + y",
        "x",
        "-x + 2*y + 7",
        "y",
        "5",
        "FloorDiv(x, 2) + y",
        "FloorDiv(x, 32) + x",
        "x*y",
        "x*x",
        "(x + y) % 8",
        "ModularIndexing(x, 1, 16) + 2*x",
    ],
)
def test_strides_of_indices_are_those_of_inductor(index):
    import sympy
    from torch._inductor.codegen import cpp
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    from oneflow._graph.compile.inductor.shortcuts import shortcuts

    x, y = sympy.symbols("x y", integer=True, nonnegative=True)
    names = {"x": x, "y": y, "FloorDiv": FloorDiv, "ModularIndexing": ModularIndexing}
    expression = sympy.sympify(eval(index, names))
    expected = cpp.stride_at_vec_range(expression, x, 16)
    with shortcuts():
        stride = cpp.stride_at_vec_range(expression, x, 16)
    assert sympy.simplify(stride - expected) == 0
    assert stride.is_number == expected.is_number


def test_strides_of_symbolic_sizes_need_no_simplification(monkeypatch):
    import sympy
    from torch._inductor.codegen import cpp
    from torch.utils._sympy.functions import FloorDiv

    from oneflow._graph.compile.inductor.shortcuts import shortcuts

    x, y, size = sympy.symbols("x y size", integer=True, nonnegative=True)
    half = FloorDiv(size - 1, 2)
    monkeypatch.setattr(sympy, "simplify", None)
    with shortcuts():
        assert cpp.stride_at_vec_range(7 * x * half + x + 3 * y * half, x, 16) == 7 * half + 1


def test_operators_without_a_cpp_wrapper_are_called_from_python(monkeypatch):
    from oneflow._graph.compile.inductor import compiler

    compile_, tried = compiler._compile, []

    def refuses(module, infos, chosen):
        tried.append(chosen["cpp_wrapper"])
        if chosen["cpp_wrapper"]:
            raise NotImplementedError("an operator without a C function")
        return compile_(module, infos, chosen)

    monkeypatch.setattr(compiler, "_compile", refuses)
    losses, _, graph = trained()
    assert tried == [True, False] and not graph._engine.last_entry.run.region.settings["cpp_wrapper"]
    monkeypatch.undo()
    assert all(close(a, b) for a, b in zip(losses, trained()[0]))


@pytest.mark.parametrize(
    "resize",
    [
        lambda x: nn.functional.interpolate(x, (5, 3), mode="bilinear", antialias=True),
        lambda x: nn.functional.interpolate(x, (5, 9), mode="bicubic", antialias=True),
        lambda x: nn.functional.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
        lambda x: nn.functional.interpolate(x[None], (3, 4, 13), mode="nearest"),
        lambda x: nn.functional.interpolate(x[0], 11, mode="nearest"),
        lambda x: nn.functional.pad(x[None], (1, 2, 0, 1, 2, 1), mode="replicate"),
    ],
    ids=["bilinear", "bicubic", "nearest-exact", "nearest3d", "nearest1d", "pad3d"],
)
def test_operators_without_a_c_function_leave_the_region_one_file(resize):
    def loss_of(model, x):
        resized = resize(model(x))
        return (resized * torch.arange(float(resized.numel())).view(resized.shape).cos()).sum()

    torch.manual_seed(0)
    model = nn.Linear(7, 7)
    other, data = copy.deepcopy(model), [(torch.randn(2, 3, 6, 7),) for _ in range(2)]
    make = lambda p: torch.optim.SGD(p, lr=0.01)
    expected, _ = train_eager(model, make, None, loss_of, data)
    got, _, graph = train_graph(other, make, None, loss_of, data, backend="inductor")
    assert graph._engine.last_entry.run.region.settings["cpp_wrapper"], (
        "one C++ file, not one for each kernel"
    )
    assert all(close(a, b) for a, b in zip(expected, got)) and all(
        close(a, b) for a, b in zip(model.parameters(), other.parameters())
    )


def test_the_update_is_two_operators_for_any_number_of_parameters():
    _, _, graph = trained()
    host = graph._engine.last_entry.run.inner.__code_text__
    body = host[: host.index("except BaseException")]
    assert len(re.findall(r"= f\d+\(arg0", body)) == 1, host  # the region
    assert len(re.findall(r"\.extend\(map\(f\d+", body)) == 2, host  # step counters, AdamW


def test_options_of_the_user_win_and_other_devices_keep_the_python_wrapper():
    from oneflow._graph.compile.inductor.settings import settings

    info = type("Info", (), {"device": torch.device("cuda")})
    assert "cpp_wrapper" not in settings(torch.fx.Graph(), [info])
    assert settings(torch.fx.Graph(), [], {"cpp_wrapper": False})["cpp_wrapper"] is False


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="needs an x86 CPU with vector instructions",
)
def test_a_cache_shared_between_instruction_sets_gives_right_numbers(tmp_path):
    code = """if True:
        import torch
        import oneflow as flow

        class Sums(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.config.set_backend("inductor")

            def build(self, x):
                return (x.sin() * 2 + x).exp().sum(0)

        x = torch.arange(37 * 19.0).view(37, 19) / 700
        wanted = (x.sin() * 2 + x).exp().sum(0)
        torch.testing.assert_close(Sums()(x), wanted)
    """
    widest = torch.backends.cpu.get_cpu_capability().lower()
    for capability in (widest, "default" if widest == "avx2" else "avx2"):
        env = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
