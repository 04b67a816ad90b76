"""Random training programs on several ranks, eager and in a graph, against one rank.

    python -m oneflow.distributed.launch --nproc_per_node 2 training.py 0:20 [BACKEND]

A seed determines a model (stages.py), an optimizer and training options. Losses and weights of three steps
must agree. Graphs on several ranks run on aten or on BACKEND.
"""

import os
import random
import sys
import tempfile

import numpy as np
from stages import LENGTH, S0, WORDS, B, Model

import oneflow as flow
from oneflow import nn

WORLD = flow.env.get_world_size()
ALL = flow.placement.all("cpu")
STEPS, BACKEND = 3, (sys.argv[2:] or ["aten"])[0]

OPTIMIZERS = (
    lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda p: flow.optim.Adam(p, lr=0.01),
    lambda p: flow.optim.Adam(p, lr=0.01, amsgrad=True),
    lambda p: flow.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: flow.optim.AdamW(p, lr=0.01),
    lambda p: flow.optim.LAMB(p, lr=0.01, weight_decay=0.1),
    lambda p: flow.optim.Adagrad(p, lr=0.01),
    lambda p: flow.optim.RMSprop(p, lr=0.01),
    lambda p: flow.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    lambda p: flow.optim.Adadelta(p, lr=0.5),
)
SCHEDULES = (
    lambda o: flow.optim.lr_scheduler.StepLR(o, 2, 0.5),
    lambda o: flow.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    lambda o: flow.optim.lr_scheduler.PolynomialLR(o, 5, 0.01),
    lambda o: flow.optim.lr_scheduler.WarmUpLR(
        flow.optim.lr_scheduler.CosineDecayLR(o, 6), warmup_factor=0.2, warmup_iters=2
    ),
    lambda o: flow.optim.lr_scheduler.LambdaLR(o, [lambda s: 1 / (s + 1)] * len(o.param_groups)),
)


class Trainer:
    """The training options around the model, on one rank or on a placement, eager or in a graph."""

    def __init__(self, seed, placed, in_graph):
        r = random.Random(-seed - 1)
        self.placed, self.in_graph, self.seed = placed, in_graph, seed
        self.make, self.schedule = r.choice(OPTIMIZERS), r.choice((None, *SCHEDULES))
        self.groups, self.clip = r.random() < 0.4, r.choice((None, None, "group", "group", "norm", "value"))
        self.parts = 1 if self.clip in ("norm", "value") else r.choice((1, 1, 2))
        self.norm = r.choice((1.0, 2.0, 2.0, float("inf")))
        self.scaler, self.zero = (
            None if self.clip in ("norm", "value") else r.choice((None, "static", "dynamic")),
            r.choice((None, None, 1, 2, 3)),
        )
        self.checkpoints, self.resumes = r.random() < 0.3, r.choice((None, None, "memory", "file"))
        self.samples, self.data_form, self.amp = (
            r.choice((4, 4, 8) if self.parts > 1 or WORLD > 2 else (4, 4, 6, 5, 3)),
            r.randrange(3),
            r.random() < 0.15,
        )
        self.begin()

    def __repr__(self):
        return str({k: v for k, v in vars(self).items() if isinstance(v, (int, str, float, type(None)))})

    def begin(self):
        self.model = Model(self.seed, self.placed)
        if self.amp:
            self.model.float()
        params = [p for p in self.model.parameters() if p.requires_grad]
        groups = (
            [{"params": params[::2]}, {"params": params[1::2], "lr": 0.02, "weight_decay": 0.02}]
            if self.groups
            else [{"params": params}]
        )
        if self.clip == "group":
            for g in groups:
                g.update(clip_grad_max_norm=0.1, clip_grad_norm_type=self.norm)
        self.optimizer = self.make(groups)
        self.lr = self.schedule and self.schedule(self.optimizer)
        self.grad_scaler = {
            None: lambda: None,
            "static": lambda: flow.amp.StaticGradScaler(64.0),
            "dynamic": lambda: flow.amp.GradScaler(init_scale=1024.0, growth_interval=2),
        }[self.scaler]()
        self.graph = Step(self) if self.in_graph else None

    def batch(self, step):
        rng = np.random.RandomState(100 * self.seed % 2**31 + step)
        n = self.samples
        x = rng.randint(0, WORDS, (n, LENGTH)) if self.model.reads_ids else rng.randn(n, LENGTH, 5)
        x, y = flow.tensor(x), flow.tensor(rng.randint(0, WORDS, (n, LENGTH)))
        if self.amp and not self.model.reads_ids:
            x = x.float()
        if not self.placed:
            return x, y
        if self.data_form == 0:
            return x.to_global(ALL, B), y.to_global(ALL, B)
        if self.data_form == 1:  # each rank has its part
            at = flow.env.get_rank()
            return [
                (t.chunk(WORLD)[at] if at < len(t.chunk(WORLD)) else t[:0]).to_global(ALL, S0) for t in (x, y)
            ]
        return [
            t.to_global(s, [B] * len(s.hierarchy))
            for t, s in ((x, self.model.stages[0]), (y, self.model.stages[-1]))
        ]

    def clipped(self):
        params = [p for p in self.model.parameters() if p.grad is not None]
        if self.clip == "group":
            self.optimizer.clip_grad()
        elif self.clip == "norm":
            nn.utils.clip_grad_norm_(params, 0.1, self.norm)
        elif self.clip == "value":
            nn.utils.clip_grad_value_(params, 0.01)

    def step(self, i):
        x, y = self.batch(i)
        if self.in_graph:
            return self.graph(x, y)
        self.optimizer.zero_grad()
        losses = []
        for part in zip(x.chunk(self.parts), y.chunk(self.parts)):
            with flow.autocast("cpu", dtype=flow.bfloat16, enabled=self.amp):
                loss = self.model(*part)
            scaled = loss / self.parts
            (scaled if self.grad_scaler is None else self.grad_scaler.scale(scaled)).backward()
            losses.append(loss.detach())
        if self.grad_scaler is not None:
            self.grad_scaler.unscale_(self.optimizer)
        self.clipped()
        if self.grad_scaler is None:
            self.optimizer.step()
        else:
            self.grad_scaler.step(self.optimizer)
            self.grad_scaler.update()
        if self.lr is not None:
            self.lr.step()
        return sum(losses) / len(losses)

    def states(self):
        return (
            self.graph.state_dict()
            if self.in_graph
            else {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "lr": self.lr and self.lr.state_dict(),
                "scaler": self.grad_scaler and self.grad_scaler.state_dict(),
            }
        )

    def kept(self, states):
        """The states as a file gives them back."""
        with tempfile.TemporaryDirectory() as folder:
            if not self.placed:
                flow.save(states, os.path.join(folder, "states"))
                return flow.load(os.path.join(folder, "states"))
            box = [folder]
            flow.comm.barrier()
            flow.distributed.broadcast_object_list(box, 0)
            flow.save(states, os.path.join(box[0], "states"), global_dst_rank=0)
            flow.comm.barrier()
            states = flow.load(os.path.join(box[0], "states"), global_src_rank=0)
            flow.comm.barrier()
            return states

    def resume(self):
        """Go on with another model that reads the states."""
        states = self.states()
        if self.resumes == "file":
            states = self.kept(states)
        self.begin()
        if self.in_graph:
            return self.graph.load_state_dict(states)
        for own, saved in zip((self.model, self.optimizer, self.lr, self.grad_scaler), states.values()):
            if own is not None:
                own.load_state_dict(saved)

    def results(self):
        """{name: values} of losses and of the model's state after each step."""
        values = {}
        for i in range(STEPS):
            if i == STEPS - 1 and self.resumes:
                self.resume()
            values[f"loss {i}"] = self.step(i).numpy().mean()
            for name, value in self.model.state_dict().items():
                values[f"{name} after {i}"] = value.numpy().astype(np.float64)
        return values


class Step(nn.Graph):
    def __init__(self, trainer):
        super().__init__()
        self.model, self.clipped, self.clip = trainer.model, trainer.clipped, trainer.clip
        self.add_optimizer(trainer.optimizer, **({"lr_sch": trainer.lr} if trainer.lr is not None else {}))
        if trainer.grad_scaler is not None:
            self.set_grad_scaler(trainer.grad_scaler)
        self.config.set_backend(BACKEND if trainer.placed else "aten")
        if trainer.parts > 1:
            self.config.set_gradient_accumulation_steps(trainer.parts)
        if trainer.zero == 2:
            self.config.set_zero_redundancy_optimizer_mode("distributed_split")
            self.config.set_zero_redundancy_optimizer_min_size_after_split(1)
        elif trainer.zero:
            self.config.enable_zero(True, stage=trainer.zero, shard_min_size=4)
        self.config.enable_amp(trainer.amp, dtype=flow.bfloat16)
        for i, block in enumerate(self.model.blocks):
            if trainer.checkpoints:
                block.to(nn.graph.GraphModule).activation_checkpointing = True
            block.to(nn.graph.GraphModule).set_stage(i, *[self.model.stages[i + 1]] * trainer.placed)

    def build(self, x, y):
        loss = self.model(x, y)
        loss.backward()
        if self.clip != "group":
            self.clipped()
        return loss


def apart(one, other):
    """The largest difference of two results, relative to the largest number, and its name."""
    return max(
        ((abs(other[k] - v).max() if other[k].shape == v.shape else np.inf) / (1 + abs(v).max()), k)
        for k, v in one.items()
        if v.size
    )


def check(seed):
    """The same program on one rank, eager and in a graph, and placed."""
    on_one_rank = {in_graph: Trainer(seed, False, in_graph) for in_graph in (False, True)}
    if flow.env.get_rank() == 0:
        print(seed, on_one_rank[False], flush=True)
    tolerance = 0.1 if on_one_rank[False].amp else 1e-8
    on_one_rank = {in_graph: trainer.results() for in_graph, trainer in on_one_rank.items()}
    assert apart(on_one_rank[False], on_one_rank[True])[0] < tolerance, (
        seed,
        "one rank",
        apart(on_one_rank[False], on_one_rank[True]),
    )
    for in_graph, expected in on_one_rank.items():
        distance = apart(expected, Trainer(seed, True, in_graph).results())
        assert distance[0] < tolerance, (seed, "graph" if in_graph else "eager", distance)


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1].split(":"))):
        check(seed)
