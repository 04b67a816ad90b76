import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "autotest"))

import pytest


@pytest.fixture(scope="module", autouse=True)
def torch_has_its_table():
    from oneflow_autotest.parity import samples

    if not samples.operators():
        pytest.skip("this torch has no table of operators in torch.testing._internal")
