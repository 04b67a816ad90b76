"""oneflow._C against values recorded from OneFlow 0.9.0 (tests/golden/record_ops.py)."""

import json
import math
import sys
from pathlib import Path

import pytest

import oneflow

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
from ops_cases import CASES, flatten, helpers

RECORDED = json.loads((GOLDEN / "ops_c.json").read_text())
# Our dtypes where they differ from OneFlow's on purpose: torch's own functions answer in int64.
RTOL, ATOL = 2e-5, 2e-6  # both sides compute in float32, with sums in another order


@pytest.mark.parametrize("name,code", CASES, ids=[name for name, _ in CASES])
def test_matches_oneflow(name, code):
    actual = flatten(eval(code, helpers(oneflow)))
    expected = RECORDED[name]
    assert len(actual) == len(expected), f"{len(actual)} tensors, OneFlow has {len(expected)}"
    for i, ((dtype, shape, values), (dtype0, shape0, values0)) in enumerate(zip(actual, expected)):
        assert (dtype, shape) == (dtype0, shape0), f"result {i}"
        for a, b in zip(values, values0):
            same = a == b or (
                isinstance(a, float)
                and (math.isclose(a, b, rel_tol=RTOL, abs_tol=ATOL) or (math.isnan(a) and math.isnan(b)))
            )
            assert same, f"result {i}: {values} is not OneFlow's {values0}"


def test_every_case_is_recorded():
    assert [name for name, _ in CASES] == list(RECORDED)
