"""Shrink a failing program and write it as a script."""

import inspect
import re
import time
from dataclasses import replace

from drawing import HEADER, Program
from training import loss_of, train


def kind_of(said):
    """The failure that shrinking must preserve: a crash, an error of this class, or different values."""
    return said and ("numbers" if " after step " in said else said.split(":")[0])


def shrink(program, check, seconds):
    """The smallest program found for which `check` says the same kind of thing; it gives None for one that is right or does not run."""
    end, kind = time.time() + seconds, kind_of(check(program))
    while time.time() < end:
        program, before = (
            next((p for p in smaller(program) if time.time() < end and kind_of(check(p)) == kind), program),
            program,
        )
        if program is before:
            break
    return program


def smaller(program):
    """Programs with less: all that no result needs, a result, a statement whose place another tensor of its shape takes, a parameter or input."""
    needed, live = [], set(program.results)
    for statement in reversed(program.statements):
        if statement.out is None or statement.out in live:
            needed.insert(0, statement)
            live |= statement.uses()
    if len(needed) < len(program.statements):
        yield replace(program, statements=tuple(needed))
    if len(program.results) > 1:
        for name in program.results:
            yield replace(program, results=tuple(r for r in program.results if r != name))
    for i in reversed(range(len(program.statements))):
        yield from without(program, i)
    if program.training != Program.training:
        yield replace(program, training=Program.training)
    for kind in ("parameters", "inputs"):
        shapes = getattr(program, kind)
        for name in shapes:
            if name not in live and len(shapes) > 1:
                yield replace(program, **{kind: {k: v for k, v in shapes.items() if k != name}})


def without(program, i):
    """Programs without statement i, and the program that ends with it."""
    statement, rest = program.statements[i], program.statements[:i] + program.statements[i + 1 :]
    if (
        statement.out is None
        or not any(statement.out in s.uses() for s in rest)
        and statement.out not in program.results
    ):
        yield replace(program, statements=rest)
        return
    if i + 1 < len(program.statements):
        yield replace(program, statements=program.statements[: i + 1], results=(statement.out,))
    earlier = [*program.parameters, *program.inputs, *(s.out for s in program.statements[:i] if s.out)]
    for other in [name for name in earlier if program.shapes.get(name) == program.shapes.get(statement.out)][
        :1
    ]:
        renamed = tuple(replace(s, text=re.sub(rf"\b{statement.out}\b", other, s.text)) for s in rest)
        results = dict.fromkeys(other if r == statement.out else r for r in program.results)
        yield replace(program, statements=renamed, results=tuple(results))


def script(program, said, steps, backend, dtype, options="", reopen=False):
    """A file that shows the difference, with nothing of this folder."""
    parts = [program.source(), inspect.getsource(loss_of), inspect.getsource(train)]
    run = f"""if __name__ == "__main__":
    torch.set_default_dtype({dtype})
    made = []
    for backend in (None, "{backend}"):
        torch.manual_seed({program.seed})
        made.append(train(Program(){"" if program.parameters else ".requires_grad_(False)"}, inputs, training, {steps}, backend, {options!r}, {reopen}))
    for name, value in made[0].items():
        print(name, (value - made[1][name]).abs().max().item())
"""
    return f'"""{said}"""\nimport copy\nimport tempfile\n\n' + "\n\n".join([*parts, run]).replace(
        HEADER, HEADER + "\nimport oneflow as flow\n"
    )
