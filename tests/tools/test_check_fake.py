"""The comparison of recorded results with those of kernels, on a share of torch's op_db."""

import dataclasses
import random

import check_fake
import pytest
import torch

from oneflow._graph.capture.results import frequent_results
from oneflow._graph.program.operators import facts_of

pytestmark = pytest.mark.slow
SEED = 20


@pytest.fixture(scope="module")
def op_db():
    from torch.testing._internal import common_methods_invocations  # it takes seconds

    return common_methods_invocations.op_db


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_share_of_the_operators_is_recorded_as_kernels_compute(op_db, dtype):
    comparison = check_fake.compare(random.Random(SEED).sample(op_db, 12), 2, SEED, dtype)
    assert comparison.compared > 100
    assert not comparison.differences, f"make check-fake finds more: {comparison.differences}"


def test_a_missing_row_of_the_table_is_found(op_db, monkeypatch):
    without_layout = lambda operator: dataclasses.replace(facts_of(operator), layout=None)
    monkeypatch.setattr(frequent_results, "facts_of", without_layout)
    frequent_results._applicable.cache_clear()
    try:
        losses = [entry for entry in op_db if entry.name == "nn.functional.mse_loss"]
        differences = check_fake.compare(losses, samples=2, seed=SEED).differences
    finally:
        frequent_results._applicable.cache_clear()
    assert list(differences) == ["aten.mse_loss_backward.default"], differences
