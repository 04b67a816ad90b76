"""The functions of the parts of a step, made from its source, do together what the step does.

Random functions are cut at random places, without a graph: leads, head and tail run one after the other, and
the result, the class of an error, and what the caller and the closure see are compared with the whole
function.
"""

import linecache
import random

import pytest

from oneflow._graph.step_source import StepSource, ending_of
from oneflow._graph.step_syntax import KEPT, RETURNED

NAMES = "a b c x y k".split()
SIGNATURES = ["x, y=2, *rest, k=3, **kw", "x, y, /, *rest, k, **kw"]


def expression(r, depth=0):
    leaves = [*NAMES, *NAMES, "n", "len(rest)", "len(kw)", "G['v']", str(r.randint(0, 5))]
    if depth > 2 or r.random() < 0.75:
        return r.choice(leaves)
    return f"({expression(r, depth + 1)} + {expression(r, depth + 1)})"


def block(r, depth):
    return ["  " + line for line in statements(r, depth + 1, r.randint(1, 2))]


def statements(r, depth, count):
    return [line for _ in range(count) for line in statement(r, depth)]


def statement(r, depth):
    name, value = r.choice(NAMES), expression(r)
    simple = [
        [f"{name} = {value}"],
        [f"{name} = {r.randint(0, 9)}"],
        [f"a, b = [], {r.randint(0, 9)}"],
        [f"{name} += {value}"],
        [f"G['v'] += {value}"],
        ["n += 1"],
        [f"L.append({value})"],
        [f"del {name}"],
        ["import math as m"],
        [f"{name} = m.floor(1.5)"],
        [f"kw['q'] = {value}"],
        ["def f():", f"  return {value}", f"{name} = f()"],
        [f"{name} = (lambda q: q + {value})(2)"],
        [f"{name} = sum(q for q in range({name}))"],
        [f"if {name} == 3: return 'early'"],
    ]
    if depth > 1 or r.random() < 0.75:
        return r.choice(simple)
    return r.choice(
        [
            [f"if ({value}) % 3 == 0:", *block(r, depth)],
            [f"for i in range({r.randint(0, 2)}):", *block(r, depth)],
            [
                "try:",
                *block(r, depth),
                "except (TypeError, NameError) as e:",
                f"  {name} = len(str(type(e)))",
            ],
        ]
    )


def random_function(seed):
    """Return a function that makes the step of a seed for (G, L), or None if the source is no program."""
    r = random.Random(seed)
    end = "return a, b, c, x, y, k, n, rest, kw" if r.random() < 0.5 else f"return {expression(r)}, kw"
    body = ["nonlocal n", *statements(r, 0, r.randint(3, 8)), end]
    lines = [
        "def outer(G, L):",
        "  n = 1",
        f"  def step({r.choice(SIGNATURES)}):",
        *("    " + line for line in body),
    ]
    source, name = "\n".join([*lines, "  return step\n"]), f"<step {seed}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    scope = {}
    try:
        exec(compile(source, name, "exec"), scope)
    except SyntaxError:
        return None
    return scope["outer"]


class CannotBeCut(Exception):
    pass


def run_parts(source, starts, end, args, kwargs):
    cuts = [0, *starts]
    leads = [source.lead(first, last) for first, last in zip(cuts, cuts[1:])]
    head = source.head(cuts[-1], end, "", is_method=False)
    tail = source.tail(end) if end is not None else None
    if None in leads or head is None or (end is not None and tail is None):
        raise CannotBeCut
    variables = {}
    for lead in leads:
        mark, value = ending_of(lead(*args, **kwargs, **{KEPT: variables}))
        if mark == RETURNED:
            return value
        variables = value
    if not variables.keys() >= set(head.takes):
        return source.rest(cuts[-1])(*args, **kwargs, **{KEPT: variables})
    result = head.function(*(variables[name] for name in head.takes), *args, **kwargs)
    mark, value = ending_of(result) or (RETURNED, result)
    if mark == RETURNED:
        return value
    kept = {name: v for name, v in variables.items() if name not in head.binds}
    return tail(*args, **kwargs, **{KEPT: {**kept, **value}})


def outcome(make, run):
    G, L = {"v": 0}, []
    step = make(G, L)
    try:
        result = run(step)
    except CannotBeCut:
        raise
    except Exception as error:
        result = type(error)
    return repr((result, G, L))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_parts_do_what_the_step_does(first):
    compared = 0
    for seed in range(first, first + 100):
        make, r = random_function(seed), random.Random(seed)
        if make is None:
            continue
        args, kwargs = r.choice([(1, 4), (1, 4, 7)]), r.choice([{"k": 2}, {"k": 0, "z": 5}])
        expected = outcome(make, lambda step: step(*args, **kwargs))
        count = len(StepSource.of(make({}, [])).definition.body)
        for _ in range(3):
            starts = sorted(r.sample(range(1, count), r.choice([0, 1, 1, 2])))
            end = r.choice([None, *range(max(starts, default=0) + 1, count)])
            try:
                found = outcome(
                    make, lambda step: run_parts(StepSource.of(step), starts, end, args, dict(kwargs))
                )
            except CannotBeCut:
                continue
            compared += 1
            assert found == expected, (seed, starts, end)
    assert compared > 150
