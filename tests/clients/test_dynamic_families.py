"""Families of models train at five sizes each: bitwise equal to eager on aten, equal within rounding on
inductor.
"""

import pytest
from dynamic_families import FAMILIES, is_installed, is_right, train

QUICK = ("detector with anchors", "U-Net", "LSTM encoder and decoder", "conformer")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_a_family_has_eager_bits_at_every_size(name):
    if not is_installed(name):
        pytest.skip(f"{FAMILIES[name].package} is not installed")
    outcome = train(name, "aten")
    assert is_right(outcome, "aten"), outcome
    assert outcome.programs <= 3  # a static one, and one for each dimension that began to vary


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_family_trains_like_eager_at_every_size(name):
    if not is_installed(name):
        pytest.skip(f"{FAMILIES[name].package} is not installed")
    outcome = train(name, "inductor")
    assert is_right(outcome, "inductor"), outcome
    assert outcome.programs <= 3
