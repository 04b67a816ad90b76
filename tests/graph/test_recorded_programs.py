"""Programs whose expected results come from OneFlow 0.9.0: tests/golden/graph.json, recorded by
tests/golden/record_graph.py.
"""

import json
import pathlib
import sys

import pytest

import oneflow as flow

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
from graph_programs import PROGRAMS

RECORDED = json.loads((GOLDEN / "graph.json").read_text())


def assert_equal(result, recorded):
    if isinstance(recorded, list):
        assert isinstance(result, list) and len(result) == len(recorded)
        for value, expected in zip(result, recorded):
            assert_equal(value, expected)
    elif isinstance(recorded, float):
        # OneFlow's log_softmax differs from torch's by 2e-6
        assert result == pytest.approx(recorded, rel=1e-5, abs=3e-6)
    else:
        assert result == recorded


def test_every_program_is_recorded():
    assert PROGRAMS.keys() == RECORDED.keys()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:graph .* writes in place")
def test_program_gives_oneflows_results(name):
    assert_equal(PROGRAMS[name](flow), RECORDED[name]["result"])
