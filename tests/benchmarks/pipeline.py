"""Measure the bubble of pipeline schedules: the part of a step in which a rank waits.

    OMP_NUM_THREADS=1 python -m oneflow.distributed.launch --nproc_per_node 2 tests/benchmarks/pipeline.py
    OMP_NUM_THREADS=1 python -m oneflow.distributed.launch --nproc_per_node 4 tests/benchmarks/pipeline.py

The work of a stage sleeps, so that the ranks need no cores of their own. The figures then show the order of
the parts only: forward takes --milliseconds, and backward twice as long. For each schedule, and for the same
graph without stages, the benchmark prints the median time of a step and the bubble. Beside them are those of
a simulation, which runs torch's order with the same times. The tensors are small: a send takes no time.
"""

import argparse
import statistics
import time

import torch

import oneflow as flow
from oneflow import nn
from oneflow._graph.pipeline_plan import orders

RANK, WORLD = flow.env.get_rank(), flow.env.get_world_size()


@torch.library.custom_op("pipeline_benchmark::work", mutates_args=())
def work(x: torch.Tensor, seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    return x.clone()


@work.register_fake
def _(x, seconds):
    return torch.empty_like(x)


def _keep_seconds(ctx, inputs, output):
    ctx.seconds = inputs[1]


work.register_autograd(
    lambda ctx, gradient: (work(gradient, 2 * ctx.seconds), None), setup_context=_keep_seconds
)


class Stage(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.linear, self.seconds = nn.Linear(16, 16), seconds

    def forward(self, x):
        return work(self.linear(x), self.seconds)


class Step(nn.Graph):
    def __init__(self, schedule, micro_batches, seconds):
        super().__init__()
        self.stages = [flow.placement("cpu", [rank]) for rank in range(WORLD)]
        flow.manual_seed(0)
        model = nn.ModuleList(Stage(seconds).to_global(stage, flow.sbp.broadcast) for stage in self.stages)
        self.model = model
        self.config.set_gradient_accumulation_steps(micro_batches)
        if schedule is not None:
            self.config.pipeline_schedule(schedule)
            for i, (block, stage) in enumerate(zip(self.model, self.stages)):
                block.to(nn.graph.GraphModule).set_stage(i, stage)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.01))

    def build(self, x):
        for block, stage in zip(self.model, self.stages):
            x = block(x.to_global(placement=stage))
        loss = x.square().mean()
        loss.backward()
        return loss


def simulated(schedule, micro_batches, seconds):
    """Return the time of a step in which each part starts once its rank is free and its input is there."""
    order = {stage: list(actions) for stage, actions in orders(schedule, WORLD, micro_batches).items()}
    free, ends = dict.fromkeys(order, 0.0), {}
    while any(order.values()):
        for stage, actions in order.items():
            if not actions:
                continue
            part, micro_batch = actions[0].part, actions[0].micro_batch
            source = stage - 1 if part == "forward" else stage + 1
            needed = (part, source, micro_batch)
            if 0 <= source < WORLD and needed not in ends:
                continue
            begin = max(free[stage], ends.get(needed, 0.0))
            free[stage] = ends[part, stage, micro_batch] = begin + (1 if part == "forward" else 2) * seconds
            actions.pop(0)
    return max(ends.values())


def measured(schedule, micro_batches, seconds, steps):
    step = Step(schedule, micro_batches, seconds)
    x = flow.randn(micro_batches, 16).to_global(flow.placement.all("cpu"), flow.sbp.broadcast)
    times = []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        step(x).numpy()  # every rank waits for the loss
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--milliseconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    n, seconds = options.micro_batches, options.milliseconds / 1e3
    busy = 3 * n * seconds
    for schedule in (None, "gpipe", "1f1b"):
        taken = measured(schedule, n, seconds, options.steps)
        expected = simulated(schedule, n, seconds) if schedule is not None else busy * WORLD
        if RANK == 0:
            print(
                f"{schedule or 'no stages':10} {taken * 1e3:7.1f} ms, bubble {1 - busy / taken:6.1%};"
                f" simulated {expected * 1e3:7.1f} ms, bubble {1 - busy / expected:6.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
