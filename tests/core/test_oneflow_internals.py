"""Names, modules and internals that OneFlow's test harness and tests use."""

import importlib
import inspect
import pickle
import types

import pytest

import oneflow as flow
from oneflow._tables.tensor import TENSOR


@pytest.mark.parametrize("name", ["to_global", "to_local", "local_to_global", "global_to_global"])
def test_global_conversions_look_like_builtins(name):
    bound = getattr(flow.ones(2), name)
    assert (
        bound.__module__ is None
        and bound.__name__ == name
        and not inspect.ismethod(bound)
        and not inspect.isfunction(bound)
    )
    assert "placement" in inspect.signature(bound).parameters or name == "to_local"
    assert inspect.signature(getattr(flow.Tensor, name)).parameters["self"]


def test_every_addition_to_tensor_carries_its_name():
    named = {
        name: getattr(flow.Tensor, name)
        for name, (kind, _, _) in TENSOR.items()
        if kind in ("method", "builtin")
    }
    assert {name: (value.__name__, value.__qualname__) for name, value in named.items()} == {
        name: (name, f"Tensor.{name}") for name in named
    }
    assert pickle.loads(pickle.dumps(flow.Tensor.cast)) is flow.Tensor.cast


def test_boolean_environment_variables(monkeypatch):
    from oneflow.support.env_var_util import parse_boolean_from_env, string_to_bool

    assert [string_to_bool(text) for text in ("1", "TRUE", "yes", "On", "y", "0", "no", "")] == [True] * 5 + [
        False
    ] * 3
    monkeypatch.setenv("MY_SWITCH", "on")
    assert (
        parse_boolean_from_env("MY_SWITCH", False) is True
        and parse_boolean_from_env("MY_OTHER_SWITCH", True) is True
    )
    with pytest.raises(AssertionError):
        parse_boolean_from_env("MY_SWITCH", "no")


def test_raw_functions_are_a_module_of_the_internal_package():
    module = importlib.import_module("oneflow._oneflow_internal._C")
    assert (
        isinstance(module, types.ModuleType)
        and module is flow._oneflow_internal._C
        and module.relu is flow._C.relu
    )


def test_the_context_of_a_function_knows_whether_its_tensors_are_there():
    contexts = []

    class Double(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            contexts.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            assert ctx._is_data_valid()
            return grad * 2

    out = Double.apply(flow.ones(2, requires_grad=True))
    assert contexts[0]._is_data_valid()
    out.sum().backward()
    assert not contexts[0]._is_data_valid()


def test_cells_of_a_buffer_tell_their_shapes_and_dtypes():
    buffer = flow.tensor_to_tensor_buffer(flow.ones(2, 3, 4), 2)
    assert buffer._tensor_buffer_shapes_and_dtypes == ([(3, 4), (3, 4)], [flow.float32] * 2)


def test_packed_parameters_are_kept_with_the_module():
    linear = flow.nn.Linear(2, 2).make_contiguous_params_group()
    assert isinstance(linear.cpg, flow.nn.utils.parameters_grouping.ContiguousParamsGroup)
    assert linear.weight.data_ptr() == linear.cpg.grouped_parameters[0].data_ptr()


def test_profiler_events_are_equal_by_value():
    from oneflow.profiler.events import CustomEvent, CustomEventType, KernelEvent

    make = lambda time, kind=CustomEventType.Default: CustomEvent("a", time, kind)
    assert (
        make(1.0) == make(1.0)
        and make(1.0) != make(2.0)
        and make(1.0) != make(1.0, CustomEventType.CudaRuntime)
        and make(1.0) != 3
    )
    kernels = [KernelEvent("k", 1.0, 8, "(2,)"), KernelEvent("k", 1.0, 8, "(2,)")]
    assert kernels[0] == kernels[1]
    kernels[1].add_child(make(1.0))
    assert kernels[0] != kernels[1]


def test_the_current_stack_begins_with_the_caller():
    lines = flow._oneflow_internal.GetCurrentStack().splitlines()
    assert "test_the_current_stack_begins_with_the_caller" in lines[0] and "GetCurrentStack" in lines[1]


def test_a_session_sets_the_knobs_of_a_resource():
    from oneflow.nn.graph.multi_client_session import MultiClientSession

    session, before = MultiClientSession(None, 7), flow.boxing.nccl
    resource = types.SimpleNamespace(collective_boxing_conf=types.SimpleNamespace(nccl_num_streams=3))
    with pytest.raises(RuntimeError, match="open session"):
        session.update_resource_eagerly(resource)
    session.TryInit()
    try:
        session.update_resource_eagerly(resource)
        assert session.resource.collective_boxing_conf.nccl_num_streams == 3
    finally:
        before.set_stream_num(1)
