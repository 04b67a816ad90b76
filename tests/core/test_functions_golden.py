"""Edge cases of functions and methods against values recorded from OneFlow 0.9.0
(tests/golden/functions.json).
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow._tables.differences import DIFFERENCES

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import functions_cases

RECORDED = json.loads((GOLDEN / "functions.json").read_text())

# case -> row of the differences table; strict: such a case must differ
KNOWN = {
    "flow.all(f(2, 3), dim=())": "reduce-dtypes",
    "flow.bincount(i(6, low=0), weights=i(6))": "reduce-dtypes",
    "flow.amax(f(0, 3), 0)": "empty-reduce",
    "flow.amax(f(2, 3), (0, 0))": "no-check",
    "flow.index_select(f(2, 3), 0, flow.tensor([2]))": "no-check",
    "f(2, 3).repeat_interleave(0)": "of-bugs",
    "flow.narrow(f(6), 0, -1, 1)": "of-bugs",
    "f(4, 6)[:, ::2].fill_(1)": "of-bugs",
    "F.layer_norm(f(2, 4), (4,), weight=f(4))": "of-bugs",
    "flow.softmax(flow.tensor([float('nan'), 1.0, 2.0]))": "nan-minmax",
    "(i(3) > 0) + True": "bool-arith",
    "flow.unique(i(6, low=0, high=2), 1)": "argument-kinds",
    "flow.tensor(f(2, 3).size(idx=0))": "hot-methods",
    "flow.tensor(flow.float32.bytes)": "hot-methods",
    "flow.Tensor(np.int64(3))": "tensor-of-number",
    "F.layer_norm(f(2, 4, dtype='float64'), (4,), f(4), f(4))": "norm-mixed",
    "flow.distributions.Categorical(logits=f(3)).logits": "categorical-logits",
    "flow.nn.Parameter(i(2))": "integer-parameter",
    "flow.hann_window(1)": "dtype-float-creation",
}


def problems(got, want, path=""):
    if isinstance(want, list):
        got = list(got)
        return (
            [f"{path}: {len(got)} results, recorded {len(want)}"]
            if len(got) != len(want)
            else [p for k, (g, w) in enumerate(zip(got, want)) for p in problems(g, w, f"{path}[{k}]")]
        )
    out = (
        []
        if str(got.dtype).split(".")[-1] == want["dtype"]
        else [f"{path}: dtype {got.dtype}, recorded {want['dtype']}"]
    )
    a = got if isinstance(got, np.ndarray) else got.detach().numpy()
    if list(a.shape) != want["shape"]:
        return [*out, f"{path}: shape {a.shape}, recorded {want['shape']}"]
    # float32 sums in another order, and 7 recorded decimals
    if not np.allclose(a.astype("float64").ravel(), want["values"], rtol=1e-5, atol=2e-6, equal_nan=True):
        out.append(f"{path}: {a.ravel()[:6]}, recorded {want['values'][:6]}")
    return out


def run(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = eval(case, functions_cases.names(flow))
        except Exception as error:
            return [f"raised {type(error).__name__}: {error}"]
        return problems(got, RECORDED[case])


@pytest.mark.parametrize("case", [c for c in functions_cases.CASES if RECORDED.get(c) is not None])
def test_case(case):
    actual = run(case)
    if case in KNOWN:
        assert KNOWN[case] in DIFFERENCES and actual, (
            f"no longer different: take it out of KNOWN ({KNOWN[case]})"
        )
    else:
        assert not actual


def test_every_case_is_recorded_and_runs():
    assert set(RECORDED) == set(functions_cases.CASES) and set(KNOWN) <= set(RECORDED)
    refused = [c for c, v in RECORDED.items() if v is None]
    assert len(refused) < 5
    for case in refused:  # here they work
        assert eval(case, functions_cases.names(flow)) is not None
    assert isinstance(flow.tensor([1]), torch.Tensor)
