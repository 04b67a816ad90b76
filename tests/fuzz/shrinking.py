"""Shrink a failing program and write it as a script."""

import inspect
import random
import re
import time
from dataclasses import replace

import grouping
import training
from drawing import HEADER, Program


def kind_of(said):
    """The failure that shrinking must preserve: a crash, an error of this class, or different values."""
    return said and ("numbers" if " after step " in said else said.split(":")[0])


def shrink(program, check, seconds):
    """The smallest program found for which `check` says the same kind of thing; it gives None for one that is
    right or does not run.
    """
    end, kind = time.time() + seconds, kind_of(check(program))
    while time.time() < end:
        program, before = (
            next((p for p in smaller(program) if time.time() < end and kind_of(check(p)) == kind), program),
            program,
        )
        if program is before:
            break
    return program


def shrink_group(program, group, check, seconds):
    """The smallest part of the group found in which the program still fails."""
    end, group, rng = time.time() + seconds, list(group), random.Random(0)
    size = len(group) // 2
    while size and time.time() < end:
        others = [p for p in group if p is not program]
        rng.shuffle(others)
        for start in range(0, len(others), size):
            left = set(map(id, others[start : start + size]))
            smaller_group = [p for p in group if id(p) not in left]
            said = check(*smaller_group)
            if not isinstance(said, str) and smaller_group.index(program) in said:
                group = smaller_group
                break
        else:
            size //= 2
        size = min(size, len(group) - 1)
    return group


def smaller(program):
    """Programs with less: all that no result needs, a result, a statement whose place another tensor of its
    shape takes, what trains it, a parameter, a buffer or an input.
    """
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
    for i in reversed(range(len(program.after))):
        yield replace(program, after=program.after[:i] + program.after[i + 1 :])
    for i in reversed(range(len(program.statements))):
        yield from without(program, i)
    for name in ("training", "several_losses", "shows_gradients"):
        if getattr(program, name) != getattr(Program, name):
            yield replace(program, **{name: getattr(Program, name)})
    if len(program.reductions) > 1:
        yield replace(program, reductions=program.reductions[:1])
        yield replace(program, reductions=program.reductions[1:])
    for statement in program.after:
        live |= statement.uses()
    for kind, least in (("parameters", 1), ("inputs", 1), ("buffers", 0)):
        named = getattr(program, kind)
        for name in named:
            if name not in live and len(named) > least:
                yield replace(program, **{kind: {k: v for k, v in named.items() if k != name}})


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


def script(program, said, steps, settings):
    """A file that shows the difference, with nothing of this folder."""
    load = f"""def load():
    torch.manual_seed({program.seed})
    module = Program(){"" if program.parameters else ".requires_grad_(False)"}
    return [(module, inputs, training, losses)]
"""
    return _file(said, [program.source().replace(HEADER, ""), load], steps, settings)


def group_script(programs, said, steps, settings):
    """As `script`, of programs that differ in one graph only."""
    sources = "".join(f"    ({p.seed}, '''\n{p.source().rstrip()}\n'''),\n" for p in programs)
    load = f"""PROGRAMS = [
{sources}]


def program(seed, source):
    space = dict(globals())
    exec(source, space)
    torch.manual_seed(seed)
    return space["Program"](), space["inputs"], space["training"], space["losses"]


def load():
    return [program(seed, source) for seed, source in PROGRAMS]
"""
    return _file(said, [_source_of(grouping), load], steps, settings)


def _source_of(module):
    """The source without the docstring."""
    return inspect.getsource(module).replace(f'"""{module.__doc__}"""', "", 1).strip() + "\n"


def _file(said, parts, steps, settings):
    together = (
        "programs_keep_their_constants()" if "PROGRAMS = [" in parts[-1] else "contextlib.nullcontext()"
    )
    run = f"""if __name__ == "__main__":
    torch.set_default_dtype({settings.dtype})
    with {together}:
        expected, actual = (
            train(load(), {steps}, backend, {settings.options!r}, {settings.reopen})
            for backend in (None, "{settings.backend}")
        )
    for program, (eager, graph) in enumerate(zip(expected, actual)):
        for name, value in eager.items():
            if value.numel():
                print(program, name, (value.double() - graph[name].double()).abs().max().item())
"""
    return "\n\n".join([f'"""{said}"""\n\nimport contextlib\n' + HEADER + _source_of(training), *parts, run])
