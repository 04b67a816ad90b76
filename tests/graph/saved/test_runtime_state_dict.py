"""runtime_state_dict() of a graph: the captured programs as a dict of tensors."""

import pytest
import torch
from deploy_cases import Infer, Net, data

import oneflow as flow
import oneflow.nn as nn


def test_a_state_dict_of_a_call_by_name_warms_up():
    """onediffx.load_pipe: a U-Net is called with keywords, some of them None."""

    class Named(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("aten")

        def build(self, x, *, scale=None, more=None, fast=False):
            return x * 2 if scale is None else x * scale

    first, second = Named(), Named()
    call = {"scale": torch.full((2,), 3.0), "more": None, "fast": True}
    first(torch.ones(2), **call)
    second.load_runtime_state_dict(first.runtime_state_dict(), warmup_with_run=True)
    assert second(torch.ones(2), **call).tolist() == [3, 3]


def test_runtime_state_dict_saves_the_capture(tmp_path):
    flow.manual_seed(0)
    x, _ = data()
    graph = Infer(Net().eval())
    want = graph(x)["logits"]
    flow.save(graph.runtime_state_dict(with_eager=True), str(tmp_path / "runtime"))

    class Never(Infer):
        def build(self, x):
            raise AssertionError("build() ran")

    other = Never(Net().eval())
    other.load_runtime_state_dict(flow.load(str(tmp_path / "runtime")))
    assert other.is_compiled and torch.equal(other(x)["logits"], want)
    assert torch.equal(other.model.to(nn.Module)(x), want)
    with torch.no_grad():
        other.model.to(nn.Module).body[4].bias.add_(1)
    assert torch.allclose(other(x)["logits"], want + 1)
    with pytest.raises(RuntimeError, match="after the first call"):
        other.load_runtime_state_dict({})
    with pytest.raises(RuntimeError, match="missing"):
        Infer(Net().eval()).load_runtime_state_dict({})
    for wrong, error in ((None, TypeError), ({"a": 1}, RuntimeError)):
        with pytest.raises(error, match="load_runtime_state_dict.*runtime_state_dict\\(\\) returned"):
            Infer(Net().eval()).load_runtime_state_dict(wrong)
    with pytest.raises(RuntimeError, match="runtime_state_dict: .*no program yet"):
        Infer(Net().eval()).runtime_state_dict()


def test_runtime_state_dict_holds_plain_values():
    """A file holds a version as text: torch's class of versions is not read back without torch."""
    graph = Infer(Net().eval())
    graph(data()[0])
    for dialect in ("torch", "oneflow"):
        flow.set_dialect(dialect)
        state = graph.runtime_state_dict()
        assert {type(value) for value in state.values()} <= {bytes, str, torch.Tensor, int}


def test_runtime_state_dict_without_eager_state_leaves_the_weights_alone():
    x, _ = data()
    graph, model = Infer(Net().eval()), Net().eval()
    graph(x)
    other = Infer(model)
    other.load_runtime_state_dict(graph.runtime_state_dict())
    assert torch.equal(other(x)["logits"], model(x)["logits"] if isinstance(model(x), dict) else model(x))


def test_runtime_state_dict_of_a_dynamic_graph_is_named(tmp_path):
    """onediff walks through the programs of such a graph, looks at their `outputs_original` and saves
    them.
    """

    class Dynamic(nn.Graph):
        @nn.Graph.with_dynamic_input_shape()
        def __init__(self, model):
            super().__init__(enable_get_runtime_state_dict=True)
            self.model = model

        def build(self, x):
            return self.model(x)

    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    graph = Dynamic(model)
    graph._dynamic_input_graph_cache.set_cache_size(9)
    graph._dynamic_input_graph_cache.enable_shared(True)
    want = graph(x)
    assert graph._engine.config.cache_size == 9
    assert dict(zip(*graph._c_nn_graph.get_runtime_var_states())) == {
        "model.weight": model.weight,
        "model.bias": model.bias,
    }
    state = graph.runtime_state_dict()
    assert list(state) == [graph.name] and "outputs_original" in state[graph.name]
    flow.save(nn.Graph.runtime_state_dict_to(state, "cpu"), tmp_path / "g")
    other = Dynamic(model)
    other.load_runtime_state_dict(flow.load(tmp_path / "g"))
    assert other.is_compiled and torch.equal(other(x), want)
