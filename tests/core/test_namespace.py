"""How a name of oneflow resolves: rows, sub-modules, torch's own objects, the import hook."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
import textwrap

import pytest
import torch

import oneflow as flow
from oneflow import _bind, _torch_attributes


def run(code):
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_core_types_are_torchs():
    assert flow.Tensor is torch.Tensor
    assert flow.float32 is torch.float32 and flow.Size is torch.Size and flow.dtype is torch.dtype
    assert flow.nn.Module is torch.nn.Module and flow.nn.Parameter is torch.nn.Parameter
    assert flow.nn.Linear is torch.nn.Linear


def test_names_only_torch_has_fall_through():
    assert flow.vmap is torch.vmap
    assert flow.nn.TransformerEncoder is torch.nn.TransformerEncoder
    from oneflow.utils.data import IterableDataset

    assert IterableDataset is torch.utils.data.IterableDataset


@pytest.mark.parametrize(
    "path",
    [
        "nn.modules.conv",
        "nn.attention.flex_attention",
        "distributed.fsdp",
        "utils._pytree",
        "ao.quantization",
    ],
)
def test_import_of_a_torch_path_gives_torchs_module(path):
    ours, theirs = importlib.import_module(f"oneflow.{path}"), importlib.import_module(f"torch.{path}")
    assert ours is theirs
    assert theirs.__spec__.name == f"torch.{path}"


def test_a_module_imported_both_ways_is_one_module():
    out = run("""
        import oneflow.nn.modules.upsampling as a
        import torch.nn.modules.upsampling as b
        import sys
        print(a is b, a.__name__, b.__spec__.name)
    """)
    assert out.split() == ["True", "torch.nn.modules.upsampling", "torch.nn.modules.upsampling"]


def test_unknown_names_say_what_was_asked():
    with pytest.raises(AttributeError, match="'oneflow' has no attribute 'relux'.*did you mean 'relu'"):
        flow.relux
    with pytest.raises(AttributeError, match="oneflow.nn"):
        flow.nn.NoSuchLayer
    with pytest.raises(ModuleNotFoundError):
        import oneflow.no_such_module  # noqa: F401


@pytest.mark.parametrize(
    "module, typed, meant",
    [
        (flow, "abss", "abs"),
        (flow, "sni", "sin"),
        (flow, "Abs", "abs"),
        (flow, "cta", "cat"),
        (flow, "one", "ones"),
        (flow, "mn", "min"),
        (flow.nn, "lstm", "LSTM"),
        (flow.nn, "Lnear", "Linear"),
        (flow.optim, "Adma", "Adam"),
        (flow.nn.functional, "rellu", "relu"),
    ],
)
def test_a_short_name_with_a_slip_gets_a_suggestion(module, typed, meant):
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(module, typed)


@pytest.mark.parametrize("typed", ["zz", "qqq", "xyzzy"])
def test_a_name_like_no_other_gets_no_suggestion(typed):
    with pytest.raises(AttributeError, match="has it here$"):
        getattr(flow, typed)


def test_dir_lists_rows_and_torch():
    names = dir(flow)
    assert {"cat", "device", "vmap", "placement", "nn"} <= set(names)


def test_renamed_function_takes_both_spellings():
    a, b = torch.ones(2), torch.zeros(2)
    want = torch.cat([a, b])
    for got in (flow.cat([a, b], 0), flow.cat(inputs=[a, b], dim=0), flow.cat(tensors=[a, b], dim=0)):
        assert torch.equal(got, want)
    assert list(inspect.signature(flow.cat).parameters)[:2] == ["inputs", "dim"]
    with pytest.raises(TypeError, match="twice"):
        flow.cat(inputs=[a], tensors=[b])


def test_every_function_row_names_something_that_exists():
    from oneflow._tables.functions import FUNCTIONS

    for namespace in FUNCTIONS:
        for name, target in _bind.function_rows(namespace).items():
            assert _bind.import_target(target) is not None, (namespace, name)


def test_every_rename_row_names_a_torch_function():
    from oneflow._tables.renames import RENAMES

    for namespace, rows in RENAMES.items():
        _bind.rename_rows(namespace)
        for name, (path, spec) in rows.items():
            call = _bind.renamed(f"{namespace}.{name}", _bind.import_target(path), spec)
            assert inspect.signature(call).parameters, (namespace, name)


def test_the_binder_refuses_bad_rows():
    with pytest.raises(_bind.TableError, match="does not exist"):
        _bind.import_target("torch.no_such_function")

    class Fake:
        taken = 1

    with pytest.raises(_bind.TableError, match="torch's own"):
        _torch_attributes.add_attributes(Fake, {"taken": ("method", "_ops.core:get_dialect", "")})
    with pytest.raises(_bind.TableError, match="no such attribute"):
        _torch_attributes.add_attributes(Fake, {"missing": ("replace", "_ops.core:get_dialect", "")})


def test_device():
    assert flow.device("cuda") == torch.device("cuda:0") == flow.device("cuda", 0)
    assert flow.device("cpu") == torch.device("cpu") and flow.device("cpu").index is None
    assert (
        flow.device("cpu:0") == flow.device("cpu", 0) == flow.ones(1).device
        and flow.device("cpu", 1).index == 1
    )
    assert isinstance(torch.device("cpu"), flow.device)
    assert flow.device(flow.device("cuda:1")) == torch.device("cuda", 1)


def test_dialect_switches_its_rows_and_back():
    out = run("""
        import oneflow as flow, torch
        ours = flow.optim.AdamW
        flow.set_dialect("torch")
        assert flow.optim.AdamW is torch.optim.AdamW and flow.device is torch.device and flow.get_dialect() == "torch"
        assert flow.__version__ == torch.__version__
        flow.set_dialect("oneflow")
        assert flow.optim.AdamW is ours and flow.device is not torch.device
        try:
            flow.set_dialect("jax")
        except ValueError as e:
            print(e)
    """)  # noqa: E501
    assert "'jax'" in out
    out = subprocess.run(
        [sys.executable, "-c", "import oneflow, torch; print(oneflow.optim.AdamW is torch.optim.AdamW)"],
        capture_output=True,
        text=True,
        env={**__import__("os").environ, "ONEFLOW_DIALECT": "torch"},
    )
    assert out.stdout.strip() == "True", out.stderr


def test_every_dialect_row_exists_on_both_sides():
    from oneflow._tables.dialect import DIALECT

    for public, theirs in DIALECT.items():
        module, _, name = public.rpartition(".")
        assert hasattr(importlib.import_module(module), name), public
        assert _bind.import_target(theirs) is not None, theirs


def test_the_source_folder_refuses_to_be_imported():
    out = subprocess.run(
        [sys.executable, "-c", "import oneflow_compat"],
        capture_output=True,
        text=True,
        cwd=__import__("pathlib").Path(__file__).parents[2],
    )
    assert out.returncode == 1
    assert "imported as `oneflow`" in out.stderr.strip().splitlines()[-1]


def test_import_starts_nothing():
    out = run("""
        import os, threading, torch, sys
        before, threads = dict(os.environ), threading.active_count()
        loaded = set(sys.modules)
        import oneflow
        assert dict(os.environ) == before and threading.active_count() == threads
        assert not torch.cuda.is_initialized() and not torch.distributed.is_initialized()
        new = set(sys.modules) - loaded
        heavy = [m for m in new if m.startswith(("torch._dynamo", "torch._inductor", "torch.fx.experimental", "sympy", "transformers", "PIL", "oneflow._ops.creation", "oneflow.comm"))]
        print(heavy)
    """)  # noqa: E501
    assert out.strip() == "[]"


def test_reading_a_deprecated_name_of_torch_gives_no_warning():
    """A program that walks dir() reads torch.distributed.reduce_op, which warns when it is used."""
    out = run("""
        import warnings
        import oneflow as flow
        warnings.simplefilter("error")
        flow.distributed.__all__
        print(len([getattr(flow.distributed, name) for name in dir(flow.distributed)]) > 50)
    """)
    assert out.strip() == "True"


def test_modules_with_a_namesake_in_torch_have_its_public_names():
    lacking = {}
    for module_info in pkgutil.walk_packages(flow.__path__, "oneflow."):
        name = module_info.name.partition(".")[2]
        if any(part.startswith("_") for part in name.split(".")) or name == "distributed.launch":  # a command
            continue
        try:
            theirs = importlib.import_module(f"torch.{name}")
        except ModuleNotFoundError:
            continue
        ours = importlib.import_module(f"oneflow.{name}")
        lacking[name] = [n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)]
    assert {name for name, names in lacking.items() if names} == set() and len(lacking) > 30
