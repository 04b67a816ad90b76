"""Helpers of the profiler, of infer_compiler, of framework and core, that OneFlow's own tests and clients
use.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import oneflow as flow


# --------------------------------------------------------------------------- helpers of nn.Graph
def test_a_named_tree_shows_its_kinds_and_maps_whole_tuples():
    from oneflow.nn.graph.util import ArgsTree, add_indent, seq_to_func_return, sys_exc_error_msg

    args = ((1, [torch.ones(2), {"a": (4,)}]), {"k": None})
    nodes = dict(ArgsTree(args, True, "_G_0-input").iter_named_nodes())
    assert list(nodes) == [
        "_G_0-input_0",
        "_G_0-input.0_1",
        "_G_0-input.0.0_2",
        "_G_0-input.0.1_3",
        "_G_0-input.0.1.0_4",
        "_G_0-input.0.1.1_5",
        "_G_0-input.0.1.1.0_a",
        "_G_0-input.0.1.1.0.0_7",
        "_G_0-input.1_8",
        "_G_0-input.1.0_k",
    ]
    assert (
        repr(nodes["_G_0-input_0"]) == "(name: 0, idx: 0, type: TUPLE)"
        and repr(nodes["_G_0-input.0.1.1.0_a"]) == "(name: a, idx: 6, type: TUPLE)"
    )
    assert (
        repr(nodes["_G_0-input.0.1.0_4"])
        == "(name: 4, idx: 4, type: TENSOR, value: tensor(..., size=(2,), dtype=oneflow.float32))"
    )
    assert repr(nodes["_G_0-input.1.0_k"]) == "(name: k, idx: 9, type: NONE, value: None)"
    assert ArgsTree(((1, 2), [3, (4, (5,))])).map_tuple_leaf(
        lambda v: sum(v) if isinstance(v, tuple) else -v
    ) == (3, [-3, (-4, 5)])
    with pytest.raises(AssertionError, match="gen_name"):
        ArgsTree((1,), True).map_tuple_leaf(len)
    assert (
        add_indent("a\nb\nc", 2) == "a\n  b\n  c"
        and seq_to_func_return((3, 4)) == (3, 4)
        and seq_to_func_return([3], True) == 3
    )
    assert sys_exc_error_msg() == ""
    try:
        1 / 0
    except ZeroDivisionError:
        assert sys_exc_error_msg() == "<class 'ZeroDivisionError'> division by zero"


# --------------------------------------------------------------------------- profiler.events
def recorded(shapes, cuda_time, time):
    child = {"type": 0, "name": "cu", "time": cuda_time, "custom_type": 1}
    return {
        "type": 1,
        "name": "conv",
        "time": time,
        "memory_size": 1024,
        "input_shapes": shapes,
        "children": [child],
    }


RECORDED = [{"type": 0, "name": "step", "time": t, "custom_type": 0} for t in (10.0, 30.0)] + [
    recorded("(1,2)", 40.0, 100.0),
    recorded("(1,3)", 60.0, 50.0),
]


def test_events_are_read_and_averaged_by_key():
    from oneflow.profiler.events import CustomEvent, CustomEventType, Events, KernelEvent

    events = Events(json.dumps(RECORDED))
    assert [type(e) for e in events] == [CustomEvent, CustomEvent, KernelEvent, KernelEvent]
    step, conv = events.key_averages()
    assert step.to_dict() == {
        "name": "step",
        "count": 2,
        "cpu_time": "20.000us",
        "cpu_time_total": "40.000us",
    }
    assert (conv.count, conv.cpu_time, conv.cuda_time_total, conv.cuda_time) == (
        2,
        75,
        100,
        50,
    ) and conv.children[0].cuda_time == 50
    assert conv.bandwidth == "0.019GB/s" and events[2].bandwidth == "0.024GB/s"
    assert len(events) == 4 and events[0].count == 1, "averaging leaves the events alone"
    assert [e.input_shapes for e in events.key_averages(group_by_input_shape=True)[1:]] == ["(1,2)", "(1,3)"]
    lines = str(events.key_averages()).splitlines()
    assert (
        lines[0].startswith("Name")
        and "GPU time total" in lines[0]
        and len(lines) == 5
        and lines[3].split()[:2] == ["conv", "150.000us"]
    )
    assert (
        step.key == ("step", CustomEventType.Default) and not step.has_cuda_time() and step.cuda_time is None
    )
    long = CustomEvent("x" * 100, 1.0, CustomEventType.CudaKernel)
    assert (
        len(long.name) == 55
        and long.name.endswith("...")
        and long.cpu_time is None
        and long.cuda_time_total == 1
    )
    assert (
        KernelEvent("relu", 5.0, 8, "").bandwidth == "-"
        and Events() == []
        and Events().table().startswith("Name")
    )
    told = KernelEvent("relu", 5.0, 8, {"shape": ["(2, 3)"], "attrs": ["alpha=1", "beta=2"]})
    assert (told.input_shapes, told.attributes, told.key) == ("(2, 3)", "alpha=1, beta=2", ("relu", "(2, 3)"))
    assert (
        Events([told]).key_averages(group_by_attributes=True)[0].to_dict()["attributes"] == "alpha=1, beta=2"
    )
    with pytest.raises(AssertionError, match="started"):
        events[2].update(KernelEvent("conv", 1.0, 8, ""))


# --------------------------------------------------------------------------- infer_compiler
class Square(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.lin(x) ** 2


class Cube(torch.nn.Module):
    def forward(self, x):
        return self.lin(x) ** 3


@pytest.fixture
def no_registrations():
    from oneflow.framework.infer_compiler import convert

    before = dict(convert._classes)
    yield
    convert._classes.clear()
    convert._classes.update(before)


def test_a_compiled_module_is_a_graph_over_its_parameters(no_registrations):
    from oneflow.framework.infer_compiler import compile_from_torch, register

    module, x = Square(), torch.randn(3, 2)
    fast = compile_from_torch(module)
    assert torch.equal(fast(x), module(x)) and not fast(x).requires_grad and isinstance(fast, Square)
    with torch.no_grad():
        module.lin.weight.zero_()
    assert (
        torch.equal(fast(x), module(x))
        and fast.lin is module.lin
        and isinstance(fast.get_graph(), flow.nn.Graph)
    )
    assert (
        list(fast.state_dict()) == ["lin.weight", "lin.bias"]
        and fast.eval().training is module.training is False
    )
    register(package_names=["anything"], torch2oflow_class_map={Square: Cube})
    outer = compile_from_torch(torch.nn.Sequential(module), use_graph=False)
    torch.testing.assert_close(outer(x), module.lin(x).detach() ** 3)
    assert outer.get_graph() is None and type(module) is Square
    with pytest.raises(ValueError, match="nonsense"):
        compile_from_torch(module, options={"nonsense": 1})
    with pytest.raises(TypeError, match="annotation"):
        register(torch2oflow_funcs=[lambda x: x])


def test_dual_modules_are_set_together():
    from oneflow.framework.infer_compiler.with_oneflow_compile import DualModule, DualModuleList

    a, b, x = Square(), Square(), torch.randn(3, 2)
    dual = DualModule(a, b)
    assert (
        torch.equal(dual(x), b(x)) and isinstance(dual.lin, DualModule) and dual.lin.oneflow_module is b.lin
    )
    dual.lin = torch.nn.Linear(2, 2)
    assert a.lin is b.lin and torch.equal(dual(x), a(x))
    dual.scale = 3
    assert (
        (a.scale, b.scale, dual.scale) == (3, 3, 3)
        and dual.eval() is dual
        and not a.training
        and not b.training
    )
    assert dual.double().lin.weight.dtype == torch.float64 == a.lin.weight.dtype
    first, second = (torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.ReLU()]) for _ in range(2))
    both = DualModuleList(first, second)
    both[1] = torch.nn.Tanh()
    assert (
        isinstance(both[1], DualModule)
        and type(first[1]) is type(second[1]) is torch.nn.Tanh
        and len(both) == 2
    )
    with pytest.raises(ValueError, match="2 and 1"):
        DualModuleList(first, second[:1])


# --------------------------------------------------------------------------- framework, core, memory
def test_knobs_are_found_by_their_fields():
    from oneflow.nn.graph.multi_client_session import GetDefaultSession
    from oneflow.nn.graph.runtime_knobs import api_attrs_and_type, get_nested_attribute

    assert len(api_attrs_and_type) == 17
    for api, (field, kind) in api_attrs_and_type.items():
        before = get_nested_attribute(GetDefaultSession().resource, field)
        value = not before if kind is bool else before + 5
        api(value)
        assert get_nested_attribute(GetDefaultSession().resource, field) == value, field
        api(before)


def test_import_oneflow_alone_reaches_the_messages():
    paths = [
        "nn.graph.job_message.job_conf.JobConfigProto",
        "nn.graph.job_message.op_conf.FeedInputOpConf",
        "core.record.record_pb2.OFRecord",
        "core.common.data_type_pb2.kFloat",
        "nn.graph.util.ArgsTree",
        "nn.graph.graph_config.GraphConfig",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "import oneflow;" + ";".join(f"oneflow.{p}" for p in paths)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="nosuch"):
        flow.core.nosuch


def test_messages_hold_fields_and_refuse_others():
    import oneflow.core.common.data_type_pb2 as data_type_pb2
    from oneflow._files.dtypes import PROTO
    from oneflow.nn.graph.job_message import op_conf
    from oneflow.nn.graph.job_message.job_conf import JobConfigProto

    conf = JobConfigProto(job_name='a "b"')
    conf.train_conf.loss_lbn.append("loss")
    conf.predict_conf.SetInParent()
    assert str(conf) == 'job_name: "a \\"b\\""\ntrain_conf {\n  loss_lbn: "loss"\n}\npredict_conf {\n}\n'
    assert conf.HasField("train_conf") and not conf.HasField("enable_cudnn") and conf.enable_cudnn is True
    copied = JobConfigProto()
    assert copied.concurrency_width == 128 and not copied.HasField("train_conf") and copied != conf
    copied.CopyFrom(conf)
    copied.train_conf.loss_lbn.append("other")
    assert conf.train_conf.loss_lbn == ["loss"]
    with pytest.raises(AttributeError, match="no field 'nosuch'"):
        conf.nosuch = 1
    with pytest.raises(TypeError, match="takes bool"):
        conf.enable_cudnn = "yes"
    assert [op_conf.kNone, op_conf.kTanH, op_conf.kSigmoid, op_conf.kRelu] == [0, 1, 2, 3]
    assert {k: getattr(data_type_pb2, k) for k in PROTO} == {
        k: row[0] for k, row in PROTO.items()
    } and data_type_pb2.kOFRecord == 8
    assert op_conf.FeedInputOpConf(in_0="x").in_0 == "x"


def test_names_of_the_builder_are_missing_with_a_reason():
    for name in ("CurJobBuildAndInferCtx_Complete", "JobBuildAndInferCtx_GetCurrentJobId"):
        with pytest.raises(AttributeError, match="C\\+\\+ runtime does not exist"):
            getattr(flow._oneflow_internal, name)


def test_rematerialisation_evicts_nothing():
    remat = flow._oneflow_internal.remat
    x = torch.ones(2)
    remat.clear_stats()
    assert remat.recomputation_num() == remat.eager_eviction_num() == remat.forced_eviction_num() == 0
    assert (
        remat.is_in_memory(x) and not remat.is_in_memory(x.to("meta")) and remat.disable_eviction(x) is None
    )
    with pytest.raises(NotImplementedError, match="remat-runtime"):
        remat.evict(x)
    with pytest.raises(NotImplementedError, match="remat-runtime"):
        remat.allocated_memory("cpu")


def test_docstring_examples_run_as_a_test():
    import types

    from oneflow.framework.unittest import check_multi_rank_docstr

    module = types.ModuleType("made_up", ">>> 1 + 1\n2\n")
    assert check_multi_rank_docstr(module).attempted == 1
    module.__doc__ = ">>> 1 + 1\n3\n"
    with pytest.raises(AssertionError, match="1 of 1 examples of made_up"):
        check_multi_rank_docstr(module)


def test_shared_memory_by_name():
    from oneflow.multiprocessing.shared_memory import SharedMemory

    block = SharedMemory(create=True, size=8)
    try:
        np.frombuffer(block.buf, np.int64)[:] = 7
        assert block.name.startswith("ofshm_") and block.size >= 8 and bytes(block.buf[:1]) == b"\x07"
    finally:
        block.close()
        block.unlink()
    with pytest.raises(ValueError):
        SharedMemory(create=True, size=0)


def test_a_parameter_travels_through_a_shared_block():
    import pickle

    from oneflow.multiprocessing import reductions

    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t(), requires_grad=False)
    rebuild, args = reductions.reduce_parameter(weight)
    got = rebuild(*pickle.loads(pickle.dumps(args)))
    assert isinstance(got, torch.nn.Parameter) and torch.equal(got, weight) and not got.requires_grad
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(args[0]))
    rebuild, args = reductions.reduce_parameter(torch.nn.Parameter(torch.empty(0, 2)))
    assert (
        rebuild(*args).shape == (0, 2)
        and reductions.reduce_tensor is torch.multiprocessing.reductions.reduce_tensor
    )


def test_throttle_runs_a_command_and_gives_its_status(monkeypatch, tmp_path):
    import sys

    from oneflow.test_utils import throttle

    output_file = tmp_path / "made"
    run = [
        sys.executable,
        "-c",
        (
            f"import os, sys; open({str(output_file)!r},"
            f" 'w').write(os.environ.get('CUDA_VISIBLE_DEVICES', 'none')); sys.exit(3)"
        ),
    ]
    monkeypatch.setattr(sys, "argv", ["throttle", "--with-cuda", "0", *run])
    assert throttle.main() == 3 and output_file.exists()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(sys, "argv", ["throttle", "--with-cuda", "1", *run])
    assert (
        throttle.main() == 3
        and [output_file.read_text()] == throttle.hash_cli2gpu(run)
        and output_file.read_text() in "0123"
    )
    monkeypatch.setattr(sys, "argv", ["throttle"])
    with pytest.raises(SystemExit, match="no command"):
        throttle.main()


def test_small_helpers_of_the_framework(monkeypatch):
    from oneflow.framework import check_point_v2, docstr, id_util
    from oneflow.framework.docstr import utils
    from oneflow.framework.dtype import convert_proto_dtype_to_oneflow_dtype as by_number
    from oneflow.framework.tensor import register_tensor_op
    from oneflow.framework.tensor_tuple_util import convert_to_tensor_tuple

    first, second = id_util.UniqueStr("a_"), id_util.UniqueStr("a_")
    assert first != second and first.startswith("a_") and second[2:].isdigit()
    x = torch.ones(2)
    monkeypatch.setattr(torch.Tensor, "plus_of_this_test", None, raising=False)  # removed at the end

    @register_tensor_op("plus_of_this_test")
    def plus(self, other):
        return self + other

    assert x.plus_of_this_test(2).tolist() == [3, 3]
    assert [by_number(i) for i in (2, 3, 5, 6, 9, 11, 12, 21)] == [
        torch.float32,
        torch.float64,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.bool,
        torch.complex128,
    ]
    for number in (0, 16, 99, -1):
        with pytest.raises(NotImplementedError, match=str(number)):
            by_number(number)
    state = check_point_v2.tensor_getstate(x.requires_grad_())
    assert state["data"].tolist() == [1, 1] and (state["dtype"], state["device"]) == (torch.float32, "cpu")
    assert (
        convert_to_tensor_tuple(None) == []
        and convert_to_tensor_tuple(x)[0] is x
        and convert_to_tensor_tuple((x, x))[1] is x
    )
    assert docstr.utils.add_docstr(plus, "text") is plus and plus.__doc__ == "text"
    with pytest.raises(RuntimeError, match="docstring already"):
        utils.add_docstr(plus, "more")
    assert utils.reset_docstr(plus, "more").__doc__ == "more"
