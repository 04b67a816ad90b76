"""Names that OneFlow's own tests and clients reach by deep paths: `oneflow._C` argument lists, framework, profiler, graph helpers."""

import importlib
import importlib.util
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow._tables.deep_paths import NAMES, PACKAGES, SAME_MODULES

C = flow._C


# --------------------------------------------------------------------------- oneflow._C
def test_pooling_operators_always_give_the_indices():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    for got in (
        C.max_pool2d(x, [2, 2]),
        C.max_pool2d(x, [2, 2], return_indices=False),
        C.adaptive_max_pool2d(x, [2, 2]),
    ):
        out, index = got
        assert (
            out.tolist() == [[[[5, 7], [13, 15]]]]
            and index.tolist() == [[[[5, 7], [13, 15]]]]
            and index.dtype == torch.int64
        )
    assert C.max_pool1d(x[0], [2], data_format="channels_first")[0].shape == (1, 4, 2)
    out = C.adaptive_avg_pool2d(x=x.movedim(1, -1), output_size=[2, 2], data_format="channels_last")
    assert out.flatten().tolist() == [2.5, 4.5, 10.5, 12.5] and out.shape == (1, 2, 2, 1)


def test_shapes_come_as_one_list():
    assert C.broadcast_shapes([(2,), (3, 1)]) == C.broadcast_shapes(shapes=[(2,), (3, 1)]) == (3, 2)


def test_argwhere_is_padded_and_counted():
    index, count = C.argwhere(torch.tensor([[1, 0], [1, 1]]))
    assert index.shape == (4, 2) and index.dtype == count.dtype == torch.int32 and count.tolist() == [3]
    assert index[:3].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert C.argwhere(x=torch.ones(1), dtype=torch.int64)[0].dtype == torch.int64


def test_unique_has_small_counts_and_two_orders_of_arguments():
    x = torch.tensor([3, 1, 3, 2])
    assert C.unique(x, True, torch.int64).tolist() == [1, 2, 3]
    values, inverse, counts = C.unique(x=x, sorted=True, return_inverse=True, return_counts=True)
    assert (
        inverse.tolist() == [2, 0, 2, 1]
        and counts.tolist() == [1, 1, 2]
        and inverse.dtype == counts.dtype == torch.int32
    )


def test_norms_are_those_of_linalg():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (
        C.norm(x, 1).item() == 6
        and C.norm(x, ord=1, dim=1).tolist() == [3, 7]
        and C.norm(x).item() == pytest.approx(30**0.5)
    )
    assert (
        C.vector_norm(input=x, ord=1).item() == 10
        and C.matrix_norm(x, "fro", [0, 1], False, dtype=torch.float64).dtype == torch.float64
    )


def test_arguments_that_have_other_names_in_oneflow():
    x = torch.arange(24.0).reshape(2, 3, 4)
    same = [
        (C.cosine_similarity(x=x, y=x), torch.cosine_similarity(x, x)),
        (C.prelu(x=-x, alpha=torch.full((3,), 0.5)), -x / 2),
        (C.margin_ranking_loss(x, x, x, 0.5, "mean"), torch.tensor(0.5)),
        (C.tensordot(x, x, dims_a=[0, 1], dims_b=[0, 1]), torch.tensordot(x, x, ([0, 1], [0, 1]))),
        (C.tensordot(a=x, b=torch.ones(4, 5), dims=1), x.sum(-1, keepdim=True).expand(2, 3, 5)),
        (C.reduce_nansum(input=x, dim=[1], keepdim=False), x.sum(1)),
        (C.expand(x=x[:1], shape=[2, 3, 4]), x[:1].expand(2, 3, 4)),
        (C.view(x=x, shape=[6, 4]), x.reshape(6, 4)),
        (C.fill_(**{"in": x.clone(), "value": 3.0}), torch.full_like(x, 3)),
        (C.bernoulli_(input=x.clone(), p=1.0), torch.ones_like(x)),
        (C.add(inputs=[x, x, x]), 3 * x),
        (C.fft(x, -1), torch.fft.fft(x)),
        (C.rfft(input=x, n=2, dim=0), torch.fft.rfft(x, 2, 0)),
        (C.embedding(x[0], torch.tensor([1, 2]), None), x[0, 1:3]),
        (C.depend(input=x, depends=[x]), x),
        (C.celu(x=-x, alpha=2.0, inplace=True), torch.celu(-x, 2.0)),
        (C.hardshrink(x=x, lambd=3.0, inplace=True), torch.nn.functional.hardshrink(x, 3.0)),
        (C.threshold(x=x, threshold=3.0, value=7.0), torch.threshold(x, 3.0, 7.0)),
        (C.less(5, x), x > 5),
        (C.transpose(x, 0, dim1=-1), x.transpose(0, -1)),
        (C.transpose(x, perm=[2, 0, 1]), x.permute(2, 0, 1)),
        (C.transpose(x, (2, 0, 1)), x.permute(2, 0, 1)),
        (C.to(x, other=x.double(), copy=False), x.double()),
        (C.einsum(equation="ijk,ijk->i", operands=[x, x]), (x * x).sum((1, 2))),
        (C.broadcast_tensors(tensors=[x[:1], x])[0], x[:1].expand(2, 3, 4)),
        (C.less_equal(5, x), x >= 5),
    ]
    for i, (got, want) in enumerate(same):
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=f"row {i}")
    rows = C.meshgrid([torch.arange(2), torch.arange(3)], "ij")
    assert rows[1].tolist() == [[0, 1, 2], [0, 1, 2]] and C.meshgrid(tensors=[torch.arange(2)])[
        0
    ].tolist() == [0, 1]
    assert (C.exponential_(x=x.clone(), lambd=1e6) < 1e-3).all()
    with pytest.raises(TypeError, match="dims_a"):
        C.tensordot(x, x)
    with pytest.raises(TypeError, match="embedding_renorm_"):
        C.embedding_renorm_(x[0], torch.tensor([0]))


def test_images_and_buffers_under_their_raw_names():
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    got = C.grid_sample(
        x, torch.zeros(1, 2, 2, 2), interpolation_mode="nearest", padding_mode="zeros", align_corners=False
    )
    assert got.flatten().tolist() == [10] * 4 + [26] * 4
    assert C.upsample(x, 2.0, 1.0, False, "nearest", "channels_first").shape == (1, 2, 8, 4)
    buffer = C.tensor_to_tensor_buffer(input=x, instance_dims=2)
    assert torch.equal(C.tensor_buffer_to_tensor(input=buffer, instance_shape=(4, 4), dtype=torch.float32), x)


def test_scatter_in_place_and_embedding_renorm():
    x, index = torch.zeros(2, 2), torch.zeros(1, 2, dtype=torch.int64)
    assert C.scatter(x, 0, index, 9.0, inplace=True) is x and x.tolist() == [[9, 9], [0, 0]]
    assert (
        C.scatter(x, 0, index, torch.ones(1, 2), reduce="add").tolist() == [[10, 10], [0, 0]] and x[0, 0] == 9
    )
    w = torch.tensor([[3.0, 4.0], [6.0, 8.0]], requires_grad=True)
    C.embedding_renorm_(w, torch.tensor([1]), 5.0, 2.0)
    torch.testing.assert_close(w.detach(), torch.tensor([[3.0, 4.0], [3.0, 4.0]]))


def test_batch_norm_in_steps_is_batch_norm():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    want = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, eps=1e-5)
    dy = torch.randn_like(want)
    (dx,) = torch.autograd.grad(want, x, dy)
    with torch.no_grad():
        mean, invstd = C.batch_norm_stats(x, 1, 1e-5)
        torch.testing.assert_close(C.batch_norm_elemt(x, weight, bias, mean, invstd, 1, 1e-5), want)
        sum_dy, sum_dy_xmu, dw, db = C.batch_norm_backward_reduce(dy, x, mean, invstd, 1)
        count = torch.tensor([20])
        torch.testing.assert_close(
            C.batch_norm_backward_elemt(dy, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count, 1), dx
        )
    torch.testing.assert_close(db, dy.sum((0, 2)))
    torch.testing.assert_close(dw, (dy * (want.detach() - bias[:, None]) / weight[:, None]).sum((0, 2)))


def test_attention_with_a_seed_repeats_its_mask_and_leaves_the_generator():
    q = torch.randn(1, 1, 4, 8)
    before = torch.get_rng_state()
    a, b = (C.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=7) for _ in range(2))
    assert torch.equal(a, b) and torch.equal(before, torch.get_rng_state())
    assert not torch.equal(a, C.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=8))


# --------------------------------------------------------------------------- old keywords
def test_save_takes_the_old_name_of_the_writing_rank(tmp_path):
    flow.save({"w": torch.ones(2)}, tmp_path / "a", consistent_dst_rank=0)
    assert torch.equal(flow.load(tmp_path / "a")["w"], torch.ones(2))
    with pytest.raises(TypeError, match="old name"):
        flow.save({}, tmp_path / "b", global_dst_rank=0, consistent_dst_rank=0)


# --------------------------------------------------------------------------- helpers of nn.Graph
def test_a_named_tree_shows_its_kinds_and_maps_whole_tuples():
    from oneflow.nn.graph.util import ArgsTree, add_indent, seq_to_func_return, sys_exc_error_msg

    args = ((1, [torch.ones(2), {"a": (4,)}]), {"k": None})
    nodes = dict(ArgsTree(args, True, "_G_0-input").iter_named_nodes())
    assert list(nodes) == ["_G_0-input_0", "_G_0-input.0_1", "_G_0-input.0.0_2", "_G_0-input.0.1_3", "_G_0-input.0.1.0_4", "_G_0-input.0.1.1_5",
                           "_G_0-input.0.1.1.0_a", "_G_0-input.0.1.1.0.0_7", "_G_0-input.1_8", "_G_0-input.1.0_k"]  # fmt: skip
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


def test_a_compiled_module_is_a_graph_over_the_same_parameters(no_registrations):
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
    from oneflow._graph.multi_client_session import GetDefaultSession
    from oneflow._graph.runtime_knobs import api_attrs_and_type, get_nested_attribute

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


def test_what_the_builder_alone_has_is_missing_with_a_reason():
    for name in ("CurJobBuildAndInferCtx_Complete", "JobBuildAndInferCtx_GetCurrentJobId"):
        with pytest.raises(AttributeError, match="C\\+\\+ runtime does not exist"):
            getattr(flow._oneflow_internal, name)


def test_rematerialisation_counts_nothing_and_evicts_nothing():
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


# --------------------------------------------------------------------------- readers and module paths
def test_raw_reader_gives_every_record_once_an_epoch(tmp_path):
    np.arange(15, dtype=np.float32).tofile(tmp_path / "a")
    np.arange(15, 24, dtype=np.float32).tofile(tmp_path / "b")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    plain = flow.nn.RawReader(files, (3,), flow.float32, 2, random_shuffle=False)
    got = torch.cat([plain() for _ in range(4)])
    assert torch.equal(got, torch.arange(24.0).reshape(8, 3)) and torch.equal(plain(), got[:2])
    mixed, again = (
        flow.nn.RawReader(files, (3,), flow.float32, 4, random_seed=3, shuffle_block_size=24)
        for _ in range(2)
    )
    epoch = torch.cat([mixed(), mixed()])
    assert torch.equal(epoch, torch.cat([again(), again()])) and not torch.equal(epoch, got)
    assert sorted(epoch[:, 0].tolist()) == got[:, 0].tolist() and all(
        epoch[i + 1, 0] - epoch[i, 0] == 3 for i in range(0, 8, 2)
    )
    with pytest.raises(ValueError, match="no multiple of a record's 16"):
        flow.nn.RawReader(files, (4,), flow.float32, 2)


def test_modules_that_are_only_deep_paths():
    import oneflow.nn.functional.deform_conv as deform_conv
    import oneflow.nn.functional.maxpool as maxpool
    import oneflow.nn.parallel.ddp as ddp
    from oneflow.special import special_ops

    assert (
        maxpool.max_pool2d is flow.nn.functional.max_pool2d
        and deform_conv.deform_conv2d is flow.nn.functional.deform_conv2d
    )
    assert special_ops.erf is flow.special.erf is torch.special.erf
    assert ddp.DistributedDataParallel is flow.nn.parallel.DistributedDataParallel


def test_old_path_of_the_bridge_to_torch():
    from oneflow.utils.torch import from_torch, to_torch

    assert from_torch is flow.utils.tensor.from_torch and to_torch is flow.utils.tensor.to_torch
    assert (
        flow.utils.data.__name__ == "oneflow.utils.data"
        and flow.utils.hooks.RemovableHandle is torch.utils.hooks.RemovableHandle
    )


def test_throttle_runs_a_command_and_gives_its_status(monkeypatch, tmp_path):
    import sys

    from oneflow.test_utils import throttle

    made = tmp_path / "made"
    run = [
        sys.executable,
        "-c",
        f"import os, sys; open({str(made)!r}, 'w').write(os.environ.get('CUDA_VISIBLE_DEVICES', 'none')); sys.exit(3)",
    ]
    monkeypatch.setattr(sys, "argv", ["throttle", "--with-cuda", "0", *run])
    assert throttle.main() == 3 and made.exists()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(sys, "argv", ["throttle", "--with-cuda", "1", *run])
    assert (
        throttle.main() == 3
        and [made.read_text()] == throttle.hash_cli2gpu(run)
        and made.read_text() in "0123"
    )
    monkeypatch.setattr(sys, "argv", ["throttle"])
    with pytest.raises(SystemExit, match="no command"):
        throttle.main()


def test_torchs_operators_under_the_name_of_our_functions():
    from oneflow._ops import OpOverload

    assert OpOverload is torch._ops.OpOverload


def test_modules_of_one_function():
    import oneflow.nn.modules.where
    from oneflow.asyncs.thread import Thread
    from oneflow.framework.distribute import split_sbp
    from oneflow.framework.function_util import FunctionConfig
    from oneflow.nn.modules import (
        as_tensor,
        einsum,
        grid_sample,
        linspace,
        math_ops,
        meshgrid,
        nms,
        norm,
        roll,
    )

    assert (
        einsum.einsum_op is flow.einsum
        and meshgrid.meshgrid_op is flow.meshgrid
        and nms.nms_op is flow.nms
        and roll.roll_op is flow.roll
    )
    assert (
        linspace.linspace_op is flow.linspace
        and as_tensor.as_tensor is flow.as_tensor
        and norm.norm is flow.norm
    )
    assert (
        math_ops.addmm_op is flow.addmm and math_ops.fmod_op is flow.fmod and math_ops.arcsin_op is flow.asin
    )
    assert grid_sample.grid_sample is flow.nn.functional.grid_sample and FunctionConfig is flow.FunctionConfig
    assert (
        flow.nn.modules.constant.new_ones_op is flow.new_ones
        and flow.nn.modules.arange.arange_op is flow.arange
    )  # without an import, as onefx has it
    assert (
        flow.nn.modules.where is sys.modules["oneflow.nn.modules.where"]
        and oneflow.nn.modules.where.where_op is flow.where
    )
    for module, row in NAMES.items():
        assert sorted(n for n in vars(importlib.import_module(module)) if not n.startswith("__")) == sorted(
            pair.split("=")[0] for pair in row.split()
        )
    assert (
        Thread is flow.asyncs.Thread
        and isinstance(flow.asyncs.thread, type)
        and split_sbp(1) == flow.sbp.split(1)
    )


@pytest.mark.parametrize("path", [*NAMES, *PACKAGES, *SAME_MODULES])
def test_a_module_without_a_file_is_imported_like_one_with_a_file(path):
    spec = importlib.util.find_spec(path)
    module = importlib.import_module(path)
    parent, _, name = path.rpartition(".")
    assert spec is not None and importlib.util.find_spec(path) is not None
    assert sys.modules[path] is module is getattr(sys.modules[parent], name)
    assert path not in SAME_MODULES or module is importlib.import_module(f"oneflow.{SAME_MODULES[path]}")


def test_source_files_of_0_9_that_define_functions_and_tensor_types_give_the_public_objects():
    from oneflow.framework.tensor_str import set_printoptions
    from oneflow.framework.type_tensor import FloatTensor, LongTensor
    from oneflow.nn.functional.functional_batch_norm import batch_norm
    from oneflow.nn.functional.functional_deform_conv import deform_conv2d
    from oneflow.nn.functional.functional_maxpool import adaptive_max_pool2d, max_pool2d
    from oneflow.nn.functional.functional_pad import pad

    assert set_printoptions is flow.set_printoptions
    assert FloatTensor is flow.FloatTensor and LongTensor is flow.LongTensor
    F = flow.nn.functional
    assert (batch_norm, pad, deform_conv2d) == (F.batch_norm, F.pad, F.deform_conv2d)
    assert (adaptive_max_pool2d, max_pool2d) == (F.adaptive_max_pool2d, F.max_pool2d)


def test_a_path_without_a_row_is_missing():
    assert importlib.util.find_spec("oneflow.core.no_such_module") is None
    with pytest.raises(AttributeError, match="'oneflow.core' has no attribute 'no_such_module'"):
        flow.core.no_such_module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("oneflow.core.no_such_module")


def test_classes_of_deep_paths_are_pickled():
    from oneflow.core.record import record_pb2

    assert pickle.loads(pickle.dumps(record_pb2.OFRecord)) is record_pb2.OFRecord
    old_pickle = b"coneflow.core.record.record_pb2\nOFRecord\n."  # written when the path had a file
    assert pickle.loads(old_pickle) is record_pb2.OFRecord


@pytest.mark.parametrize(
    "path, expected",
    [("framework.tensor", ""), ("utils.torch", ""), ("distributed.run", "usage: torch.distributed.run")],
)
def test_modules_without_a_file_run_as_programs(path, expected):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"oneflow.{path}", "--help"], capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stdout.startswith(expected), run.stderr


def test_interpolation_as_a_module():
    from oneflow.nn.modules.custom import Interpolate

    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    want = flow.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
    assert torch.equal(Interpolate(scale_factor=2.0, mode="bilinear", align_corners=True)(x), want)
    assert Interpolate(size=(4, 4))(x).shape == (1, 1, 4, 4)


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
        torch.float32, torch.float64, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.bool, torch.complex128]  # fmt: skip
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
