"""flowvision models give OneFlow's logits and gradients (golden/record_nn_flowvision.py, float64)."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

import oneflow as flow

pytest.importorskip("flowvision", reason="needs flowvision")
GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
RECORDED = json.loads((GOLDEN / "nn_flowvision.json").read_text())
SPEC = importlib.util.spec_from_file_location("record_nn_flowvision", GOLDEN / "record_nn_flowvision.py")
RECORDER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RECORDER)
QUICK = (
    "resnet18",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "ghostnet",
    "mobilevit_xx_small",
    "levit_128s",
    "poolformer_s12",
)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RECORDER.MODELS]
)
def test_same_logits_and_gradients(name):
    want, got = RECORDED[name], RECORDER.measure(flow, name, RECORDER.MODELS[name])
    assert (got["keys"], got["last_key"], got["grads"]) == (want["keys"], want["last_key"], want["grads"])
    # two float64 libraries, up to 100 layers; some models hold float32 constants (1e-6)
    np.testing.assert_allclose(
        got["logits"], want["logits"], rtol=1e-6, atol=1e-6 * max(map(abs, want["logits"]))
    )
    for key in ("input_grad", "first_grad", "all_grads"):
        assert got[key] == pytest.approx(want[key], rel=1e-6), key
