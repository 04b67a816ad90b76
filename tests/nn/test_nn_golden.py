"""nn, nn.functional and nn.init against values recorded from OneFlow 0.9.0 (golden/record_nn.py)."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

import oneflow as flow

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
RECORDED = json.loads((GOLDEN / "nn_recorded.json").read_text())
# cases whose result hangs on random numbers: only rows and statistics agree
STATISTICS = ("std())",)


def recorder():
    spec = importlib.util.spec_from_file_location("record_nn", GOLDEN / "record_nn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDER = recorder()
NAMES = RECORDER.vocabulary(flow)


def compare(got, want, rtol, path=""):
    if isinstance(want, dict):
        assert isinstance(got, dict), f"{path}: {got!r}, recorded a tensor"
        assert (got["dtype"], got["shape"]) == (want["dtype"], want["shape"]), path
        # one float32 kernel against another, sums of up to 54 terms
        np.testing.assert_allclose(got["value"], want["value"], rtol=rtol, atol=2e-6, err_msg=path)
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), path
        for i, (g, w) in enumerate(zip(got, want)):
            compare(g, w, rtol, f"{path}[{i}]")
    elif isinstance(want, float):
        assert got == pytest.approx(want, rel=rtol), path
    else:
        assert got == want, path


@pytest.mark.parametrize("case", RECORDER.CASES)
def test_equals_recorded_oneflow(case):
    assert case in RECORDED, "run golden/record_nn.py again"
    flow.manual_seed(0)
    rtol = 0.02 if case.endswith(STATISTICS) else 2e-5  # 0.02: the spread of 524288 random numbers
    compare(RECORDER.plain(flow, eval(case, dict(NAMES))), RECORDED[case], rtol, case)


def test_every_record_is_a_case():
    assert set(RECORDED) == set(RECORDER.CASES)
