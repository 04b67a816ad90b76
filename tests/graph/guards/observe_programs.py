"""Run programs as instrumented copies of their bytecode: `python observe_programs.py`, in any Python, without
torch.
"""

import dis
import importlib.util
import sys
import types
from pathlib import Path

INSTRUMENTATION = (
    Path(__file__).resolve().parents[3].joinpath("oneflow_compat", "_graph", "observe", "instrumentation")
)


def load():
    """Return the modules bytecode, instructions and instrument of the package, without the package."""
    package = types.ModuleType("observe_alone")
    package.__path__ = [str(INSTRUMENTATION)]
    sys.modules["observe_alone"] = package
    modules = []
    for name in ("bytecode", "instructions", "instrument"):
        spec = importlib.util.spec_from_file_location(f"observe_alone.{name}", INSTRUMENTATION / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"observe_alone.{name}"] = module
        spec.loader.exec_module(module)
        modules.append(module)
    return modules


PROGRAM = (
    """
import collections, dataclasses, contextlib

COUNT = 0
SCALE, TABLE = 3, {"k": [1, 2], "b": (4, 5)}

@dataclasses.dataclass
class Point:
    x: int = 1
    y: int = 2
    __match_args__ = ("x", "y")
    def moved(self, *by, **named):
        return Point(self.x + sum(by), self.y + named.get("y", 0))

class Child(Point):
    def moved(self, *by, **named):
        return super().moved(*by, **named)

def closure(k):
    def inner(x):
        nonlocal k
        k += 1
        return x * k + SCALE
    return inner

def generator(values):
    for v in values:
        got = yield v
        if got:
            yield got * 100
    yield from (v + 1 for v in values)

def errors(value):
    out = []
    for kind in (ValueError, KeyError):
        try:
            with contextlib.suppress(KeyError):
                raise kind(value)
            out.append("suppressed")
        except ValueError as e:
            out.append(str(e))
        finally:
            out.append("done")
    return out

def matched(value):
    match value:
        case Point(x=1, y=y): return ("point", y)
        case {"k": [a, *rest]}: return ("map", a, rest)
        case [first, second]: return ("two", first, second)
        case _: return "none"

def calls():
    p = Child(*[1], **{"y": 5})
    a = p.moved(1, 2, y=3)
    b = sorted(TABLE, key=lambda k: -len(k))
    c = f"{a.x:>5}{p!r}" + str(b[::-1]) + ",".join(map(str, TABLE["b"]))
    d, *e = TABLE["b"]
    f = [x for x in TABLE["k"] if x not in (1,)] + [*e, d]
    g = {**TABLE, "z": 1}
    g["z"] += 5
    g["z"] -= len(TABLE["b"]) * 2 + a.x
    a.x += TABLE["b"][-1]
    del g["k"]
    x = not f or (a.x if a else None) is None
    total = 0
    while total < 10:
        total += 3
        if total == 6:
            continue
    return a, c, d, e, f, g, x, total, -total, ~total, print("", end="")

def stores():
    global COUNT
    from collections import OrderedDict as Ordered, deque
    COUNT += 1
    p = Child()
    p.x = Ordered(a=1)
    values = deque([1, 2]), list(range(9))
    low = 2
    values[1][low:5] = [7]
    values[1][:1] = values[0]
    return p.x, values, COUNT, p is None, values[1] is values[0]

def long():
    x = 0
"""
    + "".join(f"    if x == {i}: x += {i} + SCALE - TABLE['k'][0] * {i}\n" for i in range(300))
    + """
    return x

class Context:
    def __init__(self, *values):
        self.values = values
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.values += (error == (None,) * 3,)

def contexts(key=None):
    context = Context(*"ab")
    with context as entered, Context(None, None, None) as other:
        x = [entered is context, any(v in "bc" for v in context.values)]
        x += [all(k for k in TABLE), tuple(k for k in TABLE)]
        Context(None, None, None)
    for k in TABLE:
        with other:
            if k == "b":
                break
    return x, context.values, other.values, isinstance(key, (int, str)), dict(a=key, **TABLE)["a"]

TEMPLATE

def main():
    inner = closure(2)
    g = generator([1, 2, 3])
    sent = [next(g), g.send(7), *g]
    return (inner(1), inner(2), sent, errors("e"), matched(Point()), matched({"k": [1, 2, 3]}),
            matched([1, 2]), matched(3), calls(), stores(), long(), contexts(), contexts(key=1), templates(1),
            [i * j for i in range(3) for j in range(i)], {k: v for k, v in TABLE.items()})
"""
)


_TEMPLATE = """
def templates(x):
    template = t"{x} and {TABLE['k'][x]!r:>{SCALE}}"
    parts = [(i.value, i.expression, i.conversion, i.format_spec) for i in template.interpolations]
    return parts, template.strings
"""
PROGRAM = PROGRAM.replace("TEMPLATE", _TEMPLATE if sys.version_info >= (3, 14) else "templates = str")


def instrumented(code, hooks, instrument):
    """Instrument a code object and the codes of its functions."""
    constants = tuple(
        instrumented(c, hooks, instrument) if isinstance(c, types.CodeType) else c for c in code.co_consts
    )
    code = code.replace(co_consts=constants)
    return instrument(code, hooks, True) if code.co_flags & 1 else code


def recording_hooks(instructions, seen):
    """A hook for each kind of read that records the operands; the hooks for 3.10 get them from a tuple."""
    hooks = {}
    for name in instructions.HOOK_NAMES:

        def hook(*operands, name=name):
            seen.append((name, len(operands) - 1, operands[-1].expression))
            return operands[0] if name == "call" else None  # the function that is called

        def of_tuple(values, chosen, site, hook=hook):
            hook(*[values[index] for index in chosen], site)

        hooks[name], hooks[f"{name}_of_tuple"] = hook, of_tuple
    return hooks


def check():
    """Run the program plain and instrumented; return the hooks that were called."""
    bytecode, instructions, instrument = load()
    unknown = instructions.unknown_instructions()
    assert not unknown, (
        f"instructions of Python {sys.version_info[:2]} that no table names: {sorted(unknown)}"
    )
    assert sys.version_info[:2] in instructions.LAYOUTS
    results, seen = [], []
    for change in (False, True):
        code = compile(PROGRAM, __file__, "exec")
        if change:
            code = instrumented(code, recording_hooks(instructions, seen), instrument.instrument)
        module = types.ModuleType("program")
        sys.modules["program"] = module
        exec(code, vars(module))
        results.append(repr(module.main()))
    assert results[0] == results[1], results
    names = {name for name, *_ in seen}
    expected = {read.hook for name, read in instructions.READS.items() if dis.opmap.get(name, 256) < 256}
    assert not expected - names - {"match_class"}, expected - names
    traceback_lines(instrument.instrument, recording_hooks(instructions, []))
    return seen


def traceback_lines(instrument, hooks):
    """An error in instrumented code names the line of the source."""
    scope = {}
    code = compile("def f(x):\n    y = x + 1\n\n    return [\n        y.missing]\n", "lines.py", "exec")
    exec(instrumented(code, hooks, instrument), scope)
    try:
        scope["f"](1)
    except AttributeError as error:
        assert error.__traceback__.tb_next.tb_lineno == 5, error.__traceback__.tb_next.tb_lineno
    else:
        raise AssertionError("no error")


def standard_library():
    """Instrumented copies of functions of the standard library give the same results."""
    import fractions
    import json.decoder
    import json.encoder
    import random
    import statistics
    import string
    import textwrap

    _, instructions, instrument = load()
    hooks = recording_hooks(instructions, [])
    modules = [fractions, json.decoder, json.encoder, random, statistics, string, textwrap]

    def work():
        generator = random.Random(3)
        values = [generator.gauss(0, 1) for _ in range(20)] + [
            generator.choice([1, 2, 3]),
            generator.randint(1, 9),
        ]
        generator.shuffle(values)
        return (
            statistics.stdev(values),
            fractions.Fraction(3, 4) ** 3 + fractions.Fraction("0.25"),
            values,
            json.loads(json.dumps({"a": [1, 2.5, None, {"b": "c"}]}, indent=2)),
            textwrap.fill("some words " * 30, 40),
            string.Template("$a and ${b}").substitute(a=1, b=2),
        )

    before, count = repr(work()), 0
    for module in modules:
        for owner in [
            module,
            *[c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__],
        ]:
            for function in list(vars(owner).values()):
                if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                    function.__code__ = instrumented(function.__code__, hooks, instrument.instrument)
                    count += 1
    assert repr(work()) == before
    return count


if __name__ == "__main__":
    print(
        sys.version_info[:2], len(check()), "hooks,", standard_library(), "functions of the standard library"
    )
