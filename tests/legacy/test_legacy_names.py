"""The names of each module, and the meaning of colliding names of `oneflow.*` inside and outside a job."""

import importlib
import inspect
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from legacy_jobs import result_of_job

import oneflow
import oneflow.compatible.single_client as single
from oneflow._tables.legacy.names import COLLIDING, SAME, all_names

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("name", [n for n in all_names()])
def test_every_name_resolves(name):
    assert getattr(single, name) is not None


def test_collisions_are_listed():
    """A top-level name that both APIs have is switched inside jobs, or in SAME with the reason."""
    listed = set(COLLIDING["oneflow"].split()) | set(SAME)
    for name in dir(single):
        if name.startswith("_") or name in listed:
            continue
        # torch._dynamo wraps torch.manual_seed when it is imported, before or after one of the two was looked
        # up
        ours, today = (
            inspect.unwrap(value) if inspect.isfunction(value) else value
            for value in (getattr(single, name), getattr(oneflow, name))
        )
        assert today is ours or isinstance(ours, torch.dtype), f"{name}: {today} is not the job-function form"


def test_nn_and_env_hand_on_to_the_job_functions():
    assert oneflow.nn.bias_add is single.nn.bias_add and oneflow.nn.conv2d is single.nn.conv2d
    assert oneflow.env.ctrl_port is single.env.ctrl_port
    assert oneflow.layers.dense is single.layers.dense and oneflow.optimizer.SGD is single.optimizer.SGD
    assert oneflow.math.relu is single.math.relu and oneflow.math.pi == pytest.approx(3.14159265)
    assert oneflow.math.sqrt(4.0) == 2.0 and oneflow.math.sqrt(torch.tensor(4.0)) == 2


def test_inside_a_job_the_old_forms_outside_todays():
    before = {name: getattr(oneflow, name) for name in COLLIDING["oneflow"].split()}
    seen = {}

    def body(x):
        flow = oneflow
        seen["t"] = flow.transpose(x, perm=[1, 0]).shape
        seen["modern"] = flow.transpose(x, 0, 1).shape
        seen["cat"] = flow.concat([x, x], axis=1, name="c").shape
        seen["cat_dim"] = flow.concat([x, x], dim=0).shape
        seen["gather"] = flow.gather(x, flow.constant(2, dtype=flow.int32, shape=(2,)), axis=1).shape
        seen["gather_modern"] = flow.gather(x, 1, flow.zeros((3, 2), dtype=flow.int64)).shape
        seen["zeros"] = flow.zeros(2, 3).shape
        seen["pad"] = flow.pad(x, [(0, 1), (1, 0)]).shape
        seen["pad_modern"] = flow.pad(x, [1, 1]).shape
        seen["mse"] = flow.nn.MSELoss(x, x, reduction="none").shape
        seen["mse_modern"] = isinstance(flow.nn.MSELoss(), torch.nn.Module)
        seen["random"] = flow.random.shuffle(x).shape
        seen["slice"] = flow.slice(x, [1, 0], [2, 4]).shape
        seen["rng"] = flow.random.fork_rng is torch.random.fork_rng
        return flow.squeeze(flow.reshape(x, shape=(1, 12)), axis=[0])

    assert result_of_job(body, X).shape == (12,)
    assert seen == dict(
        t=(4, 3),
        modern=(4, 3),
        cat=(3, 8),
        cat_dim=(6, 4),
        gather=(3, 2),
        gather_modern=(3, 2),
        zeros=(2, 3),
        pad=(4, 5),
        pad_modern=(3, 6),
        mse=(3, 4),
        mse_modern=True,
        random=(3, 4),
        slice=(2, 4),
        rng=True,
    )
    assert {name: getattr(oneflow, name) for name in before} == before
    with pytest.raises(TypeError):
        oneflow.concat(values=[torch.zeros(2)], axis=0)


def test_the_switch_is_undone_after_an_error():
    before = oneflow.reshape

    def body(x):
        assert oneflow.reshape is not before
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        result_of_job(body, X)
    assert oneflow.reshape is before


def test_a_name_of_neither_api_is_an_error():
    with pytest.raises(AttributeError, match="no_such"):
        single.no_such
    with pytest.raises(AttributeError):
        oneflow.nn.no_such


def test_sub_modules_import():
    for name in (
        "typing",
        "math",
        "nn",
        "nn.module",
        "optimizer.warmup",
        "experimental.unique_op",
        "serving.saved_model_builder",
        "unittest.env",
        "config.collective_boxing",
        "autograd.autograd_mode",
        "summary.summary_hparams",
        "deprecated.nn",
        "vm",
    ):
        assert isinstance(
            importlib.import_module(f"oneflow.compatible.single_client.{name}"), types.ModuleType
        )


@pytest.mark.parametrize(
    "name", "distribute layers optimizer data train regularizers scope config image keras.activations".split()
)
def test_modules_of_the_job_api_can_be_imported_below_oneflow(name):
    assert isinstance(importlib.import_module(f"oneflow.{name}"), types.ModuleType)


def test_importing_oneflow_loads_none_of_it():
    code = "import oneflow, sys; print([m for m in sys.modules if 'single_client.' in m])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
