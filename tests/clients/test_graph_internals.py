"""What OneFlow's own test files ask of a graph beyond its API: scopes, sessions, jobs by hand, settings as messages."""
import oneflow as flow
import oneflow.framework.graph_build_util as graph_build_util
import oneflow.framework.scope_util as scope_util
import oneflow.framework.session_context as session_context
import oneflow.nn as nn
import pytest
from oneflow.core.job.job_conf_pb2 import JobConfigProto
from oneflow.core.operator import op_conf_pb2
from oneflow.framework import c_api_util
from oneflow.framework.multi_client_session import MultiClientSession
from oneflow.nn.graph import GraphModule, GraphTensor, Proxy

internal = flow._oneflow_internal


class Layer(nn.Module):
    def __init__(self, seen):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("shift", flow.zeros(2))
        self.seen = seen

    def forward(self, x):
        scope = scope_util.current_scope()
        proto, view = graph_build_util.scope_to_proto(scope), self.to(GraphModule)
        buffer = graph_build_util.scope_to_proto(self._buffers["shift"].to(GraphTensor).scope)
        self.seen.append((view.name_prefix + view.name, list(proto.scope_op_name_prefixes), proto.attr_name2attr_value["checkpointing"].WhichOneof("value"),
                          proto.attr_name2attr_value["pipeline_stage_id_hint"].at_int64, buffer.parent_scope_symbol_id == scope.symbol_id == view.scope.symbol_id,
                          internal.JobBuildAndInferCtx_GetCurrentJobName()))
        return self.fc(x.to(flow.float32)) + self.shift


class Net(nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.set_backend("aten")
        self.seen = []
        self.m = nn.Sequential(Layer(self.seen), Layer(self.seen))
        self.m[0].to(GraphModule).set_stage(3)
        self.m[1].to(GraphModule).activation_checkpointing = True
        self.m[1].to(GraphModule).set_stage(4)

    def build(self, x):
        assert graph_build_util.scope_to_proto(scope_util.current_scope()).session_id == session_context.GetDefaultSession().id
        assert graph_build_util.scope_to_proto(flow.current_scope()).symbol_id == scope_util.current_scope().symbol_id
        return self.m(x)


def test_a_module_sees_its_block_and_its_scope_in_forward():
    graph, outside = Net(), scope_util.current_scope()
    graph(flow.ones(1, 2))
    assert graph.seen == [("m.0", ["m.0"], None, 3, True, graph.name), ("m.1", ["m.1"], "at_bool", 4, True, graph.name)]
    assert scope_util.current_scope() is outside and flow.nn.Module.to is graph.m.to(nn.Module).__class__.to
    with pytest.raises(TypeError):
        graph.m.to(nn.Module).to(GraphModule)
    with pytest.raises(RuntimeError, match="no job"):
        internal.JobBuildAndInferCtx_GetCurrentJobName()


def test_the_scope_is_left_when_build_fails():
    class Broken(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = nn.Linear(2, 2)

        def build(self, x):
            return self.m(x[:, :1])

    outside = scope_util.current_scope()
    with pytest.raises(RuntimeError):
        Broken()(flow.ones(1, 2))
    assert scope_util.current_scope() is outside
    with pytest.raises(RuntimeError, match="no job"):
        internal.JobBuildAndInferCtx_GetCurrentJobName()


def test_containers_and_state_of_a_block_are_proxies():
    class Holder(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.BatchNorm1d(2)})

    block = Holder().m
    assert [(k, isinstance(v, Proxy)) for k, v in block.items()] == [("a", True), ("b", True)] and all(isinstance(v, Proxy) for v in block.values())
    assert isinstance(block["a"]._parameters["weight"], Proxy) and isinstance(block["b"]._buffers["running_mean"], Proxy)


def test_debug_settings_are_told_by_graph_and_block():
    graph = Net()
    view = graph.m.to(GraphModule)
    assert not graph._debug and not view._debug
    graph.debug(2, max_py_stack_depth=8)
    assert graph._debug and view._debug and view._debug_max_v_level == graph._debug_max_v_level == 2 and graph._debug_max_py_stack_depth == 8
    graph.debug(2, ranks=[1, 2])
    assert not graph._debug


def test_the_session_has_a_state():
    session = session_context.GetDefaultSession()
    assert isinstance(session, MultiClientSession) and isinstance(flow.nn.Graph()._session, MultiClientSession)
    session.TryInit()
    assert session.status is session.Status.INITED and session.is_running


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
            made = [internal.one.FeedInputOpExpr("in", op_conf_pb2.FeedInputOpConf(in_0="in_0", out_0="out_0"), ["in_0"], ["out_0"]),
                    internal.one.FeedVariableOpExpr("w", op_conf_pb2.FeedVariableOpConf(), ["in_0"], ["out_0"]),
                    internal.one.FetchOutputOpExpr("out", op_conf_pb2.FetchOutputOpConf(), ["in_0"], ["out_0"])]
            a = internal._C.dispatch_feed_input(made[0], x)
            w = flow._C.dispatch_feed_variable(made[1], flow.ones(3, 5), 0)
            y = flow._C.relu(flow._C.matmul(a, w))
            out = internal._C.dispatch_fetch_output(made[2], y)
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
            self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.WarmUpLR(optimizer, warmup_factor=0.5, warmup_iters=2))

    graph = Train()
    graph._filter_states(), graph._generate_config_proto()
    proto = graph._config_proto
    assert proto.num_gradient_accumulation_steps == 4 and proto.enable_auto_mixed_precision and proto.optimizer_placement_optimization_threshold == 8
    group = proto.train_conf.optimizer_conf[0]
    assert list(group.variable_op_names) == ["m.weight"] and group.base_learning_rate == 0.5 and group.lr_scheduler == "WarmUpLR"
    assert f'job_name: "{graph.name}"\ntrain_conf {{\n  optimizer_conf {{\n    variable_op_names: "m.weight"\n' in str(graph.config.proto)
    assert [(v.name, v.l2) for v in graph._variables_conf.values()] == [("m.weight", 0.25)]
    assert graph._optimization_conf_proto.collective_boxing_conf.enable_fusion is True


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
