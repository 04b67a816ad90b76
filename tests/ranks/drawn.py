"""What a global test draws is the same on every rank: python -m oneflow.distributed.launch --nproc_per_node 2 drawn.py"""
import random as python_random

import oneflow as flow
from oneflow.test_utils.automated_test_util import globaltest, oneof, random, random_bool, random_tensor

python_random.seed(flow.env.get_rank())


@globaltest
def first(fail=False):
    if fail and flow.env.get_rank():
        raise AssertionError("on one rank only, before it draws")
    return [random(0, 1 << 30).to(int).value(), random(0.0, 1.0).to(float).value(), oneof(*range(1 << 20)).value()] + [random_bool().value() for _ in range(40)]


@globaltest
def second():
    return random(0, 1 << 30).to(int).value(), random_tensor(1, random(1, 1 << 16)).to_global(flow.placement.all("cpu"), flow.sbp.broadcast).oneflow.shape[0]


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
