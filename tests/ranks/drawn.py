"""Global autotests sample the same values on every rank, and their results accept global tensors.

python -m oneflow.distributed.launch --nproc_per_node 2 drawn.py
"""

import random as python_random

import oneflow as flow
from oneflow.test_utils.automated_test_util import (
    all_placement,
    all_sbp,
    autotest,
    globaltest,
    oneof,
    random,
    random_bool,
    random_tensor,
    torch,
)

python_random.seed(flow.env.get_rank())


@globaltest
def first(fail=False):
    if fail and flow.env.get_rank():
        raise AssertionError("on one rank only, before it draws")
    return [
        random(0, 1 << 30).to(int).value(),
        random(0.0, 1.0).to(float).value(),
        oneof(*range(1 << 20)).value(),
    ] + [random_bool().value() for _ in range(40)]


@globaltest
def second():
    return random(0, 1 << 30).to(int).value(), random_tensor(1, random(1, 1 << 16)).to_global(
        flow.placement.all("cpu"), flow.sbp.broadcast
    ).oneflow.shape[0]


def drawn():
    try:
        first(fail=True)
    except AssertionError:
        pass
    return first(), second()


got = drawn()
seen = [None, None]
flow.distributed.all_gather_object(seen, got)
assert seen[0] == seen[1], seen
assert seen[0][0][0] != seen[0][1][0]


@autotest(n=1)
def loss_with_global_weights(placement, sbp):
    weight = random_tensor(2, 4, 3, requires_grad=False).to_global(placement, sbp)
    x, y = (
        random_tensor(2, 4, 3, low=0.1, high=0.9, requires_grad=g).to_global(placement, sbp)
        for g in (True, False)
    )
    return torch.nn.BCELoss(weight=weight)(torch.sigmoid(x), y)


@globaltest
def losses():
    for placement in all_placement():
        for sbp in all_sbp(placement, max_dim=2):
            loss_with_global_weights(placement, sbp)


losses()
