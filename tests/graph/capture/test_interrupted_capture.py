"""A KeyboardInterrupt at any time in a capture leaves torch, the model and the optimizer as they were."""

import builtins
import gc
import math
import signal
import sys
import threading

import pytest
import torch
from graph_cases import graph_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from oneflow._active import capturing

OWNERS = (
    torch,
    torch.Tensor,
    torch.nn.Parameter,
    torch.autograd,
    torch.random,
    torch.cuda,
    torch._VF,
    nn.RNNBase,
    FakeTensor,
    builtins,
    math,
)
LAZY = {"torch.any", "torch.cond", "torch.ctc_loss"}  # torch's own lazy names


def picture(model, optimizer):
    """The state that a capture changes while it runs."""
    names = {
        f"{owner.__name__}.{name}": value
        for owner in OWNERS
        for name, value in vars(owner).items()
        if callable(value) or isinstance(value, property)
    }
    return {
        **{name: id(value) for name, value in names.items() if name not in LAZY and "annotat" not in name},
        "global hooks": (
            len(torch_module._global_forward_hooks),
            len(torch_module._global_forward_pre_hooks),
            len(torch_optimizer._global_optimizer_pre_hooks),
        ),
        "modes": (
            len(_get_current_dispatch_mode_stack()),
            torch._C._len_torch_function_stack(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            gc.isenabled(),
        ),
        "capturing": capturing(),
        "training": [m.training for m in model.modules()],
        "gradients": [p.grad is None for p in model.parameters()],
        "options": repr([{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]),
        "attributes": [sorted(vars(m)) for m in model.modules()],
    }


@pytest.fixture(autouse=True)
def ctrl_c():
    """SIGINT raises KeyboardInterrupt; a process that was started in the background ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only"
)
def test_interrupt_leaves_nothing_changed():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(3, 4)

    def build(x):
        torch.Generator()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    def capture_interrupted_at(call):
        """Capture, and press Ctrl-C at the given call of a Python function. Return the number of calls."""
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event == "call"
            if event == "call" and calls == call:
                signal.raise_signal(signal.SIGINT)

        graph = graph_of(build, optimizer, model=model)
        gc.collect()  # Python drops an exception in a finalizer; earlier tests may have left such objects
        sys.setprofile(count)
        try:
            graph(x)
        finally:
            sys.setprofile(None)
        return calls

    capture_interrupted_at(None)
    total = capture_interrupted_at(None)
    before = picture(model, optimizer)
    for call in range(total // 20, total - total // 20, total // 20):  # some captures make a few calls less
        with pytest.raises(KeyboardInterrupt):
            capture_interrupted_at(call)
        after = picture(model, optimizer)
        assert {k: (v, after.get(k)) for k, v in before.items() if after.get(k) != v} == {}
    loss = build(x)
    assert type(loss) is torch.Tensor and torch.isfinite(loss)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_acts_at_the_next_operator_and_pressed_again_at_once(presses):
    reached = []

    def build(x):
        for press in range(presses):
            signal.raise_signal(signal.SIGINT)
            reached.append(press)
        y = x + 1
        reached.append("operator")
        return y

    with pytest.raises(KeyboardInterrupt):
        graph_of(build)(torch.ones(2))
    assert reached == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_the_last_operator_acts_at_the_end_of_the_capture():
    def build(x):
        y = x + 1
        signal.raise_signal(signal.SIGINT)
        return y

    with pytest.raises(KeyboardInterrupt):
        graph_of(build)(torch.ones(2))


def test_a_handler_of_the_user_stays_in_force():
    calls = []
    previous = signal.signal(signal.SIGINT, lambda *_: calls.append(capturing()))
    try:
        graph_of(lambda x: (signal.raise_signal(signal.SIGINT), x + 1)[1])(torch.ones(2))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert calls == [True]
