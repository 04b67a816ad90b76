"""DistributedDataParallel on two processes: the averaged gradients of one process with both batches."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from free_port import free_port
from time_limits import seconds

import oneflow

PROGRAM = """
import sys
import torch
import oneflow as flow
from oneflow.nn.parallel import DistributedDataParallel as ddp

rank = int(sys.argv[1])
flow.manual_seed(rank)  # different weights, until rank 0's are sent
net = flow.nn.Sequential(flow.nn.Linear(3, 4), flow.nn.BatchNorm1d(4), flow.nn.Linear(4, 2), flow.nn.Linear(2, 1))
if rank == 0:
    torch.save(net.state_dict(), sys.argv[2] + "/start.pt")
same = ddp(net, bucket_size=3, use_bucket=sys.argv[3] == "bucket")
assert same is net and torch.distributed.get_world_size() == 2
assert ddp(net) is net  # a second call adds no second set of hooks
x = torch.arange(12.0).reshape(4, 3) * (1 + rank)
for step in range(2):
    net.zero_grad()
    net(x).square().sum().backward()
class Branches(flow.nn.Module):  # each process uses another half of the parameters
    def __init__(self):
        super().__init__()
        self.a, self.b = flow.nn.Linear(3, 1, bias=False), flow.nn.Linear(3, 1, bias=False)

    def forward(self, x):
        return {"y": (self.a if rank == 0 else self.b)(x), "size": x.shape[0]}

for size in (10, 1):  # in one message, or in two that come in another order on each process
    half = ddp(Branches(), bucket_size=size)
    for _ in range(2):
        half.zero_grad()
        half(flow.ones(2, 3))["y"].mul(1 + rank).sum().backward()
        assert half.a.weight.grad.tolist() == [[1.0, 1.0, 1.0]] and half.b.weight.grad.tolist() == [[2.0, 2.0, 2.0]]
half.zero_grad()  # as torch's wrapper: sums of two batches, sent once
assert half.module is half
with half.no_sync():
    half(flow.ones(2, 3))["y"].mul(1 + rank).sum().backward()
assert (half.a.weight.grad.sum(), half.b.weight.grad.sum()) == ((6, 0) if rank == 0 else (0, 12))
half(flow.ones(2, 3))["y"].mul(1 + rank).sum().backward()
assert half.a.weight.grad.tolist() == [[2.0, 2.0, 2.0]] and half.b.weight.grad.tolist() == [[4.0, 4.0, 4.0]]
own = flow.nn.BatchNorm1d(2)
own.running_mean.fill_(rank)
own.weight.data.fill_(rank)
ddp(own, broadcast_buffers=False)  # each process keeps its buffers, rank 0's parameters go to all
assert own.running_mean.tolist() == [rank, rank] and own.weight.tolist() == [0, 0]
torch.save({"grads": [p.grad for p in net.parameters()], "weights": [p.detach() for p in net.parameters()], "mean": net[1].running_mean.clone()},
           f"{sys.argv[2]}/rank{rank}.pt")
torch.distributed.destroy_process_group()
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.parametrize("bucket", ["bucket", "single"])
def test_two_processes_train_as_one(tmp_path, bucket):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    base = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(r), str(tmp_path), bucket],
            env={**base, "RANK": str(r), "LOCAL_RANK": str(r)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    for process in ranks:
        _, err = process.communicate(timeout=seconds(120))
        assert process.returncode == 0, err
    a, b = (torch.load(tmp_path / f"rank{r}.pt") for r in range(2))
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
    )
    net.load_state_dict(torch.load(tmp_path / "start.pt"))
    want = [torch.zeros_like(p) for p in net.parameters()]
    for rank in range(2):
        net.zero_grad()
        net(torch.arange(12.0).reshape(4, 3) * (1 + rank)).square().sum().backward()
        want = [w + p.grad / 2 for w, p in zip(want, net.parameters())]
    for ga, gb, wa, wb, w in zip(a["grads"], b["grads"], a["weights"], b["weights"], want):
        assert torch.equal(ga, gb) and torch.equal(wa, wb)
        torch.testing.assert_close(ga, w)


def test_a_tensor_is_refused():
    with pytest.raises(TypeError, match="module must be a torch.nn.Module, found Tensor"):
        oneflow.nn.parallel.DistributedDataParallel(torch.ones(2))
