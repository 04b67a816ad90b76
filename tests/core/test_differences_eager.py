"""Rows of _tables/differences/ about ties, splits and global tensors of one rank. The oracle is OneFlow 0.9.0
on a CPU.
"""

import pytest

import oneflow as flow

P = flow.placement("cpu", [0])


def global_ones(sbp):
    return flow.ones(4, 4).to_global(P, sbp)


@pytest.mark.parametrize("name, gradient", [("min", [0, 1, 0]), ("max", [1, 0, 0])])
def test_the_returned_index_takes_the_gradient_of_a_tie(name, gradient):
    values = [[2.0, 1.0, 1.0]] if name == "min" else [[3.0, 3.0, 0.0]]
    x = flow.tensor(values, requires_grad=True)
    getattr(x, name)(1)[0].sum().backward()
    assert x.grad.tolist() == [gradient]  # OneFlow: 0.5 for each of the two


@pytest.mark.parametrize("name, gradient", [("amin", [0, 0.5, 0.5]), ("amax", [0.5, 0.5, 0])])
def test_amin_and_amax_share_the_gradient_of_a_tie(name, gradient):
    x = flow.tensor([[2.0, 1.0, 1.0]] if name == "amin" else [[3.0, 3.0, 0.0]], requires_grad=True)
    getattr(flow, name)(x, 1).sum().backward()
    assert x.grad.tolist() == [gradient]


@pytest.mark.parametrize(
    "split",
    [
        lambda: flow.split(flow.tensor(3.0), 0),
        lambda: flow.tensor(3.0).split(1),
        lambda: flow.tensor(3.0).split([1]),
        lambda: flow.ones(3).split(0),
        lambda: flow.ones(3).split(-1),
    ],
)
def test_a_tensor_that_cannot_be_split_raises(split):
    with pytest.raises(RuntimeError, match="split"):
        split()


@pytest.mark.parametrize(
    "result, sbp",
    [
        (lambda s, b, p: s + b, flow.sbp.split(0)),  # OneFlow: broadcast
        (lambda s, b, p: s.t(), flow.sbp.split(0)),  # split(1)
        (lambda s, b, p: flow.relu(p), flow.sbp.partial_sum),  # split(0)
        (lambda s, b, p: s.sum(1), flow.sbp.partial_sum),  # split(0)
        (lambda s, b, p: p + b, flow.sbp.partial_sum),  # broadcast
        (lambda s, b, p: s @ b, flow.sbp.split(0)),  # the same
        (lambda s, b, p: p + p, flow.sbp.partial_sum),  # the same
    ],
)
def test_rules_of_results_on_one_rank(result, sbp):
    operands = [global_ones(r) for r in (flow.sbp.split(0), flow.sbp.broadcast, flow.sbp.partial_sum)]
    out = result(*operands)
    assert out.sbp == (sbp,)
    assert flow.equal(out.to_local(), result(*(flow.ones(4, 4) for _ in range(3))))


def test_a_local_tensor_joins_a_global_one_on_one_rank():
    x, local = global_ones(flow.sbp.split(0)), flow.full((4, 4), 2.0)
    for out in (x + local, local + x, x @ local, flow.where(x > 0, local, x)):  # OneFlow: RuntimeError
        assert out.is_global and out.sbp == (flow.sbp.split(0),)
    assert (local + x).to_local().tolist() == [[3.0] * 4] * 4
