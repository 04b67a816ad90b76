"""tests/tools/torch_changes.py finds each sort of change between two torches."""

import torch
from torch_changes import changes, description_of, kind_of, names_of_ledger

PYTHON = {"kind": "Python", "home": "torch.a", "signature": "x"}


def test_each_sort_of_change_is_found():
    old = dict.fromkeys(("removed", "c", "default", "moved", "same"), PYTHON)
    new = {
        "added": PYTHON,
        "c": {"kind": "C", "home": "torch.a"},
        "default": {**PYTHON, "signature": "x=1"},
        "moved": {**PYTHON, "home": "torch.b"},
        "same": PYTHON,
    }
    found = changes(old, new)
    assert found["removed"] == ["removed"] and found["added"] == ["added"]
    assert found["Python <-> C"] == ["c: Python -> C"]
    assert found["moved"] == ["moved: torch.a -> torch.b"]
    assert [line.split("\n")[0] for line in found["signature"]] == ["default"]


def test_functions_of_python_and_of_c_are_told_apart():
    assert kind_of(torch.nn.functional.gelu) == kind_of(torch.add) == "C"
    assert kind_of(torch.nn.functional.softmax) == "Python"
    assert kind_of(torch.Tensor) == "class"
    assert description_of(torch.nn.functional.softmax)["signature"].startswith("input, dim=None")


def test_names_of_the_ledger_are_described_also_if_their_value_is_none():
    assert torch.utils._device.CURRENT_DEVICE is None
    assert names_of_ledger()["torch.utils._device.CURRENT_DEVICE"]["kind"] == "value"
