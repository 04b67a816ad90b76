"""`from oneflow.nn import *` brings every public name, torch's and ours, though names are resolved lazily."""
import subprocess
import sys

import pytest


@pytest.mark.parametrize("module, names", [
    ("oneflow.nn", "Linear MSELoss Dropout Graph Module functional init"), ("oneflow.nn.functional", "relu softmax sparse_softmax_cross_entropy conv2d interpolate"),
    ("oneflow.nn.init", "kaiming_normal_ calc_fan ones_"), ("oneflow", "relu cat zeros Tensor float32 nn"),
])
def test_star_import_in_a_fresh_process(module, names):
    program = f"from {module} import *\nmissing = [n for n in {names.split()!r} if n not in globals()]\nassert not missing, missing\nassert '_bind' not in globals()\n"
    program += f"import {module} as m\nfor n in {names.split()!r}:\n    assert globals()[n] is getattr(m, n), n\n"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
