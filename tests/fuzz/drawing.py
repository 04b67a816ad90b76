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
    REDUCTIONS,
    SCHEDULES,
    UNKNOWN,
    WRITES,
    Unfit,
)
from training import terms_of, weighted

LARGEST, MOST_ELEMENTS, MOST_PARAMETERS = 50.0, 40_000, 1_000_000
HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


@dataclass(frozen=True)
class Statement:
    """`out = text`, or a write in place: `text` with out None. `module` is what makes the layer that it
    calls.
    """

    text: str
    out: str | None = None
    module: str = ""

    def uses(self):
        return set(re.findall(r"\b[bpxnv]\d+\b", self.text))

    def target(self):
        """The name of what a write writes, which it begins with."""
        return re.search(r"\b[bpxnv]\d+\b(\.grad)?", self.text)[0]

    def written(self):
        return self.target().removesuffix(".grad")


@dataclass(frozen=True)
class Program:
    """Parameters, buffers and inputs by name and expression, statements, names of the results, and what makes
    optimizer, schedule and clipping.

    The loss is made of the floating results, each reduced to a number: one sum, or with `several_losses` one
    backward() each. The statements of `after` run after backward, without gradients.
    """

    seed: int
    parameters: dict
    inputs: dict
    statements: tuple = ()
    results: tuple = ()
    training: tuple = (OPTIMIZERS[0], SCHEDULES[0], CLIPS[0])
    shapes: dict = field(default_factory=dict, compare=False)  # name: (shape, dtype), for shrinking
    buffers: dict = field(default_factory=dict)
    after: tuple = ()
    reductions: tuple = ("weighted",)
    several_losses: bool = False
    shows_gradients: bool = False

    def source(self):
        layers = [f"self.m{s.out[1:]} = {s.module}" for s in self.statements if s.module]
        own = [f"{name} = self.{name}" for name in (*self.parameters, *self.buffers)]
        terms = f"terms_of(results, [{', '.join(self.reductions)}])"
        initial = [
            "super().__init__()",
            *(f"self.{name} = nn.Parameter({text})" for name, text in self.parameters.items()),
            *(f'self.register_buffer("{name}", {text})' for name, text in self.buffers.items()),
            *layers,
        ]
        forward = [
            *own,
            *(f"{s.out + ' = ' if s.out else ''}{s.text}" for s in self.statements),
            f"return [{', '.join(self.results)}]",
        ]
        after = [*own, *(s.text for s in self.after)] if self.after else ["pass"]
        optimizer, schedule, clip = self.training
        return "\n".join(
            [
                HEADER,
                "",
                "class Program(nn.Module):",
                f"    shows_gradients = {self.shows_gradients}",
                "",
                *method("__init__(self)", initial),
                *method(f"forward(self, {', '.join(self.inputs)})", forward),
                *method("after(self)", after),
                "",
                *function("inputs()", [f"return [{', '.join(self.inputs.values())}]"]),
                *function(
                    "training(trained)",
                    [f"optimizer = {optimizer}", f"return optimizer, {schedule}, lambda: {clip}"],
                ),
                *function(
                    "losses(results)", [f"return {terms if self.several_losses else f'[sum({terms})]'}"]
                ),
            ]
        )

    def load(self):
        """(the module, the functions that make inputs, optimizer and losses)"""
        source, name = self.source(), f"program{self.seed}.py"
        space = {"terms_of": terms_of, "weighted": weighted}
        linecache.cache[name] = len(source), None, source.splitlines(True), name  # for messages
        exec(compile(source, name, "exec"), space)
        torch.manual_seed(self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = space["Program"]()
        module = module if self.parameters else module.requires_grad_(False)
        return module, space["inputs"], space["training"], space["losses"]


def function(signature, lines):
    return [f"def {signature}:", *(f"    {line}" for line in lines), "", ""]


def method(signature, lines):
    return [f"    {line}".rstrip() for line in function(signature, lines)[:-1]]


class Draw:
    """The context from which the operators' table samples: sizes, names of tensors so far, numbers."""

    def __init__(self, seed, sizes, sizes_a_program=4):
        self.rng = random.Random(seed)
        self.sizes = self.rng.sample(sizes, min(sizes_a_program, len(sizes)))
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

    def named(self, pattern, test):
        """As `name`, among those whose whole name matches the pattern."""
        names = [name for name in self.values if re.fullmatch(pattern, name) and test(self.values[name])]
        if not names:
            raise Unfit
        return self.rng.choice(names)

    def of(self, name):
        return self.values[name]

    def evaluate(self, text):
        """The tensor that an expression of names gives; Unfit if it raises."""
        try:
            return eval(text, {"torch": torch, "F": torch.nn.functional}, self.values)
        except Exception as error:
            raise Unfit from error

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
        return (
            f"({name} {self.one_of('<', '>', '<=', '>=')}"
            f" {self.one_of(self.like(name), self.number(-0.5, 0.5))})"
        )


def broadcasts(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def draw_program(seed, length=24, sizes=(1, 2, 3, 4, 5, 7, 8, 16, 17), unknown=False, branches=False):
    """A program of `length` statements that trains in eager; the same for the same arguments. `unknown`: with
    sizes that depend on values, and `branches`: with branches that do.
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
        **draw_losses(random.Random(f"losses of {seed}")),
    )
    program = replace(
        program,
        inputs={**program.inputs, "n0": f"torch.randint(0, 4, {draw.shape(1, 2)})"},
        results=("p0",) if program.parameters else ("x0",),
    )
    draw.values, _, program = run(program)
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
            draw.values, _, program = tried
            number += 1
    return program


def draw_losses(rng):
    """The fields of a program that say how its loss is made."""
    return {
        "reductions": tuple(rng.choices(REDUCTIONS, k=rng.choice((1, 1, 2)))),
        "several_losses": rng.random() < 0.2,
        "shows_gradients": rng.random() < 0.3,
    }


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
    """With the statement, and its result (or the tensor it writes) among the results instead of those it
    reads.
    """
    if statement.out:
        keep, new = [r for r in program.results if r not in statement.uses()], [statement.out]
    else:
        keep = list(program.results)
        new = [name for name in [statement.written()] if name not in keep]
    return replace(program, statements=(*program.statements, statement), results=tuple((keep + new)[-5:]))


def run(program):
    """Run one step in eager. Return the values by name, those after backward, and the program with the
    shapes; raise if a value is unfit.
    """
    module, inputs, training, losses = program.load()
    torch.manual_seed(program.seed)
    input_values = inputs()
    space = {
        "torch": torch,
        "F": torch.nn.functional,
        "nn": torch.nn,
        "self": module,
        **dict(module.named_parameters(recurse=False)),
        **dict(module.named_buffers(recurse=False)),
        **dict(zip(program.inputs, input_values)),
    }
    named = [*program.parameters, *program.buffers, *program.inputs]
    for statement in program.statements:
        exec(f"{statement.out} = {statement.text}" if statement.out else statement.text, space)
        if statement.out:
            check_fit(space[statement.out], MOST_ELEMENTS)
            named.append(statement.out)
    values = {name: space[name].detach() for name in named}
    late = {}
    if program.parameters:
        training([p for p in module.parameters() if p.requires_grad])
        late = backward(program, module, losses([space[r] for r in program.results]))
    shapes = {name: (tuple(v.shape), v.dtype) for name, v in {**values, **late}.items()}
    return values, late, replace(program, shapes=shapes)


def backward(program, module, losses):
    """Run what a step does after forward. Return parameters, gradients and buffers by name."""
    for i, loss in enumerate(losses):
        loss.backward(retain_graph=i + 1 < len(losses))
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    if not gradients:
        raise ValueError("nothing to train")
    for g in gradients:
        check_fit(g, MOST_PARAMETERS)
    with torch.no_grad():
        module.after()
    late = {}
    for name in (*program.parameters, *program.buffers):
        state = getattr(module, name)
        check_fit(state, MOST_ELEMENTS)
        late[name] = state.detach().clone()
        if state.grad is not None:
            late[name].grad = late[f"{name}.grad"] = state.grad.detach()
            check_fit(state.grad, MOST_ELEMENTS)
    return late


def check_fit(value, most_elements):
    if not torch.is_tensor(value) or value.numel() > most_elements:
        raise ValueError("no tensor, or too many elements")
    if value.numel() and (not value.isfinite().all() or value.abs().max() > LARGEST):
        raise ValueError("too large")


def run_or_none(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(program)
        except Exception:
            return None
