"""Modules pickled by real OneFlow 0.9.0 (golden/record_nn_pickles.py) and modules saved here load and run."""

import base64
import copy
import json
import pathlib

import pytest
import torch

import oneflow as flow
from oneflow._files import modules

PICKLES = json.loads((pathlib.Path(__file__).parent.parent / "golden" / "nn_pickles.json").read_text())
X = torch.arange(128.0).reshape(2, 4, 4, 4) / 128
INPUTS = {
    "CrossEntropyLoss": (X, torch.zeros(2, 4, 4, dtype=torch.int32)),
    "NLLLoss": (X, torch.zeros(2, 4, 4, dtype=torch.int32)),
    "TripletMarginLoss": (X, X + 1, X),
    "MarginRankingLoss": (X, X + 1, X.sign()),
    "Linear": (torch.ones(1, 2),),
    "LSTM": (torch.ones(2, 3, 4),),
    "Embedding": (torch.tensor([1]),),
    "Fold": (torch.ones(1, 8, 4),),
    "AvgPool1d": (X[0],),
    "MaxPool1d": (X[0],),
    "AvgPool3d": (X[None],),
    "CosineSimilarity": (X, X + 1),
    "CTCLoss": None,
    "ModuleList": None,
    **dict.fromkeys(
        ("MSELoss", "L1Loss", "SmoothL1Loss", "KLDivLoss", "BCELoss", "BCEWithLogitsLoss"), (X, X.flip(0))
    ),
}


@pytest.mark.parametrize("code", PICKLES)
def test_module_of_real_oneflow(code, tmp_path):
    """It becomes the module that the same constructor call makes here: class, text, state names, result."""
    (tmp_path / "file").write_bytes(base64.b64decode(PICKLES[code]))
    loaded, constructed = flow.load(str(tmp_path / "file")), eval(code, {"nn": flow.nn})
    assert type(loaded) is type(constructed)
    assert list(loaded.state_dict()) == list(constructed.state_dict())
    inputs = INPUTS.get(type(constructed).__name__, (X,))
    if inputs is None:
        return
    constructed.load_state_dict(loaded.state_dict())
    got, want = loaded.eval()(*inputs), constructed.eval()(*inputs)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("external", [True, False])
def test_saved_here_and_loaded_safely(tmp_path, external):
    module = flow.nn.Sequential(
        flow.nn.Linear(2, 2),
        flow.nn.Dropout(0.1),
        flow.nn.AdaptiveAvgPool2d(1),
        flow.nn.PixelShuffle(None, 1, 2),
        flow.nn.CrossEntropyLoss(),
    )
    flow.save(module, str(tmp_path / "m"), save_as_external_data=external)
    loaded = flow.load(str(tmp_path / "m"))
    assert repr(loaded) == repr(module) and [type(a) for a in loaded] == [type(a) for a in module]
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), module.parameters()))


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_meaning_of_oneflow(copy_of):
    """A copy takes labels of int32, and terms of negative targets are 0, as the module that was copied."""
    x, labels = torch.randn(2, 3), torch.tensor([0, 2], dtype=torch.int32)
    for module, target in ((flow.nn.CrossEntropyLoss(), labels), (flow.nn.KLDivLoss(), x)):
        copied = copy_of(module)
        assert type(copied) is type(module) and copied is not module
        assert torch.equal(copied(x, target), module(x, target))


def test_torchs_layer_and_ours_start_from_templates_of_their_own():
    """The two classes are equal and have one hash."""
    theirs, ours = torch.nn.Dropout(0.3), flow.nn.Dropout(0.3)
    for first, second in ((theirs, ours), (ours, theirs)):
        modules._templates.clear()
        modules._template_of(type(first))
        assert set(modules._template_of(type(second))) == set(vars(second))
