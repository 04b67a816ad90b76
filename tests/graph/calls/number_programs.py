"""Programs that keep a number of a tensor: each number of NUMBERS, in each place of PLACES. See
effect_programs.py.

The body of a place finds the number as `n`.
"""

NUMBERS = {
    "count": "(x > 0).sum().item()",
    "mean": "x.mean().item()",
    "flag": "(x > 0).all().item()",
    "share": "(x > 0).sum().item() / x.shape[0]",
    "size": "x.shape[0]",
    "rows": "x[x[:, 0] > 0].shape[0]",
}
PLACES = {
    "append": ("q = []", "q.append(n)", "q"),
    "insert": ("q = []", "q.insert(0, n)", "q"),
    "element": ("q = [0]", "q[0] = n", "q"),
    "element_total": ("q = [0]", "q[0] += n", "q"),
    "slice": ("q = [0, 1]", "q[:] = [n, n]", "q"),
    "window": ("q = []", "q.append(n)\nif len(q) > 2: q.pop(0)", "q"),
    "dict": ("q = {}", "q['n'] = n", "q"),
    "dict_total": ("q = {'n': 0}", "q['n'] += n", "q"),
    "dict_get": ("q = {}", "q['n'] = q.get('n', 0) + n", "q"),
    "dict_update": ("q = {}", "q.update(n=n)", "q"),
    "setdefault": ("q = {}", "q.setdefault('l', []).append(n)", "q"),
    "defaultdict": ("q = collections.defaultdict(list)", "q['n'].append(n)", "dict(q)"),
    "counter": ("q = collections.Counter()", "q['n'] += n", "dict(q)"),
    "counter_update": ("q = collections.Counter()", "q.update(n=n)", "dict(q)"),
    "deque": ("q = collections.deque(maxlen=3)", "q.append(n)", "list(q)"),
    "attribute_total": ("q = Box(n=0)", "q.n += n", "q.n"),
    "new_attribute": ("q = Box()", "q.n = n", "vars(q)"),
    "slot": ("q = Slotted(); q.n = 0", "q.n += n", "q.n"),
    "class": ("class q(Box): pass", "q.n += n", "q.n"),
    "function": ("def q(): pass\nq.n = 0", "q.n += n", "q.n"),
    "meter": ("q = Meter()", "q.update(n)", "(q.sum, q.count, q.history)"),
    "variable": ("q = 0", "nonlocal q\nn = {n}\nq += n", "q"),
    "nested": ("q = {'a': {'b': [0]}}", "q['a']['b'][0] += n", "q"),
    "structure": ("q = []", "q.append((n, {'n': [n]}))", "q"),
    "object": ("q = []", "q.append(Box(n=n))", "[b.n for b in q]"),
    "closure": ("q = []", "q.append(lambda: n)", "[f() for f in q]"),
    "partial": ("q = []", "q.append(functools.partial(max, n, 0))", "[f() for f in q]"),
    "best": ("q = [0]", "q[0] = max(q[0], n)", "q"),
    "key": ("q = {}", "q[n] = q.get(n, 0) + 1", "q"),
    "set": ("q = set()", "q.add(n)", "sorted(q)"),
    "sorted": ("q = []", "bisect.insort(q, n)", "q"),
    "heap": ("q = []", "heapq.heappush(q, n)", "q"),
    "module": ("q = nn.Linear(2, 2); q.n = 0", "q.n += n", "q.n"),
    "type": ("q = []", "q.append((isinstance(n, int), isinstance(n, float), type(n).__name__))", "q"),
    "text": ("q = []", "q.append(f'{n} {n!r}')", "q"),
    "returned": ("q = [0]", "q[0] += n\nreturn q[0] / 3", "q"),
}


# Two numbers in all places; the others are symbols of the same two kinds.
CASES = [(place, number) for place in PLACES for number in ("count", "mean")]
CASES += [(place, number) for place in ("append", "element_total", "type", "returned") for number in NUMBERS]
CASES = [*dict.fromkeys(CASES)]


def programs():
    """Return {name: program}."""
    made = {}
    for place, number in CASES:
        setup, body, observed = PLACES[place]
        expression = NUMBERS[number]
        body = body.replace("{n}", expression) if "= {n}" in body else f"n = {expression}\n{body}"
        body = body if "return" in body else f"{body}\nreturn x * 2"
        made[f"{place}_{number}"] = (setup, body, observed)
    return made
