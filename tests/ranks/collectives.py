"""Every collective of flow.comm on two ranks; no warning may come of it: python -m oneflow.distributed.launch --nproc_per_node 2 collectives.py"""
import warnings

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
for gather, scatter in ((comm.all_gather_into_tensor, comm.reduce_scatter_tensor), (flow._C.local_all_gather, flow._C.local_reduce_scatter)):
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
        assert "(1,)" in str(error) and "(2,)" in str(error)
    comm.recv(0, (1,), flow.float32, out=out)  # what was announced is still to come
comm.barrier()
