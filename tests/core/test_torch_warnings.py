"""No warning of torch reaches a user who did nothing to cause it. Those of his own calls pass through."""

import subprocess
import sys

import pytest

from oneflow._upstream.versions import torch_is_before

PROGRAM = """
import warnings

warnings.simplefilter("error", FutureWarning)
warnings.simplefilter("error", DeprecationWarning)
import torch

import oneflow as flow

for module in (flow, flow.nn, flow.optim, flow.jit, flow.utils):
    for name in dir(module):
        getattr(module, name, None)
model = flow.nn.Sequential(flow.nn.Linear(4, 4), flow.nn.BatchNorm1d(4), flow.nn.ReLU())
optimizer = flow.optim.Adam(model.parameters(), lr=0.1)


class Step(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


graph = Step()
for size in (2, 2, 3):
    graph(torch.randn(size, 4))
flow.save(graph.state_dict(), FOLDER)
flow.load(FOLDER)
"""


def test_training_and_files_cause_no_warning_of_torch(tmp_path):
    code = PROGRAM.replace("FOLDER", repr(str(tmp_path / "state")))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(torch_is_before("2.14"), reason="torch warns since 2.14")
def test_script_warns_of_the_users_own_call_only():
    code = (
        "import warnings; import oneflow as flow\n"
        "def double(x: flow.Tensor): return x * 2\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    flow.jit.script(double)\n"
        "print(len([w for w in caught if w.category is FutureWarning]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "1\n", run.stderr
