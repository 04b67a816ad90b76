"""The job, the settings and the operators of a graph as messages and text, in OneFlow's form."""

import re

import pytest
from job_messages import value

import oneflow as flow
import oneflow.framework.graph_build_util as graph_build_util
import oneflow.framework.scope_util as scope_util
import oneflow.nn as nn
from oneflow.framework import c_api_util
from oneflow.nn.graph import GraphModule
from oneflow.nn.graph.job_message import op_conf
from oneflow.nn.graph.job_message.job_conf import JobConfigProto

internal = flow._oneflow_internal


def test_a_job_built_by_hand():
    x = flow.ones(2, 3)
    with internal.lazy_mode.guard(True):
        internal.JobBuildAndInferCtx_Open("job")
        try:
            with pytest.raises(RuntimeError, match="still being built"):
                c_api_util.JobBuildAndInferCtx_Open("other")
            conf = JobConfigProto(job_name="job")
            conf.predict_conf.SetInParent()
            c_api_util.CurJobBuildAndInferCtx_SetJobConf(conf)
            with pytest.raises(RuntimeError, match="'x' .*'job'"):
                c_api_util.CurJobBuildAndInferCtx_SetJobConf(JobConfigProto(job_name="x"))
            expressions = [
                internal.one.FeedInputOpExpr(
                    "in", op_conf.FeedInputOpConf(in_0="in_0", out_0="out_0"), ["in_0"], ["out_0"]
                ),
                internal.one.FeedVariableOpExpr("w", op_conf.FeedVariableOpConf(), ["in_0"], ["out_0"]),
                internal.one.FetchOutputOpExpr("out", op_conf.FetchOutputOpConf(), ["in_0"], ["out_0"]),
            ]
            a = internal._C.dispatch_feed_input(expressions[0], x)
            w = flow._C.dispatch_feed_variable(expressions[1], flow.ones(3, 5), 0)
            y = flow._C.relu(flow._C.matmul(a, w))
            out = internal._C.dispatch_fetch_output(expressions[2], y)
        finally:
            internal.JobBuildAndInferCtx_Close()
    assert a.is_lazy and y.is_lazy and y.shape == out.shape == (2, 5) and not out.is_lazy and not x.is_lazy


def test_settings_of_a_graph_as_a_message():
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = nn.Linear(2, 2, bias=False)
            optimizer = flow.optim.SGD([{"params": self.m.parameters(), "lr": 0.5, "weight_decay": 0.25}])
            self.config.enable_amp(True)
            self.config.set_gradient_accumulation_steps(4)
            self.config.enable_zero(True, stage=2, shard_min_size=8)
            self.add_optimizer(
                optimizer,
                lr_sch=flow.optim.lr_scheduler.WarmUpLR(optimizer, warmup_factor=0.5, warmup_iters=2),
            )

    graph = Train()
    graph._filter_states(), graph._generate_config_proto()
    proto = graph._config_proto
    assert (
        proto.num_gradient_accumulation_steps == 4
        and proto.enable_auto_mixed_precision
        and proto.optimizer_placement_optimization_threshold == 8
    )
    group = proto.train_conf.optimizer_conf[0]
    assert (
        list(group.variable_op_names) == ["m.weight"]
        and group.base_learning_rate == 0.5
        and group.lr_scheduler == "WarmUpLR"
    )
    assert (
        f'job_name: "{graph.name}"\ntrain_conf {{\n  optimizer_conf {{\n    variable_op_names: "m.weight"\n'
        in str(graph.config.proto)
    )
    assert [(v.name, v.l2) for v in graph._variables_conf.values()] == [("m.weight", 0.25)]
    assert graph._optimization_conf_proto.collective_boxing_conf.enable_fusion is True
    graph.config.enable_amp(True, dtype=flow.bfloat16)
    assert proto.mixed_precision_data_type == 9 and graph.config.proto.mixed_precision_data_type == 11


def test_a_schedule_that_is_none_or_belongs_to_another_optimizer():
    class Train(nn.Graph):
        def __init__(self, schedule):
            super().__init__()
            self.add_optimizer(mine, lr_sch=schedule)

    mine, other = (flow.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1) for _ in range(2))
    with pytest.raises(TypeError, match="int"):
        Train(3)
    with pytest.raises(AssertionError, match="another optimizer"):
        Train(flow.optim.lr_scheduler.StepLR(other, 1))


class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=(1, 0))
        self.fc = nn.Linear(4, 2)
        self.register_buffer("shift", flow.zeros(1, 2))

    def forward(self, x):
        x = flow.nn.functional.relu(self.conv(x), inplace=True)
        x = flow.nn.functional.avg_pool2d(x, 4, ceil_mode=True)
        return self.fc(flow.flatten(x, 1)) * 2.5 + self.shift


class Infer(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.config.set_backend("aten")
        self.m = module

    def build(self, x):
        return self.m(x)


def test_the_captured_program_as_a_job_message():
    graph = Infer(Convs().eval())
    assert graph._graph_proto is None
    graph(flow.ones(2, 3, 8, 8))
    operators = {op.name: op for op in graph._graph_proto.net.op}
    assert [op.WhichOneof("op_type") for op in operators.values()] == ["input_conf"] + [
        "variable_conf"
    ] * 5 + ["user_conf"] * 9 + ["output_conf"]
    weight = operators["m.conv.weight"].variable_conf
    assert (
        tuple(weight.shape.dim) == (4, 3, 3, 3)
        and weight.data_type == 2
        and not operators["m.conv.weight"].HasField("user_conf")
    )
    user = [op for op in operators.values() if op.HasField("user_conf")]
    assert [op.user_conf.op_type_name for op in user] == [
        "conv2d",
        "bias_add",
        "relu",
        "avg_pool_2d",
        "reshape",
        "matmul",
        "broadcast_add",
        "scalar_mul",
        "broadcast_add",
    ]
    conv, bias, relu, pool, _, product, _, scale, shift = user
    assert (
        list(product.user_conf.input["b"].s) == ["m.fc.weight/out"]
        and value(product.user_conf.attr["transpose_b"]) is True
    )
    assert value(product.user_conf.attr["transpose_a"]) is False
    settings = {name: value(setting) for name, setting in conv.user_conf.attr.items()}
    assert settings == {
        "filters": 4,
        "kernel_size": [3, 3],
        "strides": [2, 2],
        "padding_before": [1, 0],
        "dilation_rate": [1, 1],
        "groups": 1,
        "data_format": "channels_first",
    }
    assert conv.name == "m.conv-conv2d-0" and list(bias.user_conf.input["a"].s) == [
        "m.conv-conv2d-0/out_0"
    ] == list(conv.user_conf.output["out"].s)
    assert list(pool.user_conf.input["x"].s) == [f"{relu.name}/y_0"], (
        "what was written in place is what is read after it"
    )
    assert value(pool.user_conf.attr["stride"]) == [4, 4] and value(pool.user_conf.attr["ceil_mode"]) is True
    assert value(scale.user_conf.attr["float_operand"]) == 2.5 and list(shift.user_conf.input["y"].s) == [
        "m.shift/out"
    ]
    out = list(operators.values())[-1].output_conf
    assert getattr(out, "in") == f"{shift.name}/z_0" and tuple(out.blob_conf.shape.dim) == (2, 2)
    assert str(conv.user_conf.attr["strides"]) == "at_list_int32 {\n  val: 2\n  val: 2\n}\n"
    assert '  attr {\n    key: "filters"\n    value {\n      at_int32: 4\n    }\n  }\n' in str(conv)


def test_the_text_lists_the_operators_of_the_job_with_the_sizes_they_read():
    """flowflops counts operations so: sizes from repr(graph), operators and settings from the job."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act, self.pool, self.fc = (
                nn.Conv2d(3, 4, 3),
                nn.PReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Linear(4, 2),
            )

        def forward(self, x):
            x = self.act(self.conv(x))
            return self.fc(flow.flatten(self.pool(x), 1)).split(1, dim=1)[1], x.mean(dim=1)

    graph = Infer(Pooled().eval())
    graph(flow.ones(2, 3, 8, 8))
    user = [op for op in graph._forward_job_proto.net.op if op.WhichOneof("op_type") == "user_conf"]
    assert [op.user_conf.op_type_name for op in user] == [
        "conv2d",
        "bias_add",
        "reshape",
        "prelu",
        "adaptive_avg_pool2d",
        "reshape",
        "matmul",
        "broadcast_add",
        "narrow",
        "reduce_sum",
        "scalar_mul",
    ]
    lines = [line.strip() for line in repr(graph).splitlines() if "(OPERATOR: " in line]
    sizes = {
        name: tuple(map(int, size.split(", ")))
        for line in lines
        for name, size in re.findall(r"([^ (]+/[^ :]+):\(sbp=\(B\), size=\(([^)]*)\)", line)
    }
    assert len(lines) == len(user)
    for op in user:
        [line] = [line for line in lines if line.startswith(f"(OPERATOR: {op.name}(")]
        for values in op.user_conf.input.values():
            assert all(f"{name}:(sbp=(B), size=" in line for name in values.s)
    assert sizes[f"_{graph.name}_input.0.0_2/out"] == (2, 3, 8, 8) and sizes["m.conv.weight/out"] == (
        4,
        3,
        3,
        3,
    )
    assert sizes[f"{user[0].name}/out_0"] == sizes[f"{user[1].name}/out_0"] == (2, 4, 6, 6) and sizes[
        "m.fc.weight/out"
    ] == (2, 4)
    assert value(user[-1].user_conf.attr["float_operand"]) == 0.25 and value(
        user[-2].user_conf.attr["axis"]
    ) == [1]


def test_sizes_that_depend_on_values_are_minus_one():
    class Picked(nn.Graph):
        def build(self, x):
            picked = x[x[:, 0] > 0]
            return picked.t(), picked.reshape(-1)

    graph = Picked()
    graph(flow.tensor([[1.0, 2.0], [-1.0, 3.0], [2.0, 4.0]]))
    outs = [op.output_conf.blob_conf for op in graph._graph_proto.net.op if op.HasField("output_conf")]
    assert [list(b.shape.dim) for b in outs] == [[2, -1], [-1]] and outs[0].data_type == 2


def test_what_is_computed_again_is_under_the_scope_and_module_of_its_first_run():
    seen = []

    class Doubled(nn.Linear):
        def forward(self, x):
            scope = graph_build_util.scope_to_proto(scope_util.current_scope())
            seen.append((scope.module_name, scope.attr_name2attr_value["checkpointing"].at_bool))
            return super().forward(x).sin()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("aten")
            self.a, self.b = Doubled(3, 3), Doubled(3, 3)
            self.a.to(GraphModule).activation_checkpointing = self.b.to(
                GraphModule
            ).activation_checkpointing = True
            self.add_optimizer(flow.optim.SGD([*self.a.parameters(), *self.b.parameters()], lr=0.1))

        def build(self, x):
            loss = self.b(self.a(x)).sum()
            loss.backward()
            return loss

    graph = Train()
    graph(flow.ones(2, 3))
    assert (
        seen == [("a", True), ("b", True), ("b", True), ("a", True)]
        and scope_util.current_scope().parent is None
    )
    names = [op.name for op in graph._full_graph_proto.net.op if "Checkpointing-Fake-Fw" in op.name]
    assert names and all(n.split("Op_")[1][:2] in ("a-", "b-") for n in names), names


def test_a_training_graph_shows_what_checkpointing_computes_again():
    class Train(nn.Graph):
        def __init__(self, checkpointing):
            super().__init__()
            self.config.set_backend("aten")
            self.m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
            self.m.to(GraphModule).activation_checkpointing = checkpointing
            self.add_optimizer(flow.optim.SGD(self.m.parameters(), lr=0.1, momentum=0.9))

        def build(self, x):
            loss = self.m(x).sum()
            loss.backward()
            return loss

    def names(checkpointing):
        graph = Train(checkpointing)
        graph(flow.ones(2, 3)), graph(flow.ones(2, 3))
        return [op.name for op in graph._full_graph_proto.net.op]

    again = [n for n in names(True) if n.startswith("OneFlow-System-Checkpointing-Fake-Fw-Op_")]
    assert [n.split("_", 1)[1].rsplit("-", 1)[0] for n in again][-1] == "m.1-relu" and len(again) >= 3
    plain = names(False)
    assert not any("Checkpointing" in n for n in plain) and "optimizer0.m.0.weight.momentum_buffer" in plain


def test_text_format_of_protobuf_prints_a_message():
    text_format = pytest.importorskip("google.protobuf.text_format")
    empty = op_conf.FeedInputOpConf()
    assert empty.ListFields() == [] and text_format.MessageToString(empty) == ""
    conf = op_conf.FeedInputOpConf(in_0='a"b', out_0="out_0")
    assert text_format.MessageToString(conf) == str(conf)
    job = JobConfigProto(job_name="job")
    job.predict_conf.SetInParent()
    assert text_format.MessageToString(job).replace("predict_conf {\n}\n", "predict_conf {\n}\n") == str(job)


def test_a_message_class_has_the_descriptor_of_its_messages():
    descriptor = op_conf.FeedInputOpConf.DESCRIPTOR
    assert descriptor.full_name == "oneflow.FeedInputOpConf"
    assert [field.name for field in descriptor.fields] == ["in_0", "out_0"]
    assert descriptor == op_conf.FeedInputOpConf(in_0="x").DESCRIPTOR


def test_the_job_of_a_training_graph_names_the_variables_of_its_optimizer():
    """As OneFlow's own test of shared parameters reads them."""

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second
            self.add_optimizer(flow.optim.SGD([first.weight, first.bias, second.bias], lr=0.1))

        def build(self, x):
            loss = self.second(self.first(x)).sum()
            loss.backward()
            return loss

    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    graph = Train()
    graph(flow.ones(2, 2))
    [conf] = graph._graph_proto.job_conf.train_conf.optimizer_conf
    assert list(conf.variable_op_names) == ["first.weight", "first.bias", "second.bias"]


class Mul(nn.Graph):
    def build(self, x):
        return x.reshape(6) * 2.5


def test_text_format_prints_the_operators_of_a_graph():
    text_format = pytest.importorskip("google.protobuf.text_format")
    graph = Mul()
    graph.config.set_backend("aten")
    graph(flow.ones(2, 3))
    proto = graph._full_graph_proto
    assert text_format.MessageToString(proto).replace("\\'", "'") == str(proto)
