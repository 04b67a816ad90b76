"""Names and paths that PyTorch programs import, in OneFlow's and in torch's dialect."""

import subprocess
import sys
import textwrap

import pytest
import torch

import oneflow as flow


@pytest.mark.parametrize(
    "path",
    [
        "ops",
        "classes",
        "backends.mkldnn",
        "backends.opt_einsum",
        "jit.frontend",
        "jit.annotations",
        "nn.qat.dynamic",
    ],
)
def test_modules_without_a_spec_and_below_files_of_ours_are_torchs(path):
    import importlib

    assert importlib.import_module(f"oneflow.{path}") is importlib.import_module(f"torch.{path}")


def test_names_of_files_both_libraries_have():
    from oneflow.utils.data.dataloader import IterDataPipe, default_convert
    from oneflow.utils.data.sampler import WeightedRandomSampler

    assert (
        WeightedRandomSampler is torch.utils.data.WeightedRandomSampler
        and default_convert([1]) == [1]
        and IterDataPipe
    )
    assert flow.__config__ is torch.__config__ and not hasattr(flow, "__all_of_it__")


def test_torchs_dialect_under_the_paths_of_files():
    code = """
    import oneflow
    oneflow.set_dialect("torch")
    import torch
    from oneflow.optim.optimizer import Optimizer
    from oneflow.optim.adamw import AdamW
    from oneflow.nn.utils.clip_grad import clip_grad_norm_
    from oneflow.utils.data.dataloader import DataLoader
    assert Optimizer is torch.optim.Optimizer and AdamW is torch.optim.AdamW and clip_grad_norm_ is torch.nn.utils.clip_grad_norm_
    assert DataLoader is torch.utils.data.DataLoader and oneflow.sort is torch.sort and oneflow.FloatTensor is torch.FloatTensor
    x = torch.ones(2, requires_grad=True)
    assert oneflow.autograd.grad(x.sum(), x, None, None, False, True)[0].tolist() == [1.0, 1.0]
    oneflow.set_dialect("oneflow")
    from oneflow.optim.optimizer import Optimizer
    assert Optimizer is not torch.optim.Optimizer and issubclass(oneflow.optim.AdamW, Optimizer)
    """  # noqa: E501
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_every_deep_row_of_the_dialect_is_an_object_oneflow_also_has_above():
    """A class switched under its public name is switched under the file that defines it."""
    from oneflow import _bind
    from oneflow._tables.dialect import DIALECT

    for public in DIALECT:
        space, _, name = public.rpartition(".")
        home = getattr(_bind.ours(space, name), "__module__", None)
        if (
            name.startswith("__")
            or not home
            or not home.startswith(("oneflow.optim.", "oneflow.utils.data."))
            or "lr_scheduler" in home
        ):
            continue
        assert f"{home}.{name}" in DIALECT or home == "oneflow.optim.swa_utils", public


def test_the_version_a_program_sees():
    import oneflow.mock_torch as mock

    assert flow.__version__ == "1.0.0"
    with mock.enable():
        import torch as seen

        assert seen is flow and seen.__version__ == torch.__version__
        assert (
            seen.version.__version__ == torch.__version__
            and seen.version.git_version == torch.version.git_version
        )
    assert flow.__version__ == flow.version.__version__ == "1.0.0"
    flow.mock_torch.enable(mock_version="1.2.3"), flow.mock_torch.disable()
    assert flow.__version__ == flow.version.__version__ == "1.0.0"
    with mock.enable(mock_version="1.2.3"):
        from torch.version import __version__ as version

        assert version == flow.__version__ == "1.2.3"


def test_the_scan_names_everything_the_dialect_switches():
    from oneflow import scan
    from oneflow._tables.dialect import DIALECT

    states = {name: scan.judge(name) for name in DIALECT}
    assert {state for state, _ in states.values()} == {"differs"}
    assert (
        "torch.optim.AdamW" in states["oneflow.optim.AdamW"][1]
        and "adamw-default-wd" in states["oneflow.optim.AdamW"][1]
    )
