"""`from oneflow.nn import *` imports every public name, torch's and ours, although names are resolved
lazily.
"""

import subprocess
import sys

PROGRAM = """
import importlib
WANTED = {
    "oneflow.nn": "Linear MSELoss Dropout Graph Module functional init",
    "oneflow.nn.functional": "relu softmax sparse_softmax_cross_entropy conv2d interpolate",
    "oneflow.nn.init": "kaiming_normal_ calc_fan ones_",
    "oneflow": "relu cat zeros Tensor float32 nn",
}
for module, names in WANTED.items():
    found = {}
    exec(f"from {module} import *", found)
    missing = [n for n in names.split() if n not in found]
    assert not missing and "_bind" not in found, (module, missing)
    for n in names.split():
        assert found[n] is getattr(importlib.import_module(module), n), (module, n)
"""


def test_star_import_in_a_fresh_process():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
