"""The shortcuts through inductor generate identical C++ code with less work."""

import contextlib
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.compile.inductor import settings, shortcuts


class Generated(BaseException):
    """Stops a compilation before the C++ compiler runs."""


class Step(flow.nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.config.set_backend("inductor")
        if list(module.parameters()):
            self.add_optimizer(torch.optim.SGD(module.parameters(), lr=0.1))

    def build(self, x):
        loss = self.module(x).square().mean()
        if loss.requires_grad:
            loss.backward()
        return loss


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


CASES = {
    "whole vectors": (lambda: Function(lambda x: x.exp() + 1), (4, 32)),
    "a rest": (lambda: Function(lambda x: x.exp() + 1), (3, 37)),
    "sums of rows": (lambda: Function(lambda x: x.softmax(-1)), (8, 64)),
    "sums of columns": (lambda: Function(lambda x: x.softmax(0) * x.std(0)), (33, 48)),
    "transposed": (lambda: Function(lambda x: x.t().contiguous() + x.sum()), (32, 48)),
    "transposed, a rest": (lambda: Function(lambda x: x.t().contiguous().exp()), (33, 50)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.LayerNorm(32)), (8, 32)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)), (2, 3, 12, 12)),
    "equal layers": (lambda: nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(37, 37), nn.LayerNorm(37), nn.GELU()))), (6, 37)),
    "layers of other types": (lambda: Function(lambda x: sum((x + i).to(t).exp().float().sum(-1, keepdim=True) * x for i, t in enumerate((torch.float, torch.double, torch.float, torch.bfloat16)))), (9, 40)),
    "layers of other sizes": (lambda: nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 48), nn.LayerNorm(48)), (6, 32)),
    "equal constants but one": (lambda: Function(lambda x: (x.exp() + 1).sum(0) * (x.sin() * x.flip(0).exp() + 2).sum(0) + (x.flip(1).exp() + 1).sum(0)), (33, 48)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 2, 48, 0.0, batch_first=True), (2, 7, 32)),
}  # fmt: skip
SHORTCUTS = (
    "_one_table_of_vector_operations",
    "_graphs_without_code",
    "_empty_tails",
    "_kernels_of_failed_fusions",
    "_updates_of_changed_nodes",
    "equal_kernels",
)


@pytest.fixture
def generate(monkeypatch, tmp_path):
    """Return generate(case): (the C++ code of a step, the kernels that inductor generated for it)."""
    from torch._inductor.codecache import CppWrapperCodeCache
    from torch._inductor.codegen.cpp import CppKernelProxy
    from torch._inductor.loop_body import LoopBody

    def stop(main_code, *args, **kwargs):
        raise Generated(main_code)

    monkeypatch.setattr(CppWrapperCodeCache, "load_async", stop)
    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "oneflow"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    runs = []
    for owner, name in ((LoopBody, "__call__"), (CppKernelProxy, "codegen_functions")):
        method = getattr(owner, name)
        count = lambda *args, _method=method, _name=name: runs.append(_name) or _method(*args)
        monkeypatch.setattr(owner, name, count)

    def run(case):
        make, shape = CASES[case]
        torch.manual_seed(0)
        step, x = Step(make()), torch.randn(*shape)
        runs.clear()
        with pytest.raises(Generated) as stopped:
            step(x)
        return str(stopped.value), {name: runs.count(name) for name in set(runs)}

    return run


@pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch 2.11 orders buffers differently in each compilation"
)
@pytest.mark.parametrize("case", CASES)
def test_the_generated_code_is_inductors(case, generate, monkeypatch):
    code, _ = generate(case)
    for name in SHORTCUTS:
        monkeypatch.setattr(shortcuts, name, contextlib.nullcontext)
    expected, _ = generate(case)
    assert code == expected
    assert "cpp_fused_" in code


def test_a_loop_without_a_rest_is_generated_once_less(generate, monkeypatch):
    _, runs = generate("whole vectors")
    monkeypatch.setattr(shortcuts, "_empty_tails", contextlib.nullcontext)
    assert runs["__call__"] < generate("whole vectors")[1]["__call__"]


def test_kernels_of_a_fusion_that_fails_are_kept(generate, monkeypatch):
    _, runs = generate("batch norm")
    monkeypatch.setattr(shortcuts, "_kernels_of_failed_fusions", contextlib.nullcontext)
    assert runs["codegen_functions"] < generate("batch norm")[1]["codegen_functions"]


def test_kernels_of_equal_layers_are_generated_once(generate, monkeypatch):
    _, runs = generate("equal layers")
    monkeypatch.setattr(shortcuts, "equal_kernels", contextlib.nullcontext)
    assert runs["__call__"] < generate("equal layers")[1]["__call__"]


def test_inductor_is_as_before_afterwards():
    from torch._inductor.codegen.cpp import CppKernelProxy, CppVecOverrides, OuterLoopFusedSchedulerNode
    from torch._inductor.scheduler import SchedulerNode

    methods = lambda: (
        SchedulerNode.codegen,
        CppKernelProxy.codegen_nodes,
        CppKernelProxy.codegen_functions,
        CppVecOverrides.__new__,
        OuterLoopFusedSchedulerNode.check_outer_fusion_loop_level_attr,
    )
    before = methods()
    with shortcuts.shortcuts():
        assert all(a is not b for a, b in zip(before, methods()))
    assert all(a is b for a, b in zip(before, methods()))


def test_fake_tensors_of_changed_nodes_are_those_of_inductor(generate, monkeypatch):
    """Also of nodes that follow on a changed node."""
    from torch._inductor import fx_utils

    update = fx_utils.FakeTensorUpdater.incremental_update
    get_arguments, collected, values = fx_utils.get_fake_args_kwargs, [], []

    def noted(self):
        result = update(self)
        graph = getattr(self, "gm", self).graph
        values.append([(n.name, type(n.meta.get("val")), str(n.meta.get("val"))) for n in graph.nodes])
        return result

    monkeypatch.setattr(fx_utils.FakeTensorUpdater, "incremental_update", noted)
    monkeypatch.setattr(fx_utils, "get_fake_args_kwargs", lambda *a: collected.append(a) or get_arguments(*a))
    generate("batch norm")
    shorter, fewer = [*values], len(collected)
    values.clear()
    collected.clear()
    monkeypatch.setattr(shortcuts, "_updates_of_changed_nodes", contextlib.nullcontext)
    generate("batch norm")
    assert shorter == values
    assert shorter
    if torch.__version__ >= "2.13":  # before, inductor collects the arguments of changed nodes only
        assert fewer < len(collected)


def test_templates_of_gpu_kernels_are_translated_when_they_are_used():
    code = """
        from oneflow._graph.compile.inductor.templates_on_demand import import_lowerings
        from torch._inductor.codegen.common import KernelTemplate

        import_lowerings()
        from torch._inductor.select_algorithm import TritonTemplate

        text = "{% for i in range(n) %}{{ i }}{% if i %}, {% endif %}{% endfor %}"
        directly = KernelTemplate._template_from_string(text)
        templates = [t.template for t in TritonTemplate.all_templates.values()]
        assert len(templates) > 10 and all(t.translated is None for t in templates)
        later = type(templates[0])(text, KernelTemplate._template_from_string)
        assert later.render(n=3) == directly.render(n=3) == "01, 2, "
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere inductor compiles kernels one by one")
def test_code_that_the_quick_flags_do_not_suit_is_compiled_in_inductors_way(monkeypatch, tmp_path):
    from torch._inductor import cpp_builder

    monkeypatch.setenv("ONEFLOW_CACHE_DIR", str(tmp_path / "oneflow"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    build, commands = cpp_builder.run_compile_cmd, []

    def noted(command, *args, **kwargs):
        commands.append(command)
        return build(command, *args, **kwargs)

    monkeypatch.setattr(cpp_builder, "run_compile_cmd", noted)
    monkeypatch.setattr(settings, "_QUICK_FLAGS", ("--no-such-flag",))
    x = torch.randn(3, 37)
    step = Step(Function(lambda x: x.exp() + 1))
    torch.testing.assert_close(step(x), (x.exp() + 1).square().mean())
    assert ["--no-such-flag" in command for command in commands] == [True, False]
