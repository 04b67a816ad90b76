"""Modules whose oneflow class extends torch's class, as seen by libraries that know only torch's class."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn

MODULES = {
    "Dropout": lambda: nn.Dropout(0.1),
    "Dropout2d": lambda: nn.Dropout2d(0.1),
    "Embedding": lambda: nn.Embedding(3, 2),
    "PixelShuffle": lambda: nn.PixelShuffle(2),
    "CrossEntropyLoss": lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
    "NLLLoss": nn.NLLLoss,
    "MSELoss": nn.MSELoss,
    "Softsign": nn.Softsign,
    "Hardshrink": nn.Hardshrink,
    "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d(1),
    "AvgPool2d": lambda: nn.AvgPool2d(2),
    "ConstantPad2d": lambda: nn.ConstantPad2d(1, 0.5),
    "RMSNorm": lambda: nn.RMSNorm(2),
    "ParameterList": lambda: nn.ParameterList([nn.Parameter(torch.ones(1))]),
    "RNN": lambda: nn.RNN(2, 3, 2, "relu"),
}


@pytest.mark.parametrize("name", MODULES)
def test_types_are_found_under_torchs_name(name):
    module = MODULES[name]()
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    kind = type(module)
    assert kind is ours and kind == theirs and theirs == ours and {theirs: 1}[kind] == 1 and kind in (theirs,)
    assert ours != torch.nn.Linear and isinstance(module, theirs)
    assert module.__module__ == theirs.__module__ and ours.__module__.startswith("oneflow.nn.modules.")

    class Mine(ours):
        pass

    assert (
        Mine != theirs
        and Mine != ours
        and {Mine: 1, ours: 2}[theirs] == 2
        and Mine.__module__ == Mine(*blank(module)).__module__ == __name__
    )


def blank(module):
    return getattr(type(module), "_blank", ())


@pytest.mark.parametrize("name", MODULES)
def test_copies_keep_the_class_and_pickles_name_torchs(name):
    module = MODULES[name]()
    assert (
        type(copy.deepcopy(module)) is type(module)
        and vars(copy.deepcopy(module)).keys() == vars(module).keys()
    )
    data = pickle.dumps(module)
    assert b"oneflow" not in data
    before = torch.get_rng_state()
    back = pickle.loads(data)
    assert torch.equal(before, torch.get_rng_state())
    assert (
        type(back) is getattr(torch.nn, name)
        and isinstance(back, getattr(nn, name))
        and back.state_dict().keys() == module.state_dict().keys()
    )
    assert pickle.loads(pickle.dumps(type(module))) is type(module)


def test_what_only_oneflow_has_survives_a_pickle():
    module = nn.PixelShuffle(h_upscale_factor=1, w_upscale_factor=2)
    back = pickle.loads(pickle.dumps(module))
    assert type(back) is nn.PixelShuffle and back(torch.ones(1, 2, 3, 3)).shape == (1, 1, 3, 6)
    assert pickle.loads(pickle.dumps(nn.AdaptiveAvgPool2d(1, "channels_last"))).data_format == "channels_last"


def test_a_model_saved_whole_loads_in_plain_torch_and_back(tmp_path):
    model = nn.Sequential(
        nn.Embedding(4, 3), nn.Dropout(0.1), nn.Linear(3, 2), nn.Softsign(), nn.CrossEntropyLoss()
    )
    flow.save(model, tmp_path / "ours.pt")
    code = """if True:
        import sys, torch
        model = torch.load(sys.argv[1] + "/ours.pt", weights_only=False)
        assert "oneflow" not in sys.modules
        torch.save(torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Dropout(0.2), torch.nn.NLLLoss()), sys.argv[1] + "/theirs.pt")
        print(type(model[1]).__name__, model[0].weight.shape)
    """  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "Dropout torch.Size([4, 3])\n"
    back = flow.load(tmp_path / "theirs.pt", weights_only=False)
    assert isinstance(back[1], nn.Dropout) and back[1].p == 0.2 and isinstance(back[2], nn.NLLLoss)


def test_fx_takes_them_for_layers():
    import oneflow.fx as fx

    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.PixelShuffle(1),
        nn.Flatten(),
        nn.Softsign(),
    )
    assert [n.op for n in fx.symbolic_trace(model).graph.nodes] == [
        "placeholder",
        *["call_module"] * 6,
        "output",
    ]


def test_functions_hand_foreign_objects_to_torch():
    """An object with __torch_function__ (a proxy of fx, a masked array) reaches torch's own function."""

    class Foreign:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function

    x = Foreign()
    assert [
        f(x) for f in (flow.relu, flow.argmax, flow.std, flow.var, flow.mean, flow.max, flow.zeros_like)
    ] == [torch.relu, torch.argmax, torch.std, torch.var, torch.mean, torch.max, torch.zeros_like]
    assert (
        flow.where(x, 1, 2) is torch.where
        and flow.topk(x, 1) is torch.topk
        and flow.logaddexp(x, x) is torch.logaddexp
    )
    assert (
        nn.functional.softmax(x, dim=0) is torch.nn.functional.softmax
        and nn.functional.cross_entropy(x, x) is torch.nn.functional.cross_entropy
    )


def test_a_pickled_module_goes_through_a_file_object():
    buffer = io.BytesIO()
    torch.save(nn.Dropout(0.5), buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).p == 0.5


def test_fx_records_the_functions_a_program_names(tmp_path):
    import oneflow.fx as fx

    class Net(nn.Module):
        def forward(self, x):
            return flow.add(nn.functional.relu(x), flow.cat([x, x], 1)[:, :2]) * flow.softmax(x, dim=1)

    traced = fx.symbolic_trace(Net())
    known = {flow.add: "sum", nn.functional.relu: "relu", flow.cat: "cat", flow.softmax: "softmax"}
    assert [known[n.target] for n in traced.graph.nodes if n.target in known] == [
        "relu",
        "cat",
        "sum",
        "softmax",
    ]
    for node in traced.graph.nodes:
        if node.target == flow.add:
            node.target = flow.mul
    traced.recompile()
    x = torch.randn(3, 2)
    expected = x.relu() * x * x.softmax(1)
    torch.save(traced, tmp_path / "traced.pt")
    assert torch.equal(traced(x), expected) and torch.equal(
        torch.load(tmp_path / "traced.pt", weights_only=False)(x), expected
    )
    assert [
        n.target
        for n in torch.fx.symbolic_trace(lambda x: torch.add(x, x)).graph.nodes
        if n.op == "call_function"
    ] == [torch.add]


def test_a_class_that_knows_functions_by_identity():
    """The ScalarTensor of PyTorch's page on extending torch."""
    known = {}

    class Diagonal:
        def __init__(self, size, value):
            self.size, self.value = size, value

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return known[function](*args, **(kwargs or {})) if function in known else NotImplemented

    known[flow.mean] = lambda d: d.value / d.size
    known[flow.add] = lambda a, b: Diagonal(a.size, a.value + b.value)
    known[flow.matmul] = lambda a, b: a.value * b
    d = Diagonal(5, 2)
    assert (
        flow.mean(d) == 0.4
        and flow.add(d, d).value == 4
        and torch.equal(flow.matmul(d, torch.ones(5)), 2 * torch.ones(5))
    )
    with pytest.raises(TypeError, match="__torch_function__"):
        flow.mul(d, 2)
