"""A PyTorch program that starts its own processes and creates the process group, without a launcher: a
program for test_ranks.py.
"""

import sys

import oneflow as torch
import oneflow.distributed as dist
import oneflow.multiprocessing as mp
from oneflow.nn.parallel import DistributedDataParallel
from oneflow.utils.data.distributed import DistributedSampler


def work(rank, size, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    assert (torch.env.get_rank(), torch.env.get_world_size()) == (rank, size)
    assert list(DistributedSampler(range(8), shuffle=False)) == list(range(rank, 8, size))
    net = DistributedDataParallel(torch.nn.Linear(2, 1))
    net(torch.full((1, 2), float(rank))).sum().backward()
    assert next(net.parameters()).grad.tolist() == [[0.5, 0.5]]
    ranks = torch.placement.all("cpu")
    assert torch.full((2,), rank).to_global(ranks, torch.sbp.split(0)).numpy().tolist() == [0, 0, 1, 1]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2, sys.argv[1]), nprocs=2)
