"""Graph internals that OneFlow's test files use: scopes, sessions, blocks."""

import pytest

import oneflow as flow
import oneflow.framework.graph_build_util as graph_build_util
import oneflow.framework.scope_util as scope_util
import oneflow.framework.session_context as session_context
import oneflow.nn as nn
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
        self.seen.append(
            (
                view.name_prefix + view.name,
                list(proto.scope_op_name_prefixes),
                proto.attr_name2attr_value["checkpointing"].WhichOneof("value"),
                proto.attr_name2attr_value["pipeline_stage_id_hint"].at_int64,
                buffer.parent_scope_symbol_id == scope.symbol_id == view.scope.symbol_id,
                internal.JobBuildAndInferCtx_GetCurrentJobName(),
            )
        )
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
        assert (
            graph_build_util.scope_to_proto(scope_util.current_scope()).session_id
            == session_context.GetDefaultSession().id
        )
        assert (
            graph_build_util.scope_to_proto(flow.current_scope()).symbol_id
            == scope_util.current_scope().symbol_id
        )
        return self.m(x)


def test_a_module_sees_its_block_and_its_scope_in_forward():
    graph, outside = Net(), scope_util.current_scope()
    graph(flow.ones(1, 2))
    assert graph.seen == [
        ("m.0", ["m.0"], None, 3, True, graph.name),
        ("m.1", ["m.1"], "at_bool", 4, True, graph.name),
    ]
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
    assert [(k, isinstance(v, Proxy)) for k, v in block.items()] == [("a", True), ("b", True)] and all(
        isinstance(v, Proxy) for v in block.values()
    )
    assert isinstance(block["a"]._parameters["weight"], Proxy) and isinstance(
        block["b"]._buffers["running_mean"], Proxy
    )


def test_debug_settings_are_told_by_graph_and_block():
    graph = Net()
    view = graph.m.to(GraphModule)
    assert not graph._debug and not view._debug
    graph.debug(2, max_py_stack_depth=8)
    assert (
        graph._debug
        and view._debug
        and view._debug_max_v_level == graph._debug_max_v_level == 2
        and graph._debug_max_py_stack_depth == 8
    )
    graph.debug(2, ranks=[1, 2])
    assert not graph._debug


def test_the_session_has_a_state():
    session = session_context.GetDefaultSession()
    assert isinstance(session, MultiClientSession) and isinstance(
        flow.nn.Graph()._session, MultiClientSession
    )
    session.TryInit()
    assert session.status is session.Status.INITED and session.is_running


class Infer(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.config.set_backend("aten")
        self.m = module

    def build(self, x):
        return self.m(x)


def test_forward_hooks_are_part_of_a_graph():
    model, seen = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), []
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[1].register_forward_hook(lambda module, args, out: (seen.append(1), out + 1)[1])
    graph, x = Infer(model), flow.randn(4, 3)
    for _ in range(2):
        assert flow.equal(graph(x), model(x))
    assert len(seen) == 4, "once in each call, in eager mode and of the graph"


def test_results_of_calls_share_no_buffer():
    class Sum(nn.Graph):
        def build(self, x):
            return x + 1

    graph = Sum()
    graph.config.set_outputs_buffer_size(1)
    results = [graph(flow.full((2,), float(i))) for i in range(3)]
    assert [r.tolist() for r in results] == [[1, 1], [2, 2], [3, 3]] and len(
        {r.data_ptr() for r in results}
    ) == 3
    with pytest.raises(AttributeError, match="_outputs_tensor_tuple_buffer"):
        graph._outputs_tensor_tuple_buffer
