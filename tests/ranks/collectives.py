"""Every collective of flow.comm on two ranks, without warnings: python -m oneflow.distributed.launch
--nproc_per_node 2 collectives.py
"""

import warnings

import torch
from torch.distributed import _functional_collectives as functional_collectives

import oneflow as flow

warnings.simplefilter("error")
RANK, comm = flow.env.get_rank(), flow.comm
OTHER = 1 - RANK


def of(*values):
    return flow.tensor(values)


def each(tensors):
    return [t.tolist() for t in tensors]


x = of(RANK + 1.0)
comm.all_reduce(x)
assert x.tolist() == [3.0]
parts = [flow.zeros(2), flow.zeros(2)]
comm.all_gather(parts, flow.full((2,), float(RANK)))
assert each(parts) == [[0, 0], [1, 1]]
whole, own = flow.empty(4), flow.empty(2)
for gather, scatter in (
    (comm.all_gather_into_tensor, comm.reduce_scatter_tensor),
    (flow._C.local_all_gather, flow._C.local_reduce_scatter),
):
    gather(whole.zero_(), flow.full((2,), float(RANK)))
    assert whole.tolist() == [0, 0, 1, 1]
    scatter(own.zero_(), flow.arange(4.0))
    assert own.tolist() == [4.0 * RANK, 4.0 * RANK + 2]
comm.reduce_scatter(own, [of(1.0, 1.0), of(2.0, 2.0)])
assert own.tolist() == [2.0 * (RANK + 1)] * 2
parts = [flow.zeros(1), flow.zeros(1)]
comm.all_to_all(parts, [of(2.0 * RANK), of(2.0 * RANK + 1)])
assert each(parts) == [[RANK], [RANK + 2]]
x = of(RANK)
comm.broadcast(x, 1)
assert x.tolist() == [1]
x = of(RANK + 1.0)
comm.reduce(x, 1)
assert RANK == 0 or x.tolist() == [3.0]
comm.gather(of(float(RANK)), parts if RANK == 1 else None, dst=1)
assert RANK == 0 or each(parts) == [[0], [1]]
comm.scatter(x, [of(5.0), of(6.0)] if RANK == 0 else None, src=0)
assert x.tolist() == [5.0 + RANK]
x = flow.arange(6).reshape(2, 3)[:, RANK:]  # a view, whose shape and dtype travel first
if RANK == 0:
    comm.send(x, OTHER)
    got = comm.recv(OTHER)
else:
    got = comm.recv(OTHER, out=flow.empty(2, 3, dtype=flow.int64))
    comm.send(x, OTHER)
assert got.dtype == flow.int64 and got.tolist() == [[0, 1, 2][OTHER:], [3, 4, 5][OTHER:]]
if RANK == 0:
    comm.send(of(1.5, 2.5), 1, send_meta=False)
    comm.send(of(3.5), 1, send_meta=False)
    comm.send(of(3.5), 1)
else:
    assert comm.recv(0, shape=(2,), dtype=flow.float32, device="cpu").tolist() == [1.5, 2.5]
    out = flow.zeros(1)
    assert comm.recv(0, (1,), flow.float32, "cpu", out=out) is out and out.tolist() == [3.5]
    try:
        comm.recv(0, out=flow.zeros(2))
        raise AssertionError("received into a tensor of another shape")
    except RuntimeError as error:
        # it is received all the same: the next call gets the next tensor
        assert "(1,)" in str(error) and "(2,)" in str(error)
comm.barrier()

# views: memory between their elements is neither sent nor written; a rank may use a column-major tensor
table = (flow.arange(6.0) + 10 * RANK).reshape(2, 3)
comm.all_reduce(table[:, 1:2])
assert table.tolist() == [[10 * RANK, 12, 10 * RANK + 2], [10 * RANK + 3, 18, 10 * RANK + 5]]
for call, expected in (
    (comm.all_reduce, [[10, 16], [12, 18], [14, 20]]),
    (lambda t: comm.broadcast(t, 1), [[10, 13], [11, 14], [12, 15]]),
):
    x = (flow.arange(6) + 10 * RANK).reshape(2, 3).t()
    x = x.contiguous() if RANK else x
    call(x)
    assert x.tolist() == expected
table = flow.arange(6).reshape(3, 2) * (RANK + 1)
left, right = table[:, 0], table[:, 1]
own, parts = flow.zeros(3, 2, dtype=flow.int64), list(flow.zeros(3, 2, dtype=flow.int64).unbind(1))
comm.scatter(own[:, 0], [left, right] if RANK == 0 else None, src=0)
assert own.tolist() == [[RANK, 0], [RANK + 2, 0], [RANK + 4, 0]]
comm.reduce_scatter(own[:, 1], [left, right])
assert own[:, 1].tolist() == [3 * RANK, 3 * RANK + 6, 3 * RANK + 12]
for call in (
    comm.all_gather,
    lambda received, t: comm.gather(t, received if RANK == 0 else None, dst=0),
    lambda received, t: comm.all_to_all(received, [t, t]),
):
    call(parts, left)
    assert each(parts) == [[0, 2, 4], [0, 4, 8]]
comm.reduce(table[:1, 1:], 0)
assert RANK or table.tolist() == [[0, 3], [2, 3], [4, 5]]

# outputs of any shape with room for all ranks, in the order of memory
x = (flow.arange(6) + 10 * RANK).reshape(2, 3)
both = [*range(6), *range(10, 16)]
for shape in ((4, 3), (2, 2, 3), (12,), (3, 4)):
    whole = flow.zeros(shape, dtype=flow.int64)
    comm.all_gather_into_tensor(whole, x)
    assert whole.flatten().tolist() == both
    own = flow.zeros(2, 3, dtype=flow.int64)
    comm.reduce_scatter_tensor(own, whole)
    assert own.flatten().tolist() == [2 * v for v in both[6 * RANK : 6 * RANK + 6]]
whole = flow.zeros(4, 3, dtype=flow.int64).t()
comm.all_gather_into_tensor(whole, flow.arange(6).reshape(3, 2).t())
assert whole.flatten().tolist() == [0, 2, 4, 1, 3, 5] * 2
own = flow.zeros(2, 3, dtype=flow.int64).t()
comm.reduce_scatter_tensor(own, whole)
assert own.flatten().tolist() == [0, 4, 8, 2, 6, 10]
comm.barrier()


class Summed(flow.nn.Graph):
    """One rank captures again: the sum is no constant, because the other rank would not take part in it."""

    def __init__(self, asks_for_value):
        super().__init__()
        self.asks_for_value, self.offset = asks_for_value, 1.0
        self.config.set_backend("aten")

    def build(self, x):
        total = functional_collectives.all_reduce(torch.ones(1), "sum", torch.distributed.group.WORLD)
        if self.asks_for_value:
            return x * total.item()
        self.kept = [total]
        return x * total + self.offset


graph = Summed(False)
assert graph(of(1.0)).item() == 3.0
if RANK == 0:
    graph.offset = 5.0
assert graph(of(1.0)).item() == (3.0 if RANK else 7.0)
try:
    Summed(True)(of(1.0))
    raise AssertionError("the result of a collective became a constant")
except RuntimeError as error:
    assert "total.item()" in str(error)
comm.barrier()


class Averaged(flow.nn.Graph):
    """A data parallel step: the gradients are means over the ranks, and rank 0's buffers go to all."""

    def __init__(self):
        super().__init__()
        net = flow.nn.Sequential(flow.nn.BatchNorm1d(2, affine=False), flow.nn.Linear(2, 1, bias=False))
        self.net = flow.nn.parallel.DistributedDataParallel(net)
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=1.0))

    def build(self, x):
        loss = self.net[1](x).sum() + self.net(x).sum() * 0
        loss.backward()
        return loss


step = Averaged()
norm, linear = step.net._origin
start = linear.weight.detach().clone()
norm.running_mean.fill_(float(RANK))
step(flow.full((2, 2), 1.0 + RANK))
assert torch.equal(linear.weight, start - 3.0), (start, linear.weight)
means = [flow.zeros(2), flow.zeros(2)]
comm.all_gather(means, norm.running_mean)
assert torch.allclose(torch.stack(means), of([0.1, 0.1], [0.2, 0.2])), means


class Gathered(flow.nn.Graph):
    def build(self, x):
        received = [torch.empty_like(x), torch.empty_like(x)]
        torch.distributed.all_gather(received, x)
        return received[0] + received[1]


try:
    Gathered()(of(1.0))
    raise AssertionError("a program dropped a collective")
except RuntimeError as error:
    assert "collective allgather" in str(error), error
comm.barrier()
