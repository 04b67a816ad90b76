"""Where reads cannot be observed, build() runs in eager mode on every call; without the compiled guard
library, Python compares each source.
"""

import dis
import sys
import types
import warnings

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch._C._dynamo import eval_frame

import oneflow as flow
from oneflow._errors import OneFlowError
from oneflow._graph import eager_calls
from oneflow._graph.guards import native
from oneflow._graph.observe import outliving, support
from oneflow._graph.observe.hooks.attribute_reads import AttributeReads
from oneflow._graph.observe.instrumentation import instructions


def change_version(monkeypatch):
    monkeypatch.setattr(support, "VERSION", (3, 99))


def change_implementation(monkeypatch):
    monkeypatch.setattr(sys, "implementation", types.SimpleNamespace(name="pypy"))


def add_instruction(monkeypatch):
    monkeypatch.setattr(dis, "opmap", {**dis.opmap, "READ_BY_MAGIC": 255})


def remove_hook(monkeypatch):
    monkeypatch.delattr(eval_frame, "set_eval_frame")


def switch_hook_off(monkeypatch):
    monkeypatch.setattr(eval_frame, "set_eval_frame", lambda callback: None)


def hide_attributes(monkeypatch):
    monkeypatch.setattr(AttributeReads, "attribute", lambda *arguments: None)


def list_no_new_objects(monkeypatch):
    monkeypatch.setattr(outliving.gc, "get_objects", lambda generation=None: [])


def free_threads(monkeypatch):
    monkeypatch.setattr(support.sysconfig, "get_config_var", lambda name: 1)


UNKNOWN = {
    "an unknown version of Python": (change_version, "newer than this release"),
    "another Python": (change_implementation, "pypy"),
    "an unknown instruction": (add_instruction, "READ_BY_MAGIC"),
    "a torch without the frame hook": (remove_hook, "frame hook of torch"),
    "a frame hook that calls nothing": (switch_hook_off, "does not show"),
    "a frame hook that shows less": (hide_attributes, "does not show an attribute"),
    "a collector that lists no new objects": (list_no_new_objects, "the objects that a function makes"),
    "a free-threaded Python": (free_threads, "free-threaded"),
}


@pytest.fixture
def make_unknown(monkeypatch):
    """A function that makes this Python or torch one that the release does not know."""

    def make(change):
        change(monkeypatch)
        support.why_unobserved.cache_clear()
        eager_calls.warn_of_eager_calls.cache_clear()
        assert support.why_unobserved() is not None

    yield make
    monkeypatch.undo()
    support.why_unobserved.cache_clear()
    eager_calls.warn_of_eager_calls.cache_clear()
    assert support.why_unobserved() is None


@pytest.fixture
def unknown_python(make_unknown):
    make_unknown(change_version)
    eager_calls.warn_of_eager_calls(support.why_unobserved())


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(native, "_guards", None)
    native.probed_features.cache_clear()
    yield
    monkeypatch.undo()
    native.probed_features.cache_clear()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = 2.0

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale


class Negative(Net):
    def forward(self, x):
        return -super().forward(x)


def replace_layer(net):
    net.second = nn.Linear(3, 3)


def remove_bias(net):
    net.first.bias = None


CHANGES = {
    "an attribute": lambda net: setattr(net, "scale", 3.0),
    "a hook": lambda net: net.first.register_forward_hook(lambda module, args, result: result + 1),
    "a forward": lambda net: setattr(net.first, "forward", lambda x: x),
    "a class": lambda net: setattr(net, "__class__", Negative),
    "a layer": replace_layer,
    "a parameter that is None": remove_bias,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_python_or_torch_is_named_once_and_every_change_is_followed(name, make_unknown):
    change, message = UNKNOWN[name]
    make_unknown(change)
    x = torch.randn(2, 3)
    with warnings.catch_warnings(record=True) as announced:
        warnings.simplefilter("always")
        for change_of_module in CHANGES.values():
            net = Net()
            step = graph_of(lambda x: net(x), net=net)
            assert torch.equal(step(x), net(x))
            change_of_module(net)
            assert torch.equal(step(x), net(x))
            assert not step._engine.programs and message in step.explain()
    texts = [str(w.message) for w in announced]
    assert len(texts) == 1 and message in texts[0] and "install CPython" in texts[0]


@pytest.mark.parametrize("name", CHANGES)
def test_without_a_compiler_a_change_is_followed(name, no_compiler):
    net, x = Net(), torch.randn(2, 3)
    step = graph_of(lambda x: net(x), net=net)
    assert torch.equal(step(x), net(x))
    CHANGES[name](net)
    for _ in range(2):
        assert torch.equal(step(x), net(x))
        assert len(step._engine.programs) == 2


def test_without_a_compiler_hooks_of_other_modules_need_no_program(no_compiler):
    net = Net()
    step = graph_of(lambda x: net(x).sum().backward(), torch.optim.SGD(net.parameters(), lr=0.1), net=net)
    for _ in range(3):
        step(torch.ones(2, 3))
        nn.ReLU().register_forward_hook(lambda module, args, result: None)
    assert len(step._engine.programs) == 1


@pytest.mark.parametrize("python", ["unknown_python", "no_compiler"])
def test_a_parameter_frozen_alone_and_changed_optimizers_are_followed(python, request):
    request.getfixturevalue(python)

    def losses(as_graph):
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def build(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss

        step, values = graph_of(build, optimizer, net=net) if as_graph else build, []
        for k in range(8):
            if k == 2:
                net.first.bias.requires_grad_(False)
                net.first.bias.grad = None
            if k == 4:
                optimizer.load_state_dict(optimizer.state_dict())
            if k == 6:
                optimizer.param_groups[0]["params"].pop()
                net.second.bias.grad = None
            optimizer.zero_grad()
            values.append(step(torch.ones(2, 3)).item())
            if not as_graph:
                optimizer.step()
        return values

    assert losses(True) == losses(False)


class Step(flow.nn.Graph):
    """A training step with the options that keep their meaning in eager mode."""

    def __init__(self, scaler=None, parts=1, amp=False, clip=False):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
        options = {"clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0} if clip else {}
        optimizer = flow.optim.SGD([{"params": self.net.parameters(), **options}], lr=0.5, momentum=0.9)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5))
        self.config.set_backend("aten")
        self.config.set_gradient_accumulation_steps(parts)
        self.config.enable_amp(amp)
        self.set_grad_scaler(scaler and scaler())
        self.last, self.calls = None, 0

    def build(self, x):
        self.calls += 1
        loss = self.net(x).square().mean()
        loss.backward()
        self.last = loss
        return loss, {"twice": loss * 2}


OPTIONS = {
    "plain": {},
    "micro batches": {"parts": 2},
    "autocast": {"amp": True},
    "clipping": {"clip": True},
    "a static scale": {"scaler": lambda: flow.amp.StaticGradScaler(8.0), "clip": True},
    "a dynamic scale": {"scaler": lambda: flow.amp.GradScaler(init_scale=2.0**10, growth_interval=2)},
}


def run(options, overflows):
    graph, results = Step(**options), []
    for k in range(4):
        x = torch.linspace(-1, 1, 12).reshape(4, 3) + k
        if overflows and k == 2:
            x[0] = float("inf")
        loss, more = graph(x)
        assert not loss.requires_grad and not graph.last.requires_grad
        results += [loss, more["twice"], *(p.detach().clone() for p in graph.net.parameters())]
        assert all(p.grad is None for p in graph.net.parameters())
    return [*results, *graph.net.buffers(), torch.tensor(graph.calls)]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_training_step_in_eager_mode_equals_the_program(name, make_unknown):
    overflows = name == "a dynamic scale"
    expected = run(OPTIONS[name], overflows)
    make_unknown(change_version)
    torch.manual_seed(0)
    actual = run(OPTIONS[name], overflows)
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual):
        assert torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def test_arguments_keep_their_values_and_gradients(unknown_python):
    def build(x, y):
        x.add_(1)
        y.mul_(2)
        return x, x + y.storage_offset(), y

    memory = torch.arange(8.0)
    x, y = memory[:4], memory[2:6]
    written, offset, same = graph_of(build)(x, y)
    expected = torch.arange(8.0)
    build(expected[:4], expected[2:6])
    assert torch.equal(written, expected[:4]) and torch.equal(same, expected[2:6])
    assert torch.equal(offset, expected[:4] + 2) and torch.equal(memory, torch.arange(8.0))
    weight = torch.ones(3, requires_grad=True)
    graph_of(lambda w: (w * 2).sum().backward())(weight)
    assert weight.grad is None


def test_a_buffer_among_the_arguments_is_the_buffer(unknown_python):
    net = nn.BatchNorm1d(3)

    def build(buffer):
        net.running_mean.add_(1)
        return buffer * 2

    assert torch.equal(graph_of(build, net=net)(net.running_mean), torch.full((3,), 2.0))
    assert torch.equal(net.running_mean, torch.ones(3))


def test_modes_of_the_first_call_are_kept_and_a_change_is_told(unknown_python):
    net = nn.Dropout(0.5)
    step = graph_of(lambda x: net(x), net=net.eval())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(torch.ones(8))
    net.train()
    with pytest.warns(UserWarning, match="keeps the modes of its first call"):
        assert torch.equal(step(torch.ones(8)), torch.ones(8))
    assert net.training


def test_what_needs_a_program_says_so(unknown_python, tmp_path):
    strict = graph_of(lambda x: x + 1)
    strict.config.strict(True)
    with pytest.raises(OneFlowError, match="strict.*eager mode on every call"):
        strict(torch.ones(2))
    step = graph_of(lambda x: x + 1)
    step.build_graph(torch.ones(2))
    assert step.is_compiled
    for needs_program in (
        lambda: step.to_html(tmp_path / "page.html", torch.ones(2)),
        lambda: flow.save(step, tmp_path / "graph"),
    ):
        with pytest.raises(OneFlowError, match="needs a program"):
            needs_program()


def test_job_functions_run_op_by_op(unknown_python):
    import oneflow.compatible.single_client as single_client

    @single_client.global_function()
    def job(x: single_client.typing.Numpy.Placeholder((2,))) -> single_client.typing.Numpy:
        return x + single_client.get_variable("v", shape=(2,), initializer=single_client.ones_initializer())

    import numpy as np

    assert (job(np.ones(2, np.float32)) == 2).all()


def test_a_library_of_another_version_is_not_used(no_compiler, monkeypatch):
    monkeypatch.setattr(native, "_guards", types.SimpleNamespace(build=None))
    native.probed_features.cache_clear()
    with pytest.warns(UserWarning, match="compiled guards of nn.Graph belong to another version"):
        assert native.probed_features() is None


def test_tables_name_each_instruction_once():
    assert not instructions.READS.keys() & instructions.READS_NOTHING
