"""Train on several ranks, save a sharded checkpoint, and resume with another number of ranks.

    python -m oneflow.distributed.launch --nproc_per_node 2 docs/examples/distributed/checkpoint.py save run
    python docs/examples/distributed/checkpoint.py resume run

The optimizer's state is split over the ranks (ZeRO). Each rank writes its shards while the training goes on. The
second command needs one process: it reads the full tensors, and continues with the same losses.
"""
import sys

import oneflow as flow
import oneflow.nn as nn

STEPS = 8


class Train(nn.Graph):
    def __init__(self, placement):
        super().__init__()
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.model = model.to_global(placement, flow.sbp.broadcast)
        self.config.set_backend("aten")
        self.config.enable_zero(True, stage=2, shard_min_size=8)
        self.add_optimizer(flow.optim.AdamW(self.model.parameters(), lr=0.05))

    def build(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss


def batch(step, placement):
    """Return the same batch on any number of ranks, split over them."""
    x = flow.randn(32, 8, generator=flow.Generator().manual_seed(step))
    place = lambda t: t.to_global(placement, flow.sbp.broadcast).to_global(sbp=flow.sbp.split(0))
    return place(x), place(x.sum(1, keepdim=True))


def main(command, folder):
    placement = flow.placement.all("cpu")
    graph = Train(placement)
    first = STEPS // 2 if command == "resume" else 0
    if command == "resume":
        graph.load_state_dict(flow.load(folder))
    losses = []
    for step in range(first, STEPS):
        losses.append(graph(*batch(step, placement)).item())
        if command == "save" and step == STEPS // 2 - 1:
            pending = flow.save(graph.state_dict(), folder, layout="sharded", asynchronous=True)
    if command == "save":
        pending.wait()
    if flow.env.get_rank() == 0:
        for step, loss in zip(range(first, STEPS), losses):
            print(f"step {step}, world size {flow.env.get_world_size()}: loss {loss:.4f}")
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:])
