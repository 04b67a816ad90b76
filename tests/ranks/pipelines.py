"""Checks of pipelines, which every rank runs: a step of several micro batches on stages equals the same step
without a schedule, bit for bit. Run it as program.py.
"""

import itertools
import re

import numpy as np
import program
from checks import ALL, RANK, S0, S1, WORLD, B

import oneflow as flow
from oneflow import nn

F = nn.functional
WORDS, CHANNELS, LENGTH, BATCH = 11, 8, 3, 8


def data(steps=2):
    random = np.random.RandomState(0)
    return [flow.tensor(random.randint(0, WORDS, (BATCH, LENGTH + 1))) for _ in range(steps)]


class Layer(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.up, self.down = nn.Linear(CHANNELS, 2 * CHANNELS), nn.Linear(2 * CHANNELS, CHANNELS)
        self.drop = nn.Dropout(drop) if drop else None

    def forward(self, x):
        h = flow.tanh(self.up(x))
        return x + self.down(h if self.drop is None else self.drop(h))


class Model(nn.Module):
    """A small language model with a layer on each stage. `moves`: forward() moves tensors itself. A number of
    stages instead of placements: the model is on one rank.
    """

    def __init__(
        self, stages, moves=True, tied=False, skip=False, drop=0.0, tensor_parallel=False, layer=None
    ):
        super().__init__()
        flow.manual_seed(1)
        layers, self.moves, self.skip = stages if isinstance(stages, int) else len(stages), moves, skip
        self.stages = None if isinstance(stages, int) else stages
        self.table = nn.Embedding(WORDS, CHANNELS)
        self.layers = nn.ModuleList(layer() if layer else Layer(drop) for _ in range(layers))
        self.head = None if tied else nn.Linear(CHANNELS, WORDS, bias=False)
        self.double()
        if self.stages:
            self.place(tensor_parallel)

    def place(self, tensor_parallel):
        for module, stage in zip(
            (self.table, *self.layers, self.head), (self.stages[0], *self.stages, self.stages[-1])
        ):
            if module is not None:
                module.to_global(stage, B)
        for layer in self.layers if tensor_parallel else ():
            for linear, rule in ((layer.up, S0), (layer.down, S1)):
                linear.weight = nn.Parameter(linear.weight.detach().to_global(sbp=rule))

    def move(self, x, stage):
        return x.to_global(placement=self.stages[stage]) if self.stages else x

    def forward(self, ids):
        h = start = self.table(self.move(ids, 0) if self.moves else ids)
        for stage, layer in enumerate(self.layers):
            h = layer(self.move(h, stage) if self.moves else h)
        if self.skip:
            h = h + self.move(start, -1)
        if self.head is None:
            return flow.matmul(h, self.move(self.table.weight, -1).transpose(0, 1))
        return self.head(h)

    def loss(self, ids):
        logits, labels = self(ids[:, :-1]), self.move(ids[:, 1:], -1)
        return F.cross_entropy(logits.reshape(-1, WORDS), labels.reshape(-1))


class Step(nn.Graph):
    def __init__(self, model, optimizer, micro_batches, staged, schedule=None, recompute=False):
        super().__init__()
        self.model = model
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.add_optimizer(optimizer)
        if recompute:
            for layer in self.model.layers:
                layer.to(nn.graph.GraphModule).activation_checkpointing = True
        if staged:
            if schedule is not None:
                self.config.pipeline_schedule(schedule)
            self.model.table.to(nn.graph.GraphModule).set_stage(0, model.stages[0])
            for i, (layer, stage) in enumerate(zip(self.model.layers, model.stages)):
                layer.to(nn.graph.GraphModule).set_stage(i, stage)

    def build(self, ids):
        loss = self.model.loss(ids)
        loss.backward()
        return loss


def line(count):
    """`count` stages of as many ranks as there are for each."""
    width = WORLD // count
    return [flow.placement("cpu", list(range(i * width, (i + 1) * width))) for i in range(count)]


def optimizer_of(model):
    group = {"params": list(model.parameters()), "clip_grad_max_norm": 0.5, "clip_grad_norm_type": 2.0}
    return flow.optim.AdamW([group], lr=0.01)


def trained(micro_batches, staged, schedule=None, recompute=False, rule=B, zero=None, stages=2, **options):
    """Return the losses of each micro batch, the weights and the graph after some steps."""
    model = Model(line(stages), **options)
    step = Step(model, optimizer_of(model), micro_batches, staged, schedule, recompute)
    if zero:
        step.config.enable_zero(True, stage=zero, shard_min_size=8)
    flow.manual_seed(2)
    losses = [step(ids.to_global(ALL, B).to_global(sbp=rule)).numpy() for ids in data()]
    return losses, [p.numpy() for p in model.parameters()], step


def trained_on_one_rank(micro_batches, stages=2, **options):
    """Return the losses and the weights of the same steps on one rank, in eager mode."""
    model = Model(stages, **options)
    optimizer, losses = optimizer_of(model), []
    for ids in data():
        optimizer.zero_grad()
        parts = [model.loss(part) for part in ids.chunk(micro_batches)]
        flow.stack(parts).mean().backward()
        optimizer.clip_grad()
        optimizer.step()
        losses.append([part.item() for part in parts])
    return losses, [p.detach().numpy() for p in model.parameters()]


def runs_as_planned(step):
    """Whether the matrix products of this rank's program are in the order of the plan."""
    program = step._engine.program
    products = [n for n in program.graph.nodes if "mm" in str(n.target) and "micro_batch" in n.meta]
    order = [key for key, _ in itertools.groupby((n.meta["phase"], n.meta["micro_batch"]) for n in products)]
    return order == [(action.part, action.micro_batch) for action in program.pipeline.actions]


def micro_batches_kept(step):
    """Return how many micro batches have forward values in memory at the same time on this rank."""
    position = {node: i for i, node in enumerate(step._engine.program.graph.nodes)}
    lives = {}
    for node in position:
        users = [user for user in node.users if user.meta.get("phase") == "backward"]
        if node.meta.get("phase") == "forward" and "micro_batch" in node.meta and users:
            begin, end = lives.get(node.meta["micro_batch"], (position[node], 0))
            lives[node.meta["micro_batch"]] = begin, max(end, *(position[user] for user in users), 0)
    return max(sum(begin <= at < end for begin, end in lives.values()) for at in position.values())


def equals_one_rank(micro_batches, schedule=None, **options):
    own = {name: options[name] for name in ("tied", "skip", "stages") if name in options}
    losses, weights = trained_on_one_rank(micro_batches, **own)
    staged_losses, staged_weights, step = trained(micro_batches, True, schedule, moves=False, **options)
    assert runs_as_planned(step)
    plan = step._engine.program.pipeline
    left = len(plan.placements) - plan.stage_of(RANK)
    assert micro_batches_kept(step) == (micro_batches if schedule == "gpipe" else min(left, micro_batches))
    assert np.allclose(staged_losses, losses, rtol=0, atol=1e-12), (options, staged_losses, losses)
    for value, expected in zip(staged_weights, weights):
        assert np.allclose(value, expected, rtol=0, atol=1e-10), options


def a_schedule_keeps_every_bit():
    """Dropout samples the same numbers, and layers that are computed again in backward sample them again."""
    options = {"drop": 0.3, "recompute": True}
    losses, weights, _ = trained(4, False, **options)
    staged_losses, staged_weights, step = trained(4, True, moves=False, **options)
    assert runs_as_planned(step) and step._engine.program.pipeline.schedule == "1f1b"
    for value, expected in zip([*staged_losses, *staged_weights], [*losses, *weights]):
        assert np.array_equal(value, expected)


def schedules_equal_one_rank():
    equals_one_rank(2, "gpipe", tied=True, skip=True)


def data_and_tensor_parallel_stages():
    """Two stages of two ranks each."""
    equals_one_rank(4, "1f1b", rule=S0, skip=True, tied=True, zero=2)
    equals_one_rank(2, "1f1b", tensor_parallel=True)
    equals_one_rank(4, "1f1b", rule=S0, zero=3)


def four_stages():
    equals_one_rank(4, "1f1b", stages=4, skip=True, tied=True)


class Everywhere(Step):
    def build(self, ids):
        return super().build(ids).to_global(ALL, B)


def results_go_to_all_ranks():
    """An earlier stage receives the loss of a later one, and does not wait for it before the end."""
    losses, _ = trained_on_one_rank(4)
    model = Model(line(2), moves=False)
    step = Everywhere(model, optimizer_of(model), 4, True)
    results = [step(ids.to_global(ALL, B)) for ids in data()]
    assert np.allclose([r.to_local().numpy() for r in results], losses, rtol=0, atol=1e-12)
    assert runs_as_planned(step)


class Normalized(nn.Module):
    """A layer whose forward writes statistics."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(CHANNELS, CHANNELS), nn.BatchNorm1d(LENGTH)

    def forward(self, x):
        return x + self.norm(flow.tanh(self.linear(x)))


def statistics_and_autocast_keep_every_bit():
    for layer, amp in ((Normalized, False), (None, True)):
        results = []
        for staged in (False, True):
            model = Model(line(2), layer=layer).float()
            step = Step(model, optimizer_of(model), 4, staged)
            step.config.enable_amp(amp, dtype=flow.bfloat16)
            losses = [step(ids.to_global(ALL, B)).numpy() for ids in data()]
            results.append([*losses, *(value.numpy() for value in model.state_dict().values())])
        assert all(map(np.array_equal, *results)), layer


class Misplaced(Step):
    """A step whose data passes the stages backward, or that reads in backward what forward has written."""

    def __init__(self, model, *args):
        super().__init__(model, *args)
        self.scale = flow.ones(CHANNELS, dtype=flow.float64).to_global(model.stages[0], B)
        self.fault = "backward"

    def build(self, ids):
        model = self.model
        h = model.layers[0](model.table(ids[:, :-1]))
        if self.fault == "written":
            self.scale.mul_(0.9)
            h = (h * self.scale).exp()
        h = model.layers[1](h)
        if self.fault == "backward":
            h = model.move(model.layers[0](h), -1)
        if self.fault == "shared":
            h = model.move(h.to_global(ALL, B).to_global(sbp=S0).exp(), -1)
        loss = F.cross_entropy(model.head(h).reshape(-1, WORDS), model.move(ids[:, 1:], -1).reshape(-1))
        loss.backward()
        return loss


def misplaced_stages_raise_on_every_rank():
    for fault, message in (
        ("backward", "from stage 1 back to stage 0|in the direction of forward"),
        ("written", "it reads or writes what another micro batch writes"),
        ("shared", "makes ranks of several pipeline stages exchange"),
    ):
        model = Model(line(2), moves=False)
        step = Misplaced(model, optimizer_of(model), 4, True)
        step.fault = fault
        before = [p.numpy() for p in model.parameters()]
        try:
            step(data()[0].to_global(ALL, B))
        except Exception as error:
            assert re.search(message, str(error)), (fault, error)
        else:
            raise AssertionError(f"{fault}: no error")
        after = [p.numpy() for p in model.parameters()]  # the ranks are in step
        assert all(np.array_equal(*pair) for pair in zip(before, after)), fault


if __name__ == "__main__":
    program.CHECKS.update(globals())
    program.main()
