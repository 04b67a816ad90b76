"""680 calls recorded from OneFlow 0.9.0 (tests/golden/calls) replayed: equal, or a named difference.

KNOWN lists the calls that each row of the differences table explains. A call that is not listed must agree; a
listed call must differ.
"""

import importlib.util
import warnings
from pathlib import Path

import pytest
import torch

import oneflow as flow
from oneflow._tables.differences import DIFFERENCES

HERE = Path(__file__).resolve().parents[1] / "golden" / "calls"

KNOWN = {
    "int-neg-sign-square": "c004 c005 c012 c013 c014 c015 c016 c017",
    "mod-sign": "c018 c019 c021 c022 c023 c655 c656",
    "int-0d-float": "c020 c032 c050 c053 c058 c061 c067 c069 c072 c079 c083 c237 c242 c244 c249",
    "int-floordiv": "c026 c027 c028 c029 c653 c654 c657",
    "int-pow": "c033 c663 c664 c665",
    "bitwise-logical": "c036 c037 c040 c041 c044 c045 c659 c661 c662",
    "bool-arith": "c075 c648 c650",
    "aug-rebinding": "c089 c090 c091 c092 c093 c094 c095 c096 c097",
    "index-int32": "c118 c119 c120 c121 c122 c123 c124 c125 c126 c127 c128 c129 c130 c131 c132 c133 c134"
    " c135 c136"
    " c137 "
    "c146 c147 c148 c149 c207 c210 c222 c223 c224 c262 c263 c264",
    "tie-order": "c138 c139 c150",
    "reduce-dtypes": "c140 c141 c142 c216",
    "nan-minmax": "c143 c144 c145 c261",
    "norm-matrix": "c163",
    "normalize-eps": "c177",
    "where-scalar": "c212 c213 c215 c250 c251 c253",
    "linspace-int": "c255",
    "isclose-positional": "c268",
    "lgamma-prod-grad": "c379 c381 c382 c383 c493",
    "instancenorm-running": "c410 c411",
    "exceptions": "c499",
    "sgd-maximize": "c527",
    "param-group": "c612",
    "rng-streams": "c614 c615 c616 c617 c618 c619 c620 c621 c622 c623 c624 c625 c626 c627 c628 c629 c630"
    " c631 c632"
    " c633 c634 c635 "
    "c636 c637 c639 c640 c641",
    "int-clamp": "c644",
}
WHY = {key: id for id, keys in KNOWN.items() for key in keys.split()}
OLD_TORCH = (
    ("c497",) if tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 13) else ()
)  # mse_loss of integers


def load(name="replay"):
    spec = importlib.util.spec_from_file_location("oneflow_calls_replay", HERE / "replay.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPLAY = load()
INDEX, ARRAYS = REPLAY.load()
CASES = {rec["key"]: rec for rec in INDEX["cases"]}


def problems(key):
    rec = CASES[key]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = REPLAY.run(flow, rec, ARRAYS)
        except Exception as e:
            return [f"raised {type(e).__name__}: {str(e)[:160]}"]
        return REPLAY.compare(flow, rec["oneflow"], got, ARRAYS, INDEX["rtol"], INDEX["atol"])


@pytest.mark.parametrize("area", sorted({rec["area"] for rec in CASES.values()}))
def test_equal_to_oneflow(area, capsys):
    wrong = {}
    for key, rec in CASES.items():
        if rec["area"] == area and key not in WHY and key not in OLD_TORCH:
            deviations = problems(key)
            if deviations:
                wrong[f"{key} {rec['id']}"] = deviations[0]
    assert not wrong, wrong


@pytest.mark.parametrize("id", KNOWN)
def test_known_difference(id):
    assert id in DIFFERENCES, f"{id} is not a row of the differences table"
    equal = [key for key in KNOWN[id].split() if not problems(key)]
    assert not equal, f"no longer different, take them out of KNOWN[{id!r}]: {equal}"


def test_every_call_is_judged_once():
    assert len(CASES) == 680 and len(WHY) == sum(len(k.split()) for k in KNOWN.values())
    assert set(WHY) <= set(CASES)
