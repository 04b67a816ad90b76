"""A share of `make fuzz-samples`, and self-tests that check its reports."""

import pytest
import torch

pytest.importorskip("expecttest", reason="needs the package expecttest: torch.testing._internal imports it")
import fuzz_samples
from fuzz_samples import Case, cases, difference, samples_of_torch, strided, verdicts

NAMES = [op.name for op in samples_of_torch.op_db]


def some_cases(*names):
    """Each layout, loss and form of the first sample of each operator."""
    return [c for name in names for c in cases(NAMES.index(name)) if c.sample == 0]


def test_samples_that_write_have_eager_bits_on_aten():
    group = some_cases("index_fill", "index_put", "scatter_add", "masked_fill", "addcmul")
    assert {c.in_place for c in group} == {True, False} and {c.layout for c in group} == {
        "contiguous",
        "strided",
    }
    said = verdicts(group, "aten")
    assert said and not any(said.values()), said


def test_a_planted_difference_is_found(monkeypatch):
    """The graph adds a little to the gradient of one case."""

    class Planted(fuzz_samples.CasesGraph):
        def build(self, x):
            outputs = super().build(x)
            self.cases[2].tensor0.grad.add_(1e-2)
            return outputs

    monkeypatch.setattr(fuzz_samples, "CasesGraph", Planted)
    group = some_cases("sin")
    said = verdicts(group, "aten")
    assert [bool(said[c]) for c in group] == [i == 2 for i in range(len(group))], said
    assert said[group[2]].startswith("tensor0: "), said


@pytest.mark.parametrize("error, said", [(1e-6, ""), (1e-2, "result 0: "), (float("nan"), "result 0: inf")])
def test_a_difference_is_rounding_if_float64_is_near(error, said):
    case = Case(NAMES.index("sin"), 0, "contiguous", "sum", False)
    expected = fuzz_samples.eager(case)
    actual = {**expected, "result 0": expected["result 0"] + error}
    assert difference(case, expected, actual, "inductor").startswith(said)
    assert difference(case, expected, actual, "aten").startswith("result 0: ")


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_strided_tensors_keep_their_values(shape):
    t = torch.arange(24.0)[: torch.Size(shape).numel()].view(shape)
    assert torch.equal(strided(t), t) and strided(t).data_ptr() != t.data_ptr()
    assert not strided(t).is_contiguous() or not shape
