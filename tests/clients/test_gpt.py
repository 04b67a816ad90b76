"""A GPT training program written against torch, run as it is and with `import oneflow as torch`."""

import importlib.util
import pathlib
import re

import pytest
import torch

SOURCE = pathlib.Path(__file__).with_name("gpt_train.py")


def program(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def matmul_precision():
    """The program allows TF32, which is a setting of the process."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


# The program is written for earlier versions of torch, and calls torch.cuda.amp.GradScaler.
@pytest.mark.filterwarnings("ignore:`torch.cuda.amp.GradScaler:FutureWarning")
@pytest.mark.usefixtures("matmul_precision")
@pytest.mark.parametrize("flash", [True, False])
def test_same_losses_samples_and_weights(tmp_path, flash):
    text = SOURCE.read_text()
    text = re.sub(r"^import torch$", "import oneflow as torch", text, flags=re.M)
    text = re.sub(r"^(import|from) torch\b", r"\1 oneflow", text, flags=re.M)
    assert text.count("oneflow") >= 5 and not re.search(r"^(import|from) torch\b", text, re.M)
    ours = tmp_path / "gpt_on_oneflow.py"
    ours.write_text(text)
    got, want = program(ours), program(SOURCE)
    assert got.torch.__name__ == "oneflow" and want.torch is torch
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    got, want = got.main(str(tmp_path / "a"), flash=flash), want.main(str(tmp_path / "b"), flash=flash)
    assert got["losses"] == want["losses"] and got["sample"] == want["sample"]
    assert want["losses"][-1][0] < want["losses"][0][0] - 0.1, "it learns"
    assert got["weights"].keys() == want["weights"].keys()
    assert all(torch.equal(v, want["weights"][k]) for k, v in got["weights"].items())
