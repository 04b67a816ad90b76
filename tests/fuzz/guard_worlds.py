"""Random programs for the fuzzer of guards: a file, a module, an optimizer, and steps in eager, as a graph or compiled."""

from __future__ import annotations

import random
import sys
import types

import guard_facts
import torch
from guard_facts import Fact

import oneflow as flow

BODIES = {
    "mlp": """
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Identity(), nn.Linear(8, 4))
""",
    "resnet": """
        self.body = nn.Sequential(View((-1, 1, 2, 2)), Residual(1, 4), nn.Identity(), Residual(4, 4), nn.Flatten(), nn.Linear(16, 4))
""",
    "transformer": """
        self.body = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1), nn.Identity(), nn.LayerNorm(4), nn.Linear(4, 4))
""",
    "gpt": """
        self.body = nn.Sequential(Tokens(4, 4), Attention(Config()), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4))
""",
    "lstm": """
        self.body = nn.Sequential(nn.Linear(4, 4), Recurrent(nn.LSTM(4, 4)), nn.ReLU(), nn.Linear(4, 4))
""",
}

LAYERS = """
class View(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
    def forward(self, x):
        return x.reshape(self.shape)

class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU()
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
    def forward(self, x):
        return self.relu(self.norm(self.conv(x)) + self.shortcut(x))

class Tokens(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.embedding = nn.Embedding(count, width)
    def forward(self, x):
        return self.embedding((x > 0).long().sum(1) % self.embedding.num_embeddings)

@dataclasses.dataclass
class Config:
    width: int = 4
    scale: float = 0.5

class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.query, self.value = nn.Linear(config.width, config.width), nn.Linear(config.width, config.width)
        self.register_buffer("mask", torch.ones(8, 8).tril(), persistent=False)
    def forward(self, x):
        scores = self.query(x) @ x.T * self.config.scale
        scores = scores.masked_fill(self.mask[: len(x), : len(x)] == 0, float("-inf"))
        return torch.softmax(scores, -1) @ self.value(x)

class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell
    def forward(self, x):
        return self.cell(x)[0]
"""

OPTIMIZERS = (
    "torch.optim.SGD(PARAMETERS, lr=0.1, momentum=0.9)",
    "torch.optim.SGD(PARAMETERS, lr=0.1)",
    "torch.optim.Adam(PARAMETERS, lr=0.01)",
    "torch.optim.AdamW(PARAMETERS, lr=0.01, weight_decay=0.01)",
    "torch.optim.RMSprop(PARAMETERS, lr=0.01)",
    "torch.optim.Adagrad(PARAMETERS, lr=0.05)",
)
ANNOUNCED = ("environment", "context variable", "thread local", "random object", "counter")


class Program:
    """The text of a random program, drawn by its seed."""

    def __init__(self, seed: int):
        rng = random.Random(seed)
        followed = [f for f in guard_facts.FACTS if f.kind not in ANNOUNCED]
        kinds = rng.sample(followed, 5)
        if rng.random() < 0.1:
            kinds.append(rng.choice([f for f in guard_facts.FACTS if f.kind in ANNOUNCED]))
        self.facts: list[Fact] = [fact.numbered(i) for i, fact in enumerate(kinds)]
        self.body = rng.choice(list(BODIES))
        self.optimizer = rng.choice(OPTIMIZERS)
        self.reads_rate = rng.random() < 0.1
        self.seed = seed

    def source(self) -> str:
        def methods(table):
            return "".join(table.get(f.kind, "").replace("N_", f"{i}_") for i, f in enumerate(self.facts))

        inits = "".join(f"        {f.init}\n" for f in self.facts if f.init)
        reads = "".join(f"        y = torch.tanh({f.read})\n" for f in self.facts)
        rate = "        y = y * optimizer.param_groups[0]['lr']\n" if self.reads_rate else ""
        return (
            guard_facts.IMPORTS + LAYERS + "".join(f.file for f in self.facts)
            + f"class Base(nn.Module):\n    pass\n{methods(guard_facts.BASE_METHODS)}\nclass Model(Base):\n    def __init__(self):\n        super().__init__(){BODIES[self.body]}"
            + f"        self.register_buffer('seen', torch.zeros(4))\n{inits}{methods(guard_facts.METHODS)}"
            + f"    def forward(self, x, shift, factor):\n        self.seen.mul_(0.5)\n        y = self.body(x)\n{reads}{rate}"
            + "        self.seen.add_(shift + 1)\n        return y * factor + self.seen * 0.1\n"
            + f"model = Model()\noptimizer = {self.optimizer.replace('PARAMETERS', 'model.parameters()')}\n"
        )  # fmt: skip


class World:
    """One instance of a program: its namespace, and steps of training in one of three ways."""

    def __init__(self, program: Program, mode: str):
        self.space = sys.modules["user_file"] = types.ModuleType("user_file")
        self.space.settings = types.ModuleType("user_settings")
        self.path = f"/tmp/user_files/{mode}_{program.seed}.py"
        torch.manual_seed(program.seed)
        self.run(program.source())
        self.model, self.optimizer = self.space.model, self.space.optimizer
        self.rows, self.factor, self.next_shift, self.calls = 4, 1.0, None, 0
        self.step = {"eager": self.eager, "graph": self.graph, "compiled": self.compiled}[mode]()

    def run(self, text: str):
        exec(compile(text, self.path, "exec"), vars(self.space))

    def loss(self, x, shift, factor):
        loss = self.model(x, shift, factor).square().mean()
        loss.backward()
        return loss

    def eager(self):
        def step(*args):
            self.optimizer.zero_grad()
            loss = self.loss(*args)
            self.optimizer.step()
            return loss

        return step

    def compiled(self):
        model = torch.compile(lambda *args: self.model(*args).square().mean(), backend="eager")

        def step(*args):
            self.optimizer.zero_grad()
            loss = model(*args)
            loss.backward()
            self.optimizer.step()
            return loss

        return step

    def graph(self):
        world = self

        class Training(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = world.model
                self.add_optimizer(world.optimizer)
                self.config.set_backend("aten")

            def build(self, *args):
                return world.loss(*args)

        return Training()

    def call(self):
        """One step; returns everything that it computed and changed."""
        torch.manual_seed(1000 + self.calls)
        x = torch.randn(self.rows, 4)
        shift = torch.full((4,), 0.1) if self.next_shift is None else self.next_shift
        self.calls, self.next_shift = self.calls + 1, None
        loss = self.step(x, shift, self.factor)
        names = [*self.model.named_parameters(), *self.model.named_buffers()]
        states = [self.optimizer.state.get(p, {}) for _, p in names]
        numbers = [v for state in states for v in state.values() if isinstance(v, torch.Tensor)]
        return [loss.detach(), torch.get_rng_state(), *(t.detach() for _, t in names), *numbers]


def same(first, second) -> bool:
    """Whether two lists of tensors have the same bits, nan included."""
    return len(first) == len(second) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and (
            torch.equal(a, b)
            or torch.equal(a.isnan(), b.isnan())
            and torch.equal(a.nan_to_num(), b.nan_to_num())
        )
        for a, b in zip(first, second)
    )
