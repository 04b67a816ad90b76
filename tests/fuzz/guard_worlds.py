"""Random programs for the guard fuzzer: a file, a module, an optimizer, and steps in eager mode, as a graph
or compiled.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import tempfile
import types
from pathlib import Path

import guard_facts
import torch
from guard_facts import Fact

import oneflow as flow

BODIES = {
    "small": """
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Tanh(), nn.Identity(), nn.Linear(4, 4))
""",
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
# models of packages, sampled for some programs if the packages are installed
MODELS = {
    "gpt2": ("transformers", """
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0)
        self.body = nn.Sequential(TokenIds(16), Field(GPT2LMHeadModel(config), "logits"), nn.Identity(), nn.Linear(16, 4))
"""),
    "llama": ("transformers", """
        from transformers import LlamaConfig, LlamaModel
        config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16, max_position_embeddings=16)
        self.body = nn.Sequential(TokenIds(16), Field(LlamaModel(config), "last_hidden_state"), nn.Identity(), nn.Linear(8, 4))
"""),
    "bert": ("transformers", """
        from transformers import BertConfig, BertModel
        config = BertConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16, max_position_embeddings=16)
        self.body = nn.Sequential(TokenIds(16), Field(BertModel(config, add_pooling_layer=False), "last_hidden_state"), nn.Identity(), nn.Linear(8, 4))
"""),
    "swin": ("flowvision", """
        from flowvision.models.swin_transformer import SwinTransformer
        self.body = nn.Sequential(Pixels(3, 8), SwinTransformer(img_size=8, patch_size=2, num_classes=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2), nn.Identity(), nn.Linear(4, 4))
"""),
}  # fmt: skip

LAYERS = """
class TokenIds(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count
    def forward(self, x):
        return (x * 5).long().abs() % self.count

class Pixels(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.channels, self.size = channels, size
    def forward(self, x):
        return x.mean(1).reshape(-1, 1, 1, 1) * torch.linspace(-1, 1, self.channels * self.size**2).reshape(1, self.channels, self.size, self.size)

class Field(nn.Module):
    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name
    def forward(self, x):
        return getattr(self.model(x), self.name).mean(1)

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
SCHEDULES = (
    "None",
    "torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)",
    "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)",
    "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)",
)
ROUNDING = 1e-6  # a gradient this much smaller than the largest is rounding: float32 has 1.2e-7, and sums have ten terms
MODEL_SHARE = 0.02  # programs with a model of an installed package: they take ten times as long
SMALL_SHARE = 0.5  # programs with a small model: a capture takes as long as it records operators
_NUMBERS = itertools.count()
_FOLDER = tempfile.TemporaryDirectory(prefix="guard_programs")


def drawn_body(rng: random.Random) -> str:
    models = [n for n, (package, _) in MODELS.items() if importlib.util.find_spec(package)]
    if models and rng.random() < MODEL_SHARE:
        return rng.choice(models)
    return "small" if rng.random() < SMALL_SHARE else rng.choice(list(BODIES))


class Program:
    """The text of a random program, generated from its seed."""

    def __init__(self, seed: int):
        rng = random.Random(seed)
        kinds = rng.sample(guard_facts.FACTS, 5)
        if rng.random() < 0.1:
            kinds.append(rng.choice(guard_facts.ANNOUNCED))
        self.announced = len(kinds) > 5
        self.facts: list[Fact] = [fact.numbered(i) for i, fact in enumerate(kinds)]
        self.body = drawn_body(rng)
        self.optimizer = rng.choice(OPTIMIZERS)
        self.schedule = rng.choice(SCHEDULES) if rng.random() < 0.3 else "None"
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
            + f"class Base(nn.Module):\n    pass\n{methods(guard_facts.BASE_METHODS)}\nclass Model(Base):\n    def __init__(self):\n        super().__init__(){BODIES.get(self.body) or MODELS[self.body][1]}"
            + f"        self.register_buffer('seen', torch.zeros(4))\n{inits}{methods(guard_facts.METHODS)}"
            + f"    def forward(self, x, shift, factor):\n        self.seen.mul_(0.5)\n        y = self.body(x)\n{reads}{rate}"
            + "        self.seen.add_(shift + 1)\n        return y * factor + self.seen * 0.1\n"
            + f"model = Model()\noptimizer = {self.optimizer.replace('PARAMETERS', 'model.parameters()')}\n"
            + f"schedule = {self.schedule}\n"
        )  # fmt: skip


class World:
    """One instance of a program: its namespace, and steps of training in one of several modes."""

    def __init__(self, program: Program, mode: str):
        name = f"user_file_{mode}_{next(_NUMBERS)}"  # Dynamo remembers modules by their names
        self.space = sys.modules[name] = types.ModuleType(name)
        self.space.settings = sys.modules[f"{name}_settings"] = types.ModuleType(f"{name}_settings")
        self.path = Path(_FOLDER.name, f"{mode}_{program.seed}.py")
        self.path.write_text(program.source())  # warnings, inspect and Dynamo read the source
        self.space.__file__ = self.space.settings.__file__ = str(self.path)
        torch.manual_seed(program.seed)
        self.run(program.source(), str(self.path))
        self.model, self.optimizer, self.schedule = (
            self.space.model,
            self.space.optimizer,
            self.space.schedule,
        )
        self.rows, self.factor, self.next_shift, self.calls = 4, 1.0, None, 0
        self.next_rows = torch.Tensor.clone  # makes the next argument
        self.served = None  # identity of the program that ran last
        self.step = getattr(self, {"eager": "eager", "compiled": "compiled"}.get(mode, "graph"))(mode)

    def run(self, text: str, path: str = "<change>"):
        exec(compile(text, path, "exec", dont_inherit=True), vars(self.space))

    def loss(self, x, shift, factor):
        loss = self.model(x, shift, factor).square().mean()
        loss.backward()
        return loss

    def update(self):
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def clear_gradients(self):
        """Clear them as a graph does: also of parameters that left the optimizer or the model."""
        self.optimizer.zero_grad()
        self.model.zero_grad()

    def eager(self, mode):
        def step(*args):
            self.clear_gradients()
            loss = self.loss(*args)
            self.update()
            return loss

        return step

    def compiled(self, mode):
        """Dynamo's guards, and eager's kernels; `served` is how many graphs were compiled."""
        torch._dynamo.reset()
        torch._dynamo.config.recompile_limit = 64  # beyond it Dynamo runs eager, which hides a missing guard
        self.served = 0

        def backend(graph, inputs):
            self.served += 1
            return graph

        model = torch.compile(lambda *args: self.model(*args).square().mean(), backend=backend)

        def step(*args):
            self.clear_gradients()
            loss = model(*args)
            loss.backward()
            self.update()
            return loss

        return step

    def graph(self, mode):
        world = self

        class Training(flow.nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = world.model
                self.add_optimizer(world.optimizer, lr_sch=world.schedule)
                self.config.set_backend(mode)

            def build(self, *args):
                return world.loss(*args)

        training = Training()

        def step(*args):
            loss = training(*args)
            self.served = id(training._engine.program)
            return loss

        return step

    def call(self):
        """One step; returns everything that it computed and changed."""
        torch.manual_seed(1000 + self.calls)
        x = self.next_rows(torch.randn(self.rows, 4))
        shift = torch.full((4,), 0.1) if self.next_shift is None else self.next_shift
        self.calls, self.next_shift, self.next_rows = self.calls + 1, None, torch.Tensor.clone
        loss = self.step(x, shift, self.factor)
        rates = [torch.as_tensor(float(group["lr"])) for group in self.optimizer.param_groups]
        return [loss.detach(), torch.get_rng_state(), *(t.detach().clone() for t in self.tensors()), *rates]

    def tensors(self) -> list[torch.Tensor]:
        """Parameters, buffers and their optimizer state."""
        named = [*self.model.parameters(), *self.model.buffers()]
        states = [self.optimizer.state.get(t, {}) for t in named]
        return [*named, *(v for state in states for v in state.values() if isinstance(v, torch.Tensor))]

    def rounding_steps(self) -> list[torch.Tensor | None]:
        """For each tensor of `tensors`, the elements whose gradient is zero up to rounding; None if it has no
        gradient.

        The gradient of attention's key bias is zero in exact arithmetic: the bias adds the same number to all
        scores of a query, and softmax ignores it. Adam and Adagrad divide a gradient by its own magnitude, so they
        scale rounding up to a whole step, whose sign differs between two correct kernels.
        """
        tensors = self.tensors()
        largest = max((float(t.grad.abs().max()) for t in tensors if t.grad is not None), default=0.0)
        if not largest:
            return [None] * len(tensors)
        return [t.grad.abs() < ROUNDING * largest if t.grad is not None else None for t in tensors]

    @torch.no_grad()
    def adopt(self, values: list[torch.Tensor]):
        """Take the values that `call` gave in another world, so that differences of rounding do not grow."""
        for tensor, value in zip(self.tensors(), values[2:]):
            tensor.copy_(value)


def without_rounding_steps(values: list[torch.Tensor], steps) -> list[torch.Tensor]:
    """Return the values of a call, with zeros where only rounding decides (`World.rounding_steps`)."""
    if not steps:
        return values
    loss, random_state, *rest = values
    steps = [*steps, *[None] * (len(rest) - len(steps))]
    return [loss, random_state, *(v if s is None else v.masked_fill(s, 0) for v, s in zip(rest, steps))]


def same(first, second, tolerance=0.0) -> bool:
    """Whether two lists of tensors have the same bits, nan included, or the same values up to a tolerance."""
    return len(first) == len(second) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and (
            torch.equal(a, b)
            or torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
            and (tolerance > 0 or torch.equal(a.nan_to_num(), b.nan_to_num()))
        )
        for a, b in zip(first, second)
    )
