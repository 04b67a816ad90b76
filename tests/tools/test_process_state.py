"""The fixture that guards process-wide state sees each planted change and undoes it."""

import gc
import os
import signal
import sys

import pytest
import torch
from process_state import read_state, restore_state
from torch.utils._python_dispatch import TorchDispatchMode

import oneflow as flow
from oneflow import _active


def leave_a_capture_open():
    _active.STATE.recorder = object()


def register_a_global_hook():
    torch.nn.modules.module.register_module_forward_hook(lambda *_: None)


def change_an_option_of_the_compiler():
    import torch._dynamo.config as config

    config.recompile_limit = 3


CHANGES = {
    "dialect": lambda: flow.set_dialect("torch"),
    "a capture runs": leave_a_capture_open,
    "dispatch modes": lambda: TorchDispatchMode().__enter__(),
    "default device": lambda: torch.set_default_device("meta"),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "anomaly detection": lambda: torch.set_anomaly_enabled(True),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "threads of torch": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "precision of float32 matmul": lambda: torch.set_float32_matmul_precision("medium"),
    "torch.nn.modules.module._global_forward_hooks": register_a_global_hook,
    "torch._dynamo.config": change_an_option_of_the_compiler,
    "functions of torch": lambda: setattr(torch, "relu", torch.tanh),
    "functions of Tensor": lambda: setattr(torch.Tensor, "__iadd__", torch.Tensor.add),
    "functions of builtins": lambda: setattr(sys.modules["builtins"], "len", sum),
    "sys.path": lambda: sys.path.append("left behind"),
    "working folder": lambda: os.chdir("/"),
    "environment": lambda: os.environ.update(ONEFLOW_DIALECT="oneflow"),
    "garbage collection": gc.disable,
    "signal handlers": lambda: signal.signal(signal.SIGINT, lambda *_: None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_is_reported_and_undone(name):
    import torch._dynamo.config  # noqa: F401  its options are compared once it is loaded

    earlier = read_state()
    CHANGES[name]()
    changes = restore_state(earlier)
    assert any(change.startswith(f"{name}: ") for change in changes), changes
    assert restore_state(earlier) == []


def test_no_change_is_reported_if_nothing_changed():
    assert restore_state(read_state()) == []


def test_environment_report_shows_the_changed_variable_only(monkeypatch):
    earlier = read_state()
    monkeypatch.setenv("ONEFLOW_DIALECT", "torch")
    (change,) = [change for change in restore_state(earlier) if change.startswith("environment")]
    assert change == "environment: {'ONEFLOW_DIALECT': None} before, {'ONEFLOW_DIALECT': 'torch'} after"
