"""autocast and gradient scaling, in OneFlow's and torch's call forms."""

import inspect

import pytest
import torch

import oneflow as flow
from oneflow.amp import GradScaler, StaticGradScaler, autocast, autocast_decorator


def product_dtype():
    a = flow.ones(2, 2)
    return (a @ a).dtype


def test_autocast_on_cpu_casts_only_with_a_dtype():
    with flow.autocast("cpu"):
        assert product_dtype() == flow.float32
    with autocast("cpu", dtype=flow.bfloat16):
        assert product_dtype() == flow.bfloat16
        with autocast("cpu", flow.bfloat16, False):
            assert product_dtype() == flow.float32
    with autocast(flow.device("cpu"), dtype=flow.bfloat16):
        assert product_dtype() == flow.bfloat16
    assert product_dtype() == flow.float32


def test_autocast_is_torchs_class_and_a_decorator():
    assert issubclass(autocast, torch.amp.autocast) and flow.autocast is autocast
    assert autocast("cpu", dtype=flow.bfloat16)(product_dtype)() == flow.bfloat16
    assert autocast_decorator(autocast("cpu", dtype=flow.bfloat16), product_dtype)() == flow.bfloat16
    assert flow.autocast_decorator is autocast_decorator
    assert list(inspect.signature(autocast).parameters) == [
        "device_type",
        "dtype",
        "enabled",
        "cache_enabled",
    ]


def test_grad_scaler_positions_of_both_libraries():
    assert list(inspect.signature(GradScaler).parameters)[:4] == [
        "init_scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
    ]
    ours = GradScaler(1024.0, 3.0, 0.25, 7)
    theirs = GradScaler("cpu", 1024.0, 3.0, 0.25, 7, True)
    for s in (
        ours,
        theirs,
        GradScaler(init_scale=1024, growth_factor=3.0, backoff_factor=0.25, growth_interval=7, device="cpu"),
    ):
        assert (s.get_scale(), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval()) == (
            1024.0,
            3.0,
            0.25,
            7,
        )
        assert s.is_enabled() and isinstance(s, torch.amp.GradScaler)
    assert GradScaler().get_scale() == 65536.0 and not GradScaler(enabled=False).is_enabled()
    with pytest.raises(TypeError, match="twice"):
        GradScaler(1.0, init_scale=2.0)
    with pytest.raises(TypeError, match="'speed'"):
        GradScaler(speed=2.0)
    with pytest.raises(TypeError, match="at most 4"):
        GradScaler(1.0, 2.0, 0.5, 7, True)


def train(scaler, grads, lr=1.0):
    p = flow.nn.Parameter(flow.zeros(1))
    o = flow.optim.SGD([p], lr=lr)
    seen = []
    for g in grads:
        o.zero_grad()
        scaler.scale((p * g).sum()).backward()
        scaler.step(o)
        scaler.update()
        seen.append((p.item(), scaler.get_scale()))
    return seen


def test_grad_scaler_in_an_eager_loop():
    seen = train(GradScaler(8.0, growth_interval=2, device="cpu"), [1.0, float("inf"), 1.0, 1.0])
    assert seen == [(-1.0, 8.0), (-1.0, 4.0), (-2.0, 4.0), (-3.0, 8.0)]


def test_static_scaler_skips_bad_steps_and_keeps_the_scale():
    scaler = StaticGradScaler(16.0)
    assert scaler.scale_factor == 16.0
    if scaler._device != "cpu":
        pytest.skip("a GPU is present: the scaler works there, this test on the CPU")
    assert train(scaler, [1.0, float("inf"), 1.0]) == [(-1.0, 16.0), (-1.0, 16.0), (-2.0, 16.0)]
    with pytest.raises(ValueError, match="must be positive"):
        StaticGradScaler(0)


def test_scaler_state_dict():
    a, b = GradScaler(8.0, device="cpu"), GradScaler(device="cpu")
    b.load_state_dict(a.state_dict())
    assert b.get_scale() == 8.0


def test_rest_is_torchs():
    assert flow.amp.custom_fwd is torch.amp.custom_fwd
    assert flow.is_autocast_enabled is torch.is_autocast_enabled
