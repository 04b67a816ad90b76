"""A package without its compiled operators says so once, where they would have been used."""

import os
import subprocess
import sys

from time_limits import seconds

PROGRAM = """
import warnings
import oneflow as flow
import oneflow.nn as nn

class Step(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 3)
        self.add_optimizer(flow.optim.AdamW(self.model.parameters()))
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss

with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    (flow.ones(2) + 1).relu()
    assert not shown, shown[0]
    for _ in range(2):
        step = Step()
        for _ in range(3):
            step(flow.ones(2, 4))
for warning in shown:
    print(warning.message)
"""


def warnings_of(tmp_path, **environment):
    variables = {"ONEFLOW_EXT_PATH": str(tmp_path / "_ext.so"), "ONEFLOW_CACHE_SIZE": "0", **environment}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds(300),
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_training_graph_warns_once_and_says_what_to_do(tmp_path):
    (warning,) = warnings_of(tmp_path)
    assert warning.startswith("oneflow's custom kernels are not used, plain torch is, which is slower")
    assert "`pip install torch .`; repeat `pip install .`" in warning


def test_nothing_is_said_if_the_user_switched_them_off(tmp_path):
    assert warnings_of(tmp_path, ONEFLOW_EXT="0") == []
