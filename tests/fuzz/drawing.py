"""Random training programs as source text. They are generated statement by statement; a statement is kept if
it runs in eager mode.
"""

import linecache
import random
import re
import warnings
from dataclasses import dataclass, field, replace

import torch
from operators import (
    BRANCHES,
    CLIPS,
    EXPRESSIONS,
    INPUTS,
    MODULES,
    OPTIMIZERS,
    SCHEDULES,
    UNKNOWN,
    WRITES,
    Unfit,
)
from training import loss_of

LARGEST, MOST_ELEMENTS = 50.0, 40_000
HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


@dataclass(frozen=True)
class Statement:
    """`out = text`, or a write in place: `text` with out None. `module` is what makes the layer that it calls."""

    text: str
    out: str | None = None
    module: str = ""

    def uses(self):
        return set(re.findall(r"\b[pxnv]\d+\b", self.text))


@dataclass(frozen=True)
class Program:
    """Parameters and inputs by name and expression, statements, names of the results (the loss is made of the floating ones), and
    what makes optimizer, schedule and clipping.
    """

    seed: int
    parameters: dict
    inputs: dict
    statements: tuple = ()
    results: tuple = ()
    training: tuple = (OPTIMIZERS[0], SCHEDULES[0], CLIPS[0])
    shapes: dict = field(default_factory=dict, compare=False)  # name: (shape, dtype), for shrinking

    def source(self):
        layers = [f"        self.m{s.out[1:]} = {s.module}\n" for s in self.statements if s.module]
        return (
            HEADER
            + "\n\nclass Program(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            + "".join(
                f"        self.{name} = nn.Parameter({text})\n" for name, text in self.parameters.items()
            )
            + "".join(layers)
            + f"\n    def forward(self, {', '.join(self.inputs)}):\n"
            + (
                f"        {', '.join(self.parameters)}, = {', '.join('self.' + p for p in self.parameters)},\n"
                if self.parameters
                else ""
            )
            + "".join(f"        {s.out + ' = ' if s.out else ''}{s.text}\n" for s in self.statements)
            + f"        return [{', '.join(self.results)}]\n\n\ndef inputs():\n    return [{', '.join(self.inputs.values())}]\n"
            + "\n\ndef training(trained):\n    optimizer = {}\n    return optimizer, {}, lambda: {}\n".format(
                *self.training
            )
        )

    def load(self):
        """(the module, the functions that make inputs and optimizer)"""
        space, source, name = {}, self.source(), f"program{self.seed}.py"
        linecache.cache[name] = len(source), None, source.splitlines(True), name  # for messages
        exec(compile(source, name, "exec"), space)
        torch.manual_seed(self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = space["Program"]()
        return module if self.parameters else module.requires_grad_(False), space["inputs"], space["training"]


class Draw:
    """The context from which the operators' table samples: sizes, names of tensors so far, numbers."""

    def __init__(self, seed, sizes):
        self.rng = random.Random(seed)
        self.sizes = self.rng.sample(sizes, min(4, len(sizes)))
        self.values = {}  # name: tensor, as eager computes it

    def size(self):
        return self.rng.choice(self.sizes)

    def shape(self, low=1, high=4):
        return tuple(self.size() for _ in range(self.rng.randint(low, high)))

    def number(self, low=-2.0, high=2.0):
        return round(self.rng.uniform(low, high), 2)

    def integer(self, low, high):
        return self.rng.randint(low, high)

    def one_of(self, *choices):
        return self.rng.choice(choices)

    def tensor(self, test=lambda t: True):
        """The name of a floating tensor, seldom an empty one; late ones more often."""
        empty = self.rng.random() < 0.02
        return self.name(lambda t: t.is_floating_point() and (t.numel() > 0 or empty) and test(t))

    def name(self, test):
        names = [name for name, t in self.values.items() if test(t)]
        if not names:
            raise Unfit
        return self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names)

    def of(self, name):
        return self.values[name]

    def dim(self, name):
        """A dimension of the tensor, from the front or the back."""
        n = self.values[name].dim()
        if n == 0:
            raise Unfit
        return self.rng.randrange(-n, n)

    def matching(self, name):
        """The name of a tensor that broadcasts with this one."""
        shape = self.values[name].shape
        return self.tensor(lambda t: broadcasts(t.shape, shape))

    def like(self, name):
        """The name of a tensor of the same shape, another tensor if there is one."""
        shape = self.values[name].shape
        same = [n for n, t in self.values.items() if t.shape == shape and t.is_floating_point()]
        return self.rng.choice([n for n in same if n != name] or same)

    def condition(self, name):
        """A condition of the tensor's shape."""
        return f"({name} {self.one_of('<', '>', '<=', '>=')} {self.one_of(self.like(name), self.number(-0.5, 0.5))})"


def broadcasts(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def draw_program(seed, length=24, sizes=(1, 2, 3, 4, 5, 7, 8, 16, 17), unknown=False, branches=False):
    """A program of `length` statements that trains in eager; the same for the same arguments. `unknown`: with sizes that depend on values, and
    `branches`: with branches that do.
    """
    draw = Draw(seed, sizes)
    program = Program(
        seed,
        {
            f"p{i}": draw_parameter(draw, i) for i in range(draw.one_of(0, 1, 1, 2, 2, 3, 3))
        },  # without any it is inference
        {
            f"x{i}": draw.rng.choice([INPUTS[0], *INPUTS]).replace("{}", str(draw.shape(2, 4)))
            for i in range(draw.integer(1, 3))
        },
        training=tuple(map(draw.rng.choice, (OPTIMIZERS, SCHEDULES, CLIPS))),
    )
    program = replace(
        program,
        inputs={**program.inputs, "n0": f"torch.randint(0, 4, {draw.shape(1, 2)})"},
        results=("p0",) if program.parameters else ("x0",),
    )
    draw.values, program = run(program)
    number = 0
    for _ in range(40 * length):
        if len(program.statements) == length:
            break
        statement = (
            draw_again(draw, program, f"v{number}")
            if draw.rng.random() < 0.03
            else draw_statement(draw, f"v{number}", UNKNOWN * unknown + BRANCHES * branches)
        )
        tried = statement and run_or_none(extended(program, statement))
        if tried:
            draw.values, program = tried
            number += 1
    return program


def draw_parameter(draw, i):
    text = f"torch.randn({draw.shape()})"
    return (
        draw.one_of(
            text,
            text,
            text,
            text,
            text[:-1] + ", dtype=torch.bfloat16)",
            text + ", requires_grad=False",
            "torch.randn(())",
            text + ".transpose(0, -1)",
        )
        if i
        else text
    )


def draw_again(draw, program, out):
    """A layer called once more, with another tensor of the shape."""
    layers = [s for s in program.statements if s.module]
    if layers:
        text = draw.rng.choice(layers).text
        return Statement(re.sub(r"\bv\d+\b", lambda m: draw.like(m[0]), text), out)


def draw_statement(draw, out, of_values):
    kind = draw.rng.random()
    try:
        if of_values and kind > 0.85:
            return Statement(draw.rng.choice(of_values)(draw), out)
        if kind < 0.12:
            make, call = draw.rng.choice(MODULES)(draw)
            return Statement(call.replace("self.m", f"self.m{out[1:]}"), out, make)
        if kind < 0.24:
            return Statement(draw.rng.choice(WRITES)(draw))
        return Statement(draw.rng.choice(EXPRESSIONS)(draw), out)
    except Unfit:
        return None


def extended(program, statement):
    """With the statement, and its result (or the tensor it writes) among the results instead of those it reads."""
    keep = (
        [r for r in program.results if r not in statement.uses()] if statement.out else list(program.results)
    )
    new = (
        [statement.out]
        if statement.out
        else [n for n in sorted(statement.uses(), reverse=True)[:1] if n not in keep]
    )
    return replace(program, statements=(*program.statements, statement), results=tuple((keep + new)[-5:]))


def run(program):
    """(values by name, program with their shapes) of one step in eager; raises where the program is no good."""
    module, inputs, training = program.load()
    values = {name: p.detach() for name, p in module.named_parameters() if name in program.parameters}
    torch.manual_seed(program.seed)
    input_values = inputs()
    values.update(zip(program.inputs, input_values))
    space = {
        "torch": torch,
        "F": torch.nn.functional,
        "nn": torch.nn,
        "self": module,
        **dict(module.named_parameters(recurse=False)),
        **dict(zip(program.inputs, input_values)),
    }
    for statement in program.statements:
        exec(f"{statement.out} = {statement.text}" if statement.out else statement.text, space)
        if statement.out:
            value = space[statement.out]
            if (
                not torch.is_tensor(value)
                or value.numel() > MOST_ELEMENTS
                or not value.isfinite().all()
                or (value.numel() and value.abs().max() > LARGEST)
            ):
                raise ValueError("no tensor, too many elements, or too large")
    for name in [s.out for s in program.statements if s.out]:
        values[name] = space[name].detach()
    loss = loss_of([space[r] for r in program.results])
    if program.parameters:
        training([p for p in module.parameters() if p.requires_grad])
        loss.backward()
        if all(p.grad is None for p in module.parameters()):
            raise ValueError("nothing to train")
        if not all(
            p.grad is None or (p.grad.isfinite().all() and p.grad.abs().max() < LARGEST)
            for p in module.parameters()
            if p.numel()
        ):
            raise ValueError("gradients too large")
    return values, replace(program, shapes={name: (tuple(v.shape), v.dtype) for name, v in values.items()})


def run_or_none(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(program)
        except Exception:
            return None
