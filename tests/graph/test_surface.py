"""The interface of nn.Graph besides calls: text, debug output, state, options, blocks."""

import copy
import re

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.bn = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.bn(self.fc(x))


class Train(nn.Graph):
    def __init__(self, model, optimizer, schedule=None, **options):
        super().__init__(**options)
        self.model = model
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        return loss


def training_graph(kind=flow.optim.Adam, schedule=True, **options):
    flow.manual_seed(0)
    model = Net()
    optimizer = kind(model.parameters(), lr=0.1)
    return Train(
        model, optimizer, flow.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) if schedule else None, **options
    )


X = torch.arange(24.0).reshape(6, 4) / 24


def test_names_count_per_class():
    first, second = training_graph(), training_graph()
    stem, number = first.name.rsplit("_", 1)
    assert stem == "Train" and second.name == f"Train_{int(number) + 1}"


def test_text_before_and_after_the_first_call():
    graph = training_graph()
    before = repr(graph)
    for tag in ("GRAPH", "CONFIG", "MODULE", "PARAMETER", "BUFFER"):
        assert f"({tag}:" in before
    assert "(INPUT:" not in before and "OPERATOR" not in before
    assert (
        "(PARAMETER:model.fc.weight:tensor(..., size=(3, 4), dtype=oneflow.float32, requires_grad=True)): ()"
        in before
    )
    assert "(BUFFER:model.bn.num_batches_tracked:tensor(..., size=(), dtype=oneflow.int64)): ()" in before
    graph(X)
    after = repr(graph)
    assert f"(INPUT:_{graph.name}_input.0.0_2:tensor(..., size=(6, 4), dtype=oneflow.float32))" in after
    assert (
        f"(OUTPUT:_{graph.name}_output.0.0_2:tensor(..., is_lazy='True', size=(), dtype=oneflow.float32"
        in after
    )
    assert (
        "(INPUT:_model.bn_input.0.0_2:tensor(..., is_lazy='True', size=(6, 3), dtype=oneflow.float32" in after
    )
    assert re.search(r"\(OPERATOR: model\.fc-matmul-\d+\(.*sbp=\(B\), size=\(6, 4\)", after)
    assert repr(graph.model.fc).startswith(
        "(MODULE:model.fc:Linear(in_features=4, out_features=3, bias=True)): ("
    )
    assert repr(graph.model.fc.weight).startswith("(PARAMETER:model.fc.weight:")


def test_nested_arguments_are_named_by_their_path():
    @nn.Graph.trace
    def nested(x, y=None, *, k=None):
        return {"a": x[0] + k, "b": [x[1]]}

    nested.config.set_backend("aten")
    nested([torch.ones(1), torch.ones(2)], None, k=torch.ones(1))
    names = re.findall(r"\((?:INPUT|OUTPUT):_nested_\d+_(\S+?):", repr(nested))
    assert names == [
        "input.0.0.0_3",
        "input.0.0.1_4",
        "input.0.1_5",
        "input.1.0_k",
        "output.0.0.0_a",
        "output.0.0.1.0_5",
    ]


@pytest.mark.parametrize(
    "level, printed, unwanted",
    [
        (-1, [], ["GRAPH"]),
        (0, ["start building graph.", "building graph Done! Cost time"], ["(MODULE:"]),
        (
            1,
            ["(MODULE:model.fc:Linear(", "(PARAMETER:model.fc.weight:", "(OUTPUT:_model_output"],
            ["(OPERATOR:"],
        ),
        (2, ["with operators:", "(OPERATOR: model.fc-matmul"], ["location=("]),
        (3, ["(OPERATOR: model.fc-matmul", "location=("], []),
    ],
)
def test_debug_levels(level, printed, unwanted, capsys):
    graph = training_graph()
    graph.debug(level)
    graph(X)
    out = capsys.readouterr().out
    assert all(w in out for w in printed) and not any(u in out for u in unwanted), out
    graph(X)
    assert capsys.readouterr().out == ""


def test_debug_only_on_the_ranks_asked_for(capsys):
    graph = training_graph(debug_v_level=1, debug_ranks=[1])
    graph(X)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="3"):
        graph.debug(4)
    with pytest.raises(TypeError, match="'a'"):
        graph.debug("a")


@pytest.mark.parametrize("kind", [flow.optim.SGD, flow.optim.Adam, flow.optim.RMSprop, flow.optim.LAMB])
def test_state_dict_resumes_exactly(kind):
    graph = training_graph(kind)
    for _ in range(3):
        graph(X)
    state = copy.deepcopy(graph.state_dict())
    assert state["System-Train-TrainStep"].tolist() == [3]
    want = [graph(X).item() for _ in range(3)]
    again = training_graph(kind)
    again.load_state_dict(state)
    assert again.state_dict()["System-Train-TrainStep"].tolist() == [3]
    assert [again(X).item() for _ in range(3)] == want


def test_state_dict_has_oneflows_names():
    graph = training_graph()
    graph(X)
    keys = list(graph.state_dict())
    assert keys[0] == "model" and {
        "model.fc.weight-m",
        "model.fc.weight-v",
        "model.bn.bias-m",
        "System-Train-TrainStep",
        "lr_scheduler_0",
    } <= set(keys)


def test_a_state_dict_of_oneflow_itself_loads():
    """OneFlow writes tensors and the step only: no options, no per-parameter step."""
    graph, source = training_graph(schedule=False), training_graph(schedule=False)
    for _ in range(2):
        source(X)
    oneflows = {
        k: v
        for k, v in source.state_dict().items()
        if not k.endswith("-step") and not k.startswith("optimizer_")
    }
    graph.load_state_dict(oneflows)
    assert graph(X).item() == source(X).item()


def test_load_state_dict_checks_before_it_changes():
    graph = training_graph()
    state = training_graph().state_dict()
    weight = graph.model.fc.weight.to(torch.Tensor).clone()
    bad = dict(state, model={**state["model"], "fc.weight": torch.ones(2, 2)})
    with pytest.raises(RuntimeError, match=r"shape of fc.weight is \(2, 2\), needed \(3, 4\)"):
        graph.load_state_dict(bad)
    with pytest.raises(RuntimeError, match="unknown \\['other'\\]"):
        graph.load_state_dict(dict(state, other=1))
    with pytest.raises(RuntimeError, match="missing \\['model'\\]"):
        graph.load_state_dict({})
    assert torch.equal(graph.model.fc.weight.to(torch.Tensor), weight)
    graph.load_state_dict({}, strict=False)
    graph(X)
    with pytest.raises(RuntimeError, match="after the first call"):
        graph.load_state_dict(state)


def test_blocks_give_settings_and_modules():
    graph = training_graph()
    block = graph.model.fc
    assert (
        block.to(nn.graph.GraphModule) is block.config and block.to(nn.Module) is graph.model.to(nn.Module).fc
    )
    block.to(nn.graph.GraphModule).set_stage(1, flow.placement("cpu", [0]))
    assert block.config.stage_id == 1 and block.config.stage_placement == flow.placement("cpu", [0])
    graph.model.config.activation_checkpointing = True
    assert graph.model.to(nn.graph.GraphModule).activation_checkpointing is True
    for wrong, error in (
        (lambda: block.config.set_stage("a"), ValueError),
        (lambda: setattr(block.config, "stage_id", -1), ValueError),
        (lambda: setattr(block.config, "activation_checkpointing", "yes"), TypeError),
    ):
        with pytest.raises(error, match="found"):
            wrong()
    assert (
        block.config.name == "fc" and block.config.name_prefix == "model." and block.config.type == "MODULE"
    )
    assert block.weight.to(nn.graph.GraphTensor).type == "PARAMETER" and block.weight.shape == (3, 4)
    assert torch.equal(torch.add(block.weight, 0), block.to(nn.Module).weight)
    with pytest.raises(RuntimeError, match="state_dict"):
        graph.model.state_dict()
    with pytest.raises(AttributeError, match="'model' in nn.Graph has no attribute 'nothing'"):
        graph.model.nothing
    with pytest.raises(AttributeError, match="nothing"):
        graph.nothing
    assert not isinstance(graph.model, nn.Module)


def test_every_option_of_the_table_exists_and_checks_its_value():
    from oneflow._tables.graph_config import GRAPH_CONFIG

    config = training_graph().config
    for name, (kind, why) in GRAPH_CONFIG.items():
        method = getattr(config, name)
        assert method.__doc__ and why
        if (
            kind == "ignored"
            and name.startswith("enable_")
            and name not in ("enable_straighten_algorithm", "enable_auto_memory")
        ):
            method(True)
            with pytest.raises(TypeError, match=name):
                method("yes")
    config.enable_zero(True, shard_min_size=0)
    methods = {n for n in dir(config) if not n.startswith("_")} - {"training", "proto"}
    assert methods == set(GRAPH_CONFIG)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda c: c.set_gradient_accumulation_steps("a"), TypeError),
        (lambda c: c.set_gradient_accumulation_steps(0), ValueError),
        (lambda c: c.enable_zero(True, stage=5), ValueError),
        (lambda c: c.enable_zero(True, shard_min_size=-1), ValueError),
        (lambda c: c.set_zero_redundancy_optimizer_mode("x"), ValueError),
        (lambda c: c.enable_amp(3), TypeError),
        (lambda c: c.enable_amp(True, dtype=torch.float64), TypeError),
        (lambda c: c.set_backend("mlir"), ValueError),
        (lambda c: c.passes(skip="merge_views"), TypeError),
        (lambda c: c.passes(skip=["merge_view"]), ValueError),
        (lambda c: c.passes(check=1), TypeError),
        (lambda c: c.enable_straighten_algorithm("Fast"), ValueError),
        (lambda c: c.set_backend("aten", max_autotune=True), TypeError),
        (lambda c: c.set_auto_parallel_computation_cost_ratio("a"), TypeError),
        (lambda c: c.set_auto_parallel_wait_time(None), TypeError),
        (lambda c: c.allow_fuse_compositions(True, dropout=1), TypeError),
    ],
)
def test_bad_options_are_refused_and_change_nothing(call, error):
    config = training_graph().config
    before = repr(config._engine), dict(config._kept)
    with pytest.raises(error):
        call(config)
    assert (repr(config._engine), config._kept) == before


def test_set_up_after_the_first_call_is_refused():
    graph = training_graph()
    graph(X)
    model = Net()
    for late in (
        lambda: graph.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1)),
        lambda: setattr(graph, "other", model),
        lambda: graph.set_grad_scaler(None),
    ):
        with pytest.raises(RuntimeError, match="after the first call"):
            late()
    before = repr(graph.config._engine), dict(graph.config._kept)
    for late in (
        lambda: graph.config.enable_amp(True),
        lambda: setattr(graph.model.fc.config, "activation_checkpointing", True),
        lambda: graph.config.enable_compress_memory(),
    ):
        with pytest.warns(UserWarning, match="after the first call.*stays as it was"):
            late()
    assert (
        repr(graph.config._engine),
        graph.config._kept,
    ) == before and not graph.model.fc.config.activation_checkpointing


def test_a_module_can_be_taken_back():
    graph = training_graph()
    graph.extra, graph.number = nn.Linear(1, 1), 3
    del graph.extra, graph.number
    assert not hasattr(graph, "extra") and not hasattr(graph, "number") and "extra" not in graph.state_dict()
    with pytest.raises(AttributeError, match="extra"):
        del graph.extra


def test_wrong_set_up_is_refused():
    class Bare(nn.Graph):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Bare()(X)
    graph = training_graph()
    with pytest.raises(TypeError, match="GradScaler.*found int 3"):
        graph.set_grad_scaler(3)
    with pytest.raises(ValueError, match="Adam.*twice"):
        graph.add_optimizer(graph._opts[0][0])
    assert len(graph._opts) == 1
    with pytest.raises(TypeError, match="load_state_dict.*NoneType"):
        graph.load_state_dict(None)


def test_trace_makes_a_graph_of_a_function():
    w = torch.ones(2, 2)

    @nn.Graph.trace
    def double(x):
        return x @ w * 2

    double.config.set_backend("aten")
    assert double.__name__ == "double" and double(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    w.fill_(2)
    assert double(torch.ones(1, 2)).tolist() == [[8.0, 8.0]]


def test_dynamic_input_shape_keeps_that_many_programs():
    class Dynamic(nn.Graph):
        @nn.Graph.with_dynamic_input_shape(size=2)
        def __init__(self):
            super().__init__()
            self.m = nn.Linear(2, 1)
            self.config.set_backend("aten")

        def build(self, x):
            return self.m(x)

    graph = Dynamic()
    for n in (1, 2, 3, 1):
        assert graph(torch.ones(n, 2)).shape == (n, 1)
    assert len(graph._engine.programs) == 2
    with pytest.raises(ValueError, match="size"):
        nn.Graph.with_dynamic_input_shape(size=0)


def test_graphs_share_tensors():
    first, second = training_graph(schedule=False), training_graph(schedule=False)
    second.share_from(first)
    first(X)
    assert second.model.fc.weight.to(torch.Tensor) is first.model.fc.weight.to(torch.Tensor)
    with pytest.raises(ValueError, match="modules"):
        nn.Graph.trace(lambda x: x).share_from(first)
    for wrong in (lambda: nn.Graph.trace(3), lambda: training_graph().share_from(3)):
        with pytest.raises(TypeError, match="found"):
            wrong()


def test_html_page_begins_with_time_by_module_and_line_memory_and_effects(tmp_path):
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
            optimizer = flow.optim.AdamW(self.model.parameters())
            self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 5))
            self.config.set_backend("aten")

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            self.last = loss.detach()
            return loss

    graph = Train()
    for _ in range(2):
        graph(X[:, :4])
    graph.to_html(tmp_path / "g.html", X[:, :4])
    text = (tmp_path / "g.html").read_text()
    top, details = text.split("<h2>Details</h2>")
    for part in (
        "model.0",
        "loss.backward()",
        "optimizer state",
        "0.00 MiB",
        "sets &#x27;last&#x27;",
        "steps StepLR",
    ):
        assert part in top, part
    assert "_local_scalar_dense" not in top and "_local_scalar_dense" in details
    assert "<details open" not in text
    graph.to_html(tmp_path / "untimed.html")  # without arguments, the page counts operators
    assert "model.0" in (tmp_path / "untimed.html").read_text().split("<h2>Details</h2>")[0]


def test_html_page_shows_modules_operators_and_times(tmp_path):
    graph = training_graph()
    with pytest.raises(RuntimeError, match="no program yet"):
        graph.to_html(tmp_path / "g.html")
    with pytest.raises(TypeError, match="build"):
        graph.to_html(tmp_path / "g.html", X, X)
    assert not (tmp_path / "g.html").exists()
    graph(X)
    state = copy.deepcopy(graph.state_dict())
    graph.to_html(tmp_path / "g.html", X)
    text = (tmp_path / "g.html").read_text()
    for part in (
        "<summary>model",
        "<summary>fc",
        "addmm",
        "float32[6, 3]",
        "µs",
        "native_batch_norm",
        "def Train_",
    ):
        assert part in text, part
    after = graph.state_dict()
    assert all(
        torch.equal(torch.as_tensor(v), torch.as_tensor(after[k]))
        for k, v in state.items()
        if isinstance(v, torch.Tensor)
    )
    assert all(torch.equal(v, after["model"][k]) for k, v in state["model"].items())


def test_a_custom_operator_that_needs_a_gradient_can_be_an_output():
    class Gelu(nn.Graph):
        def build(self, x):
            return flow.quick_gelu(x)

    graph = Gelu()
    x = torch.rand(3, requires_grad=True)
    torch.testing.assert_close(graph(x), flow.quick_gelu(x))


def test_short_text_operators_and_state_as_oneflows_tests_ask_for_them():
    graph = training_graph()
    assert graph._shallow_repr() == f"(GRAPH:{graph.name}:Train)" and graph._ops_repr() == []
    assert [f"{t.name_prefix}{t.name}" for t in graph._state()][:3] == [
        "model.fc.weight",
        "model.fc.bias",
        "model.bn.weight",
    ]
    graph(X)
    assert any(line.startswith("(OPERATOR: model.fc-matmul") for line in graph._ops_repr())
