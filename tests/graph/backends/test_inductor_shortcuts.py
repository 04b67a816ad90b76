"""The shortcuts through inductor generate identical C++ code with less work."""

import collections
import contextlib
import subprocess
import sys
import textwrap
from unittest import mock

import pytest
import torch
from torch import nn

import oneflow as flow
from oneflow._graph.compile.inductor import compiler, settings, shortcuts
from oneflow._graph.compile.inductor.plain_trees import plain_trees

UPDATES_COMPARE_MEMORY = torch.__version__ >= "2.13"


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


class NormOfTransposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.randn(2, 16, 2)), nn.GroupNorm(1, 16)

    def forward(self, x):
        normed = self.norm(self.weight.transpose(0, 2).expm1())
        return normed.norm() + normed.sum() + x


CASES = {
    "whole vectors": (lambda: Function(lambda x: x.exp() + 1), (4, 32)),
    "a rest": (lambda: Function(lambda x: x.exp() + 1), (3, 37)),
    "sums of rows": (lambda: Function(lambda x: x.softmax(-1)), (8, 64)),
    "sums of columns": (lambda: Function(lambda x: x.softmax(0) * x.std(0)), (33, 48)),
    "transposed": (lambda: Function(lambda x: x.t().contiguous() + x.sum()), (32, 48)),
    "transposed, a rest": (lambda: Function(lambda x: x.t().contiguous().exp()), (33, 50)),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.LayerNorm(32)),
        (8, 32),
    ),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)
        ),
        (2, 3, 12, 12),
    ),
    "channels last": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 1),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
            nn.Conv2d(16, 16, 3, groups=16),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
            nn.Conv2d(16, 8, 1),
            nn.BatchNorm2d(8),
        ),
        (2, 3, 12, 12),
    ),
    "equal layers": (
        lambda: nn.Sequential(
            *(layer for _ in range(3) for layer in (nn.Linear(37, 37), nn.LayerNorm(37), nn.GELU()))
        ),
        (6, 37),
    ),
    "layers of other types": (
        lambda: Function(
            lambda x: sum(
                (x + i).to(t).exp().float().sum(-1, keepdim=True) * x
                for i, t in enumerate((torch.float, torch.double, torch.float, torch.bfloat16))
            )
        ),
        (9, 40),
    ),
    "layers of other sizes": (
        lambda: nn.Sequential(
            nn.Linear(32, 48),
            nn.LayerNorm(48),
            nn.GELU(),
            nn.Linear(48, 32),
            nn.LayerNorm(32),
            nn.GELU(),
            nn.Linear(32, 48),
            nn.LayerNorm(48),
        ),
        (6, 32),
    ),
    "equal constants but one": (
        lambda: Function(
            lambda x: (
                (x.exp() + 1).sum(0) * (x.sin() * x.flip(0).exp() + 2).sum(0) + (x.flip(1).exp() + 1).sum(0)
            )
        ),
        (33, 48),
    ),
    # tiles of 16 by 16: the inner loop has no rest, and the outer one has two rows
    "sums of tiles": (NormOfTransposed, (1,)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 2, 48, 0.0, batch_first=True), (2, 7, 32)),
}
SHORTCUTS = (
    "_one_table_of_vector_operations",
    "_graphs_without_code",
    "_one_view_for_dimensions",
    "plain_trees",
    "updates_of_changed_nodes",
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
    monkeypatch.setattr(compiler, "propagation_of_changes", contextlib.nullcontext)
    expected, _ = generate(case)
    assert code == expected
    assert "cpp_fused_" in code


def lacks_a_name():
    from torch._inductor.codegen import cpp

    return cpp.name_of_another_torch


@contextlib.contextmanager
def takes_other_arguments():
    from torch._inductor.codegen import cpp

    def stride_at_vec_range(index):
        return 0

    with mock.patch.object(cpp, "stride_at_vec_range", stride_at_vec_range):
        yield


@pytest.mark.parametrize("shortcut", [lacks_a_name, takes_other_arguments])
def test_a_shortcut_that_does_not_fit_this_torch_is_left_out(shortcut, generate, monkeypatch):
    expected, _ = generate("whole vectors")
    monkeypatch.setattr(shortcuts, "_short_answers", shortcut)
    code, _ = generate("whole vectors")
    assert code == expected


def test_inductor_is_as_before_afterwards():
    from torch._inductor.codegen.cpp import CppKernelProxy, CppVecOverrides

    methods = lambda: (
        CppKernelProxy.codegen_nodes,
        CppVecOverrides.__new__,
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
    monkeypatch.setattr(shortcuts, "updates_of_changed_nodes", contextlib.nullcontext)
    generate("batch norm")
    assert shorter == values
    assert shorter
    if torch.__version__ >= "2.13":  # before, inductor collects the arguments of changed nodes only
        assert fewer < len(collected)


Point = collections.namedtuple("Point", "x y")
TREES = {
    "a leaf": 3,
    "none": None,
    "containers": ([1, (2, None)], {"b": 3, "a": [4]}, ()),
    "named tuples": Point(1, [Point(2, 3)]),
    "dictionaries of their own": [
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, c=[3]),
        collections.deque([4]),
    ],
    "a class of torch": torch.Size([2, 3]),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize(
    "is_leaf", [None, lambda node: isinstance(node, (list, Point))], ids=["", "own leaves"]
)
def test_trees_are_taken_apart_as_torch_does(tree, is_leaf):
    from torch.utils import _pytree as pytree

    double = lambda leaf: (leaf, leaf)
    functions = (
        lambda: pytree.tree_flatten(tree, is_leaf),
        lambda: pytree.tree_map(double, tree, is_leaf=is_leaf),
        lambda: pytree.tree_map(lambda a, b: (a, b), tree, tree, is_leaf=is_leaf),
        lambda: pytree.tree_structure(tree),
    )
    expected = [function() for function in functions]
    with plain_trees():
        values = [function() for function in functions]
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


def test_inductors_first_passes_compute_changed_values_only(generate, monkeypatch):
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    nodes, run_node = [], FakeTensorProp.run_node
    monkeypatch.setattr(
        FakeTensorProp, "run_node", lambda self, node: nodes.append(node) or run_node(self, node)
    )
    generate("batch norm")
    fewer = len(nodes)
    nodes.clear()
    monkeypatch.setattr(compiler, "propagation_of_changes", contextlib.nullcontext)
    generate("batch norm")
    if UPDATES_COMPARE_MEMORY:
        assert len(nodes) > 100
        assert fewer < 10


@pytest.fixture
def chain():
    """Return (module, nodes): relu, a view of it, exp of the view, a view of exp, and sin of that view."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x):
        return x.relu().view(6).exp().view(3, 2).sin()

    module = make_fx(function, tracing_mode="fake")(torch.randn(2, 3))
    relu, view, exp, other_view, sin = (n for n in module.graph.nodes if n.op == "call_function")
    return module, relu, view, exp, other_view, sin


@pytest.mark.skipif(not UPDATES_COMPARE_MEMORY, reason="updates of torch 2.11 do not compare memory")
@pytest.mark.parametrize("is_patched", [True, False], ids=["ours", "inductor's"])
def test_a_changed_node_that_still_makes_memory_changes_no_value(chain, is_patched):
    from torch._inductor.fx_utils import FakeTensorUpdater
    from torch._inductor.virtualized import V

    module, relu, *_ = chain
    updater = FakeTensorUpdater(module)
    relu.target = torch.ops.aten.neg.default
    with (
        V.set_fake_mode(relu.meta["val"].fake_mode),
        shortcuts.updates_of_changed_nodes() if is_patched else contextlib.nullcontext(),
    ):
        assert updater.incremental_update() == (0 if is_patched else 5)


@pytest.mark.skipif(not UPDATES_COMPARE_MEMORY, reason="updates of torch 2.11 do not compare memory")
def test_a_change_that_later_values_see_is_computed(chain):
    """A node that becomes a view, one that ends being a view, and one with another dtype."""
    from torch._inductor.fx_utils import FakeTensorUpdater
    from torch._inductor.virtualized import V

    module, relu, view, exp, other_view, sin = chain
    storage = lambda node: node.meta["val"].untyped_storage()._cdata
    updater = FakeTensorUpdater(module)
    with V.set_fake_mode(relu.meta["val"].fake_mode), shortcuts.updates_of_changed_nodes():
        exp.target = torch.ops.aten.alias.default
        updater.incremental_update()
        assert storage(relu) == storage(view) == storage(exp) == storage(other_view) != storage(sin)
        exp.target = torch.ops.aten.clone.default
        updater.incremental_update()
        assert storage(view) != storage(exp) == storage(other_view)
        relu.target, relu.args = torch.ops.aten.to.dtype, (*relu.args, torch.float64)
        updater.incremental_update()
        assert {n.meta["val"].dtype for n in (relu, view, exp, other_view, sin)} == {torch.float64}


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
