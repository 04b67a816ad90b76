"""Collectives of comm and oneflow._C in a single process: they return their input or raise a clear error."""

import pytest
import torch

import oneflow as flow

P = flow.placement("cpu", [0])


def test_each_collective_is_the_identity():
    x = torch.arange(4.0)
    flow.comm.all_reduce(x), flow.comm.broadcast(x), flow.comm.reduce(x, 0), flow.comm.barrier()
    assert x.tolist() == [0, 1, 2, 3]
    out = [torch.empty(4)]
    flow.comm.all_gather(out, x)
    assert torch.equal(out[0], x)
    for call in (
        flow.comm.all_gather_into_tensor,
        flow.comm.reduce_scatter_tensor,
        flow._C.local_all_gather,
        flow._C.local_reduce_scatter,
    ):
        target = torch.empty(4)
        call(target, x)
        assert torch.equal(target, x), call
    target = torch.empty(4)
    flow.comm.scatter(target, [x])
    assert torch.equal(target, x)
    assert (
        not torch.distributed.is_initialized()
        and flow.distributed.is_multi_client()
        and flow.distributed.get_world_size() == 1
    )


def test_wrong_ranks_and_lists():
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="rank 1"):
        flow.comm.broadcast(x, 1)
    with pytest.raises(RuntimeError, match="one tensor per rank"):
        flow.comm.all_gather([], x)
    with pytest.raises(RuntimeError, match="one process"):
        flow.comm.send(x, 0)


def test_raw_forms():
    x = torch.ones(2)
    assert flow._C.local_all_reduce(x) is not x and flow._C.local_all_reduce(x, True) is x
    assert flow._C.comm_broadcast(x) is x and flow._C.comm_broadcast([x])[0] is x
    assert flow._C.global_arange(3, placement=P, sbp=flow.sbp.broadcast).tolist() == [0, 1, 2]
    full = flow._C.global_constant((2,), 3, dtype=torch.int64, placement=P, sbp=[flow.sbp.split(0)])
    assert full.is_global and full.tolist() == [3, 3] and full.sbp == (flow.sbp.split(0),)
    assert flow._C.global_tensor_constant(
        (2,), torch.tensor(2.5), dtype=torch.float32, placement=P, sbp=flow.sbp.broadcast
    ).tolist() == [2.5, 2.5]
    assert flow._C.global_tensor_constant(
        (1,), torch.tensor(0.1, dtype=torch.float64), dtype=torch.float64, placement=P, sbp=flow.sbp.broadcast
    ).tolist() == [0.1]
    assert flow._C.rfft(torch.ones(4)).shape == (3,) and flow._C.vector_norm(torch.ones(4)) == 2.0
    flow.multiprocessing.unlink_all_shared_memory()
