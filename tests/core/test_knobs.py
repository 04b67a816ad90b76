"""Runtime knobs: checked, remembered, listed; and the small runtime namespaces."""

import pytest
import torch

import oneflow as flow
from oneflow import _knobs
from oneflow._tables.knobs import KNOBS


@pytest.mark.parametrize("path", KNOBS)
def test_a_knob_checks_and_remembers(path):
    default, kind, why = KNOBS[path]
    setter = flow
    for part in path.split("."):
        setter = getattr(setter, part)
    value = {bool: not default, int: 7, str: "2GB"}[kind]
    setter(value)
    assert _knobs.read(path) == value and why
    if kind is not str:
        with pytest.raises(TypeError, match=path):
            setter("text")
    assert _knobs.read(path) == value
    setter(default)


def test_rdma_is_refused_by_name():
    assert flow.env.rdma_is_initialized() is False
    with pytest.raises(NotImplementedError, match="rdma"):
        flow.env.init_rdma()


def test_sizes_of_remat():
    assert (
        flow.remat.parse_size("2GB") == 2 << 30
        and flow.remat.parse_size(100) == 100
        and flow.remat.parse_size("1.5 kb") == 1536
    )
    with pytest.raises(ValueError, match="'lots'"):
        flow.remat.parse_size("lots")
    with pytest.raises(ValueError):
        flow.remat.set_budget("lots")


def test_profiler_ranges_show_up():
    with flow.profiler.profile(record_attrs=True) as prof:
        flow.profiler.range_push("my_region")
        torch.ones(2) + 1
        flow.profiler.range_pop()
    assert "my_region" in [e.key for e in prof.key_averages(group_by_attributes=True)]
    with pytest.raises(RuntimeError, match="range_push"):
        flow.profiler.range_pop()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("name", ["profiler_start", "profiler_stop"])
def test_the_cuda_profiler_is_a_warning_without_cuda(name):
    with pytest.warns(UserWarning, match=f"{name}.*no CUDA device"):
        assert getattr(flow.profiler, name)() is None


def test_what_clients_ask_of_the_internal_module():
    inside = flow._oneflow_internal
    with flow.profiler.profile() as prof:
        inside.profiler.RangePush("iteration")
        flow.ones(2) + 1
        inside.profiler.RangePop()
    assert "iteration" in {event.name for event in prof.key_averages()}
    assert (inside.GetRank(), inside.GetLocalRank(), inside.GetWorldSize(), inside.GetNodeSize()) == (
        0,
        0,
        1,
        1,
    )
    assert (
        inside.EmptyCache() is None
        and inside._C.matmul is flow._C.matmul
        and inside.placement is flow.placement
    )
    with pytest.raises(AttributeError, match="nothing_such"):
        inside.nothing_such


def test_no_library_is_loaded_for_an_empty_name(tmp_path):
    assert flow.utils.load_library("") is None
    with pytest.raises(OSError):
        flow.utils.load_library(str(tmp_path / "none.so"))


def test_averages_of_the_profiler_are_oneflows_events_too():
    from oneflow.profiler.events import CustomEvent, KernelEvent

    x = torch.ones(2, 3, requires_grad=True)
    with flow.profiler.profile(activities=[flow.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        with flow.profiler.record_function("forward"):
            for _ in range(2):
                y = torch.matmul(x, torch.ones(3, 4)).relu()
        y.sum().backward()
    events = {
        (e.name, getattr(e, "input_shapes", None) if isinstance(e, KernelEvent) else None): e
        for e in prof.key_averages(group_by_input_shape=True)
    }
    product, ours = events["matmul", "(2,3), (3,4)"], events["forward", None]
    assert (
        isinstance(product, KernelEvent)
        and product.count >= 2
        and product.cpu_time_total > 0
        and not isinstance(product, CustomEvent)
    )
    assert (
        isinstance(ours, CustomEvent)
        and ours.count == 1
        and ours.cpu_time > 0
        and events["relu_grad", "(2,4), (2,4)"].count == 1
    )
    assert "aten::matmul" in prof.key_averages().table(sort_by="cpu_time_total")


def test_async_threads_run_in_place_on_the_cpu():
    with flow.asyncs.thread(flow.asyncs.Thread()):
        x = torch.ones(2) * 3
    assert x.tolist() == [3, 3]
    with pytest.raises(TypeError, match="Thread"):
        flow.asyncs.thread(None)


def test_sysconfig_describes_torchs_build():
    assert flow.sysconfig.with_enterprise() is False
    assert flow.sysconfig.with_cuda() == (torch.version.cuda is not None)
    assert (
        any(f.startswith("-I") for f in flow.sysconfig.get_compile_flags())
        and "-ltorch" in flow.sysconfig.get_link_flags()
    )
    version = flow.sysconfig.get_cuda_version()
    assert (
        version == 0
        if torch.version.cuda is None
        else version // 1000 == int(torch.version.cuda.split(".")[0])
    )


def test_deep_paths_name_the_public_objects():
    from oneflow.framework.balanced_splitter import BalancedRanges
    from oneflow.framework.dtype import (
        convert_numpy_dtype_to_oneflow_dtype,
        convert_oneflow_dtype_to_numpy_dtype,
    )
    from oneflow.framework.tensor import Tensor

    assert Tensor is torch.Tensor and list(BalancedRanges(10, 3)) == [(0, 4), (4, 7), (7, 10)]
    import numpy as np

    assert (
        convert_oneflow_dtype_to_numpy_dtype(flow.float32) is np.float32
        and convert_numpy_dtype_to_oneflow_dtype(np.int8) is flow.int8
    )
    with pytest.raises(NotImplementedError, match="bfloat16"):
        convert_oneflow_dtype_to_numpy_dtype(flow.bfloat16)
    test_api = flow._oneflow_internal.test_api
    assert test_api.divide(6, 2) == 3.0 and test_api.throw_if_zero(2) is None
    for fails in (
        lambda: test_api.divide(1, 0),
        lambda: test_api.throw_if_zero(0),
        lambda: flow.ones(2)[3],
        lambda: flow.nn.BCELoss()(flow.ones(2), flow.ones(3)),
    ):
        with pytest.raises(flow._oneflow_internal.exception.Exception):
            fails()


def test_cudnn_switches_reach_torch():
    cudnn = flow.backends.cudnn
    before = torch.backends.cudnn.benchmark
    try:
        for value in (True, False):
            cudnn.benchmark = value
            assert torch.backends.cudnn.benchmark is value and cudnn.benchmark is value
    finally:
        torch.backends.cudnn.benchmark = before
    assert "deterministic" in dir(cudnn) and cudnn.is_available() == torch.backends.cudnn.is_available()
    assert flow.backends.cuda.matmul is torch.backends.cuda.matmul
