"""Small random programs that write memory: computed tensors and buffers in forward, parameters, gradients and
buffers after backward.
"""

import copy
import math
import random
from dataclasses import replace

import memory_writes
from drawing import Draw, Program, Statement, draw_losses, extended, run_or_none
from operators import CLIPS, EXPRESSIONS, INPUTS, MODULES, OPTIMIZERS, SCHEDULES, Unfit

LENGTH = 8
MOST_LATE_WRITES = 3
MOST_ELEMENTS = 400  # of a parameter
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17)
STATE = (
    "torch.randn({})",
    "torch.randn({})",
    "torch.zeros({})",
    "torch.arange({n}.0).view({}) / {n}",
    "torch.ones({})",
)
COUNTER = "torch.zeros((), dtype=torch.long)"


def draw_memory_program(seed, length=LENGTH, sizes=SIZES, random_numbers=False):
    """A program of about `length` statements that trains in eager; the same for the same arguments."""
    draw = Draw(seed, sizes, sizes_a_program=2)
    while not (tried := run_or_none(first_program(draw, seed))):  # an input may need more dimensions
        pass
    draw.values, late, program = tried
    number = len(program.statements)
    for _ in range(20 * length):
        if len(program.statements) == length:
            break
        statement = draw_statement(
            draw, f"v{number}", latest_target(program.statements, draw.values), random_numbers
        )
        tried = statement and run_or_none(extended(program, statement))
        if tried:
            draw.values, late, program = tried
            number += 1
    return with_late_writes(draw, program, late)


def first_program(draw, seed):
    shapes = [small_shape(draw) for _ in range(2)]
    parameters = {f"p{i}": f"torch.randn({draw.one_of(*shapes)})" for i in range(draw.integer(1, 3))}
    buffers = {f"b{i}": state(draw, draw.one_of(*shapes)) for i in range(draw.integer(0, 3))}
    if buffers and draw.one_of(True, False):
        buffers[f"b{len(buffers)}"] = COUNTER
    inputs = {f"x{i}": draw.one_of(INPUTS[0], INPUTS[0], *INPUTS) for i in range(draw.integer(1, 2))}
    inputs = {
        name: text.replace("{}", str(draw.one_of(*shapes, small_shape(draw))))
        for name, text in inputs.items()
    }
    inputs["n0"] = f"torch.randint(0, 4, {draw.shape(1, 1)})"
    training = tuple(map(draw.rng.choice, (OPTIMIZERS, SCHEDULES, CLIPS)))
    losses = draw_losses(random.Random(f"losses of {seed}"))
    factors = [draw.number(0.5, 1.5) for _ in parameters]
    computed = tuple(
        Statement(f"p{i} * {factor}", f"v{i}") for i, factor in enumerate(factors)
    )  # targets of writes that train the parameters
    return Program(
        seed,
        parameters,
        inputs,
        computed,
        tuple(s.out for s in computed),
        training,
        buffers=buffers,
        **losses,
    )


def small_shape(draw):
    while math.prod(shape := draw.shape(1, 3)) > MOST_ELEMENTS:
        pass
    return shape


def latest_target(statements, values):
    """The tensor that the last statement writes or computes, if it can be written."""
    if not statements:
        return None
    name = statements[-1].out or statements[-1].written()
    can_write = name[0] in "vb" and name in values and memory_writes.is_target(values[name])
    return name if can_write else None


def state(draw, shape):
    return draw.one_of(*STATE).replace("{}", str(shape)).replace("{n}", str(math.prod(shape)))


def draw_statement(draw, out, latest, random_numbers):
    choice = draw.rng.random()
    try:
        if choice < 0.45:
            return Statement(memory_writes.draw_write(draw, latest))
        if choice < 0.55:
            return Statement(memory_writes.draw_buffer_update(draw))
        if choice < 0.6:
            make, call = draw.rng.choice(MODULES)(draw)
            return Statement(call.replace("self.m", f"self.m{out[1:]}"), out, make)
        if choice < 0.65:
            return Statement(draw.rng.choice(EXPRESSIONS)(draw), out)
        if choice < 0.7 and random_numbers:
            return Statement(draw.rng.choice(memory_writes.RANDOM_EXPRESSIONS)(draw), out)
        return Statement(draw.rng.choice(memory_writes.EXPRESSIONS)(draw), out)
    except Unfit:
        return None


def with_late_writes(draw, program, late):
    """The program with writes after backward."""
    count, draw = draw.integer(0, MOST_LATE_WRITES), copy.copy(draw)
    for _ in range(10 * count):
        if len(program.after) == count:
            break
        draw.values = late
        try:
            latest = program.after[-1].target() if program.after else None
            statement = Statement(memory_writes.draw_late_write(draw, latest))
        except Unfit:
            continue
        tried = run_or_none(replace(program, after=(*program.after, statement)))
        if tried:
            _, late, program = tried
    return program
