"""150 programs with side effects and value reads: what they keep, the body of step(x), and what is observed.

`written(folder)` writes them to a file and imports it, so that they are code of a user with lines of its own.
"""

import importlib.util
import textwrap

IMPORTS = """
import array, bisect, collections, contextlib, copy, dataclasses, datetime, functools, heapq, io, itertools
import json, logging, math, operator, os, queue, random, string, sys, threading, time, types, uuid, warnings
import weakref
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Box:
    n = 0

    def __init__(self, **kept):
        vars(self).update(kept)


class Slotted:
    __slots__ = ("n",)


@dataclasses.dataclass
class Stats:
    total: float = 0.0
    count: int = 0


class Meter:
    def __init__(self):
        self.sum, self.count, self.history = 0.0, 0, []

    def update(self, value):
        self.sum = self.sum + value
        self.count += 1
        self.history.append(value)

    @property
    def average(self):
        return self.sum / max(self.count, 1)
"""

# name: (what is made once, the body of step(x), what is compared after each call). x is [1, k - 2] in call k.
PROGRAMS = {
    # -- what a changing method returns, and what a changed container gives afterwards
    "list_pop": ("q = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", "return x * q.pop()", "q"),
    "list_pop_first": ("q = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", "return x * q.pop(0)", "q"),
    "list_del": ("q = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", "del q[0]\nreturn x * q[0] if q else x", "q"),
    "list_reverse": ("q = [1.0, 2.0, 3.0]", "q.reverse()\nreturn x * q[0]", "q"),
    "list_sort": ("q = [3.0, 1.0, 2.0]", "q.append(0.5)\nq.sort()\nreturn x * q[-1] + len(q)", "q"),
    "list_insert": ("q = [1.0]", "q.insert(0, len(q))\nreturn x * q[0]", "q"),
    "list_slice": ("q = [1.0, 2.0, 3.0]", "q[1:] = [q[0] + 1, q[1] + 1]\nreturn x * q[2]", "q"),
    "list_extend": ("q = []", "q.extend([1, 2])\nreturn x * len(q)", "q"),
    "list_iadd": ("q = Box(v=[])", "q.v += [1.0]\nreturn x * sum(q.v)", "q.v"),
    "list_remove": ("q = [1, 2, 3, 4, 5, 6, 7]", "q.remove(max(q))\nreturn x * sum(q)", "q"),
    "list_clear": ("q = [1]", "n = len(q)\nq.clear()\nq.extend(range(n + 1))\nreturn x * n", "q"),
    "list_swap": ("q = [1.0, 2.0]", "q[0], q[1] = q[1], q[0]\nreturn x * q[0]", "q"),
    "deque_popleft": ("q = collections.deque(range(1, 8))", "return x * q.popleft()", "list(q)"),
    "deque_rotate": ("q = collections.deque([1, 2, 3])", "q.rotate(1)\nreturn x * q[0]", "list(q)"),
    "deque_window": ("q = collections.deque(maxlen=2)", "q.append(len(q))\nreturn x * sum(q)", "list(q)"),
    "dict_popitem": ("d = dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7)", "return x * d.popitem()[1]", "d"),
    "dict_pop": ("d = dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7)", "return x * d.pop(max(d))", "d"),
    "dict_count": ("d = {}", "d['n'] = d.get('n', 0) + 1\nreturn x * d['n']", "d"),
    "dict_update": ("d = dict(n=1)", "d.update(n=d['n'] + 1)\nreturn x * d['n']", "d"),
    "dict_setdefault": ("d = {}", "d.setdefault(len(d), len(d))\nreturn x * len(d)", "d"),
    "dict_del": ("d = {i: i for i in range(9)}", "del d[min(d)]\nreturn x * min(d)", "d"),
    "dict_in_place_or": ("d = Box(v={})", "d.v |= {len(d.v): 1}\nreturn x * len(d.v)", "d.v"),
    "ordered_dict": (
        "d = collections.OrderedDict(a=1, b=2, c=3)",
        "d.move_to_end(next(iter(d)))\nreturn x * next(iter(d.values()))",
        "list(d)",
    ),
    "defaultdict": ("d = collections.defaultdict(int)", "d['n'] += 1\nreturn x * d['n']", "dict(d)"),
    "counter": ("c = collections.Counter()", "c.update('ab')\nreturn x * c['a']", "dict(c)"),
    "set_add": ("s = set()", "s.add(len(s))\nreturn x * len(s)", "s"),
    "set_pop": ("s = {1, 2, 3, 4, 5, 6, 7}", "return x * s.pop()", "s"),
    "set_symmetric": ("s = {1}", "s.symmetric_difference_update({1, 2})\nreturn x * len(s)", "s"),
    "heap": ("h = [1, 3, 5, 7, 9, 11]", "return x * heapq.heappop(h)", "h"),
    "bisect": ("q = [5]", "bisect.insort(q, len(q))\nreturn x * q[0]", "q"),
    "numpy_element": ("a = np.zeros(3)", "a[0] += 1\nreturn x * float(a[0])", "a.tolist()"),
    "numpy_in_place": ("a = np.ones(3)", "np.multiply(a, 2, out=a)\nreturn x * float(a[1])", "a.tolist()"),
    "numpy_fill": ("a = np.ones(3)", "a.fill(a[0] + 1)\nreturn x * float(a[2])", "a.tolist()"),
    "array": ("a = array.array('d', [0, 0])", "a[0] += 1\nreturn x * a[0]", "list(a)"),
    "bytearray": ("b = bytearray()", "b.append(1)\nreturn x * len(b)", "bytes(b)"),
    "weak_dict": ("o = Box()\nd = weakref.WeakKeyDictionary({o: 0})", "d[o] += 1\nreturn x * d[o]", "d[o]"),
    "user_list": ("q = collections.UserList([1])", "q.append(2)\nreturn x * len(q)", "list(q)"),
    "chain_map": ("c = collections.ChainMap({'n': 0})", "c['n'] += 1\nreturn x * c['n']", "dict(c)"),
    "list_of_tensors": ("q = [torch.ones(2) * i for i in range(9)]", "return x * q.pop()", "len(q)"),
    "module_list": (
        "m = nn.Module()\nm.q = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]",
        "return x * m.q.pop()",
        "m.q",
    ),
    "module_array": ("m = nn.Module()\nm.a = np.zeros(2)", "m.a[0] += 1\nreturn x + m.a[0]", "m.a.tolist()"),
    "nested": ("d = {'a': {'n': [0]}}", "d['a']['n'][0] += 1\nreturn x * d['a']['n'][0]", "d"),
    "default_argument": (
        "def f(v, seen=[]):\n    seen.append(1)\n    return v * len(seen)",
        "return f(x)",
        "0",
    ),
    # -- changes that build() does not read
    "append_number": ("q = []", "q.append(1)\nreturn x * 2", "q"),
    "append_text": ("q = []", "q.append('step')\nreturn x * 2", "q"),
    "append_tensor": ("q = []", "q.append(x * 2)\nreturn x + 1", "[t.tolist() for t in q]"),
    "append_loss": ("q = []", "q.append(x.sum().item())\nreturn x + 1", "q"),
    "append_size": ("q = []", "q.append(x.shape[0])\nreturn x + 1", "q"),
    "dict_of_tensors": ("d = {}", "d[len(d)] = x.mean()\nreturn x", "{k: v.item() for k, v in d.items()}"),
    "attribute_tensor": ("o = Box(v=None)", "o.v = x.sum()\nreturn x", "o.v.item()"),
    "attribute_number": ("o = Box(v=0)", "o.v = o.v + 2\nreturn x", "o.v"),
    "attribute_of_class": ("class C:\n    n = 0", "C.n += 1\nreturn x", "C.n"),
    "attribute_of_function": ("def f(v):\n    f.n += 1\n    return v\nf.n = 0", "return f(x)", "f.n"),
    "attribute_of_module": (
        "m = nn.Linear(2, 2)",
        "m.calls = getattr(m, 'calls', 0) + 1\nreturn x",
        "m.calls",
    ),
    "slot": ("o = Slotted()\no.n = 0", "o.n += 3\nreturn x * o.n", "o.n"),
    "dataclass": ("s = Stats()", "s.count += 1\ns.total += x.sum().item()\nreturn x", "(s.count, s.total)"),
    "setattr": ("o = Box(n=0)", "setattr(o, 'n', getattr(o, 'n') + 1)\nreturn x * o.n", "o.n"),
    "vars": ("o = Box(n=0)", "vars(o)['n'] += 1\nreturn x * o.n", "o.n"),
    "nonlocal_number": ("n = 0", "nonlocal n\nn = n + 1\nreturn x", "n"),
    "nonlocal_tensor": ("v = None", "nonlocal v\nv = x * 3\nreturn x", "v.tolist()"),
    "nonlocal_read": ("n = 1", "nonlocal n\nn = n * 2\nreturn x * n", "n"),
    "global_number": ("globals()['G'] = 0", "global G\nG = G + 1\nreturn x * G", "G"),
    "same_value": ("o = Box()", "o.ready = True\no.shape = [1, 2]\nreturn x", "(o.ready, o.shape)"),
    "toggle": ("o = Box(on=True)", "o.on = not o.on\nreturn x if o.on else -x", "o.on"),
    "swap_names": ("o = Box(a=1.0, b=2.0)", "o.a, o.b = o.b, o.a\nreturn x * o.a", "(o.a, o.b)"),
    "replaced_list": ("o = Box(q=[])", "o.q = [*o.q, 1]\nreturn x * len(o.q)", "o.q"),
    "delattr": ("o = Box(a=1, b=2)", "vars(o).pop(next(iter(vars(o)), 0), 0)\nreturn x", "vars(o)"),
    "partial": ("q = []\nf = functools.partial(q.append, 1)", "f()\nreturn x", "q"),
    "bound_method": ("q = []\nf = q.append", "f(2)\nreturn x", "q"),
    "lru_cache": (
        "q = []\n@functools.lru_cache\ndef f(k):\n    q.append(k)\n    return k",
        "return x * f(3)",
        "q",
    ),
    "memo": ("d = {}", "if 'k' not in d:\n    d['k'] = 2.0\nreturn x * d['k']", "d"),
    "memo_tensor": (
        "d = {}",
        "if 'k' not in d:\n    d['k'] = torch.arange(2.0)\nreturn x * d['k']",
        "len(d)",
    ),
    "meter": ("m = Meter()", "m.update(x.sum().item())\nreturn x", "(m.average, m.count)"),
    "meter_tensor": (
        "m = Meter()",
        "m.update(x.sum())\nreturn x * m.count",
        "([v.item() for v in m.history], float(m.sum))",
    ),
    "contextmanager": (
        "q = []\n@contextlib.contextmanager\ndef timed():\n    q.append(1)\n    yield\n    q.append(2)",
        "with timed():\n    return x * 2",
        "q",
    ),
    # -- output
    "print_text": ("", "print('step')\nreturn x", "0"),
    "print_tensor": ("", "print(x.sum())\nreturn x", "0"),
    "print_number": ("", "print(f'{x.sum().item():.2f}')\nreturn x", "0"),
    "print_shape": ("", "print(x.shape)\nreturn x", "0"),
    "stdout": ("", "sys.stdout.write('w')\nreturn x", "0"),
    "logging": ("", "logging.info('loss %s', x.sum().item())\nreturn x", "0"),
    "logger": ("log = logging.getLogger('some')", "log.warning('step')\nreturn x", "0"),
    "logger_off": ("log = logging.getLogger('some')", "log.debug('step')\nreturn x", "0"),
    "stream": ("f = io.StringIO()", "f.write('a')\nreturn x", "f.getvalue()"),
    "stream_value": ("f = io.StringIO()", "f.write(f'{x.sum().item()} ')\nreturn x", "f.getvalue()"),
    "stream_then_branch": (
        "f = io.StringIO()",
        "f.write('a')\nreturn x if x.sum() > 0 else -x",
        "f.getvalue()",
    ),
    "print_then_branch": ("", "print('a')\nreturn x if x.sum() > 0 else -x", "0"),
    "json": ("q = []", "q.append(json.dumps({'loss': x.sum().item()}))\nreturn x", "q"),
    "text": ("q = []", "q.append(str(x.tolist()))\nreturn x", "q"),
    "queue": ("q = queue.Queue()", "q.put(x.sum())\nreturn x", "q.qsize()"),
    "simple_queue": ("q = queue.SimpleQueue()", "q.put(1)\nreturn x", "q.qsize()"),
    "callback": ("q = []\non_step = lambda v: q.append(v)", "on_step(x.sum().item())\nreturn x", "q"),
    "callback_tensor": ("q = []\non_step = lambda v: q.append(v + 1)", "on_step(x)\nreturn x", "len(q)"),
    # -- values of tensors
    "branch": ("", "return x * 2 if x.sum() > 0 else x - 1", "0"),
    "branch_item": ("", "return x * 2 if x.sum().item() > 0 else x - 1", "0"),
    "branch_both": ("", "y = x * 2 if x[1] > 0 else x - 1\nreturn y * 3 if y[1] > 2 else y", "0"),
    "item": ("", "return x * x.max().item()", "0"),
    "float": ("", "return x * float(x.max())", "0"),
    "int": ("", "return x * int(x.max())", "0"),
    "tolist": ("", "return x * sum(x.tolist())", "0"),
    "bool": ("", "return x if bool((x > 0).all()) else -x", "0"),
    "while": ("", "y = x\nwhile y.abs().sum() < 20:\n    y = y * 2 + 1\nreturn y", "0"),
    "loop_by_value": ("", "y = x\nfor _ in range(int(x.abs().max())):\n    y = y + 1\nreturn y", "0"),
    "allclose": ("", "return x if torch.allclose(x, x.abs()) else x.abs()", "0"),
    "equal": ("", "return x if torch.equal(x, x.abs()) else x.abs()", "0"),
    "isnan": ("", "return x if torch.isnan(x).any() else x.sqrt().nan_to_num()", "0"),
    "max_of_python": ("", "return max(x.sum(), x.prod()) * x", "0"),
    "sorted": ("", "return x * sorted(x.tolist())[0]", "0"),
    "math": ("", "return x * math.sqrt(x.pow(2).sum().item())", "0"),
    "numpy": ("", "return torch.from_numpy(x.numpy() * 2) + 1", "0"),
    "numpy_result": ("", "return (x * 2).numpy()", "0"),
    "number_result": ("", "return x.sum().item()", "0"),
    "format": ("", "return len(f'{x.max().item():.3f}') * x", "0"),
    "assertion": ("", "assert x.abs().sum().item() >= 0\nreturn x", "0"),
    "best": ("b = [1e9]", "b[0] = min(b[0], x.sum().item())\nreturn x", "b"),
    "patience": (
        "b = dict(best=1e9, bad=0)",
        "v = x.abs().sum().item()\nb['bad'] = 0 if v < b['best'] else b['bad'] + 1\n"
        "b['best'] = min(b['best'], v)\nreturn x if b['bad'] < 2 else x * 0",
        "b",
    ),
    "index_by_value": ("q = [1.0, 2.0, 3.0, 4.0]", "return x * q[int(x.abs().max()) % 4]", "0"),
    "try_value": ("", "try:\n    s = float(x[1])\nexcept Exception:\n    s = 1.0\nreturn x * s", "0"),
    "random_mask": ("", "return x * 2 if torch.rand([]).item() > 0.5 else x", "0"),
    # -- sources outside torch
    "random": ("", "return x * random.random()", "random.random()"),
    "random_then_branch": ("", "a = random.random()\nreturn x * a if x.sum() > 0 else x", "random.random()"),
    "random_choice": ("", "return x * random.choice([1, 2, 3])", "random.random()"),
    "numpy_random": ("", "return x * float(np.random.rand())", "float(np.random.rand())"),
    "random_object": ("r = random.Random(3)", "return x * r.random()", "r.random()"),
    "numpy_generator": ("r = np.random.default_rng(1)", "return x * r.random()", "r.random()"),
    "clock": ("q = []", "q.append(time.perf_counter() > 0)\nreturn x", "q"),
    "uuid": ("q = []", "q.append(len(str(uuid.uuid4())))\nreturn x", "q"),
    "environment": (
        "",
        "n = int(os.environ.get('N_OF_TEST', 0)) + 1\nos.environ['N_OF_TEST'] = str(n)\nreturn x * n",
        "os.environ.pop('N_OF_TEST') if int(os.environ['N_OF_TEST']) == 6 else 0",
    ),
    "iterator": ("it = iter(range(100))", "return x * next(it)", "next(it)"),
    "iterator_then_branch": (
        "it = iter(range(100))",
        "k = next(it)\nreturn x * k if x.sum().item() > -9 else x",
        "next(it)",
    ),
    "cycle": ("it = itertools.cycle([1, 2, 3])", "return x * next(it)", "next(it)"),
    "generator": (
        "def numbers():\n    n = 0\n    while True:\n        n += 1\n        yield n\nit = numbers()",
        "return x * next(it)",
        "next(it)",
    ),
    "generator_in_attribute": (
        "o = Box(it=iter('abcdefghijklm'))",
        "return x * ord(next(o.it))",
        "next(o.it)",
    ),
    "zip": ("z = zip(range(50), range(50, 100))", "return x * sum(next(z))", "next(z)"),
    "local_generator": ("", "return x * sum(i for i in range(4))", "0"),
    "file": ("", "with open(__file__) as f:\n    return x * len(f.readline())", "0"),
    # -- structure
    "finally": ("s = dict(n=0)", "try:\n    return x * 2\nfinally:\n    s['n'] += 1", "s"),
    "except": ("s = dict(n=0)", "try:\n    {}['q']\nexcept KeyError:\n    s['n'] += 1\nreturn x", "s"),
    "deleter": (
        "n = [0]\nclass D:\n    def __del__(self):\n        n[0] += 1",
        "D()\nreturn x",
        "n",
    ),
    "hook": (
        "s = []\nw = torch.ones(2, requires_grad=True)",
        "y = w * x\ny.register_hook(lambda g: s.append(1))\ng, = torch.autograd.grad(y.sum(), w)\nreturn g",
        "s",
    ),
    "module_hook": (
        "s = []\nm = nn.Linear(2, 2)\nm.register_forward_hook(lambda m, a, r: s.append(r.sum().item()))",
        "return m(x)",
        "len(s)",
    ),
    "function": (
        "s = []\nclass Double(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, v):\n"
        "        s.append(1)\n        return v * 2\n    @staticmethod\n    def backward(ctx, g):\n"
        "        return g * 2",
        "return Double.apply(x)",
        "s",
    ),
    "lock": ("lock, s = threading.Lock(), [0]", "with lock:\n    s[0] += 1\nreturn x", "s"),
    "warning": ("", "warnings.warn('w')\nreturn x", "0"),
    "closure_of_closure": (
        "def counter():\n    n = 0\n    def count():\n        nonlocal n\n        n += 1\n        return n\n"
        "    return count\ncount = counter()",
        "return x * count()",
        "count()",
    ),
    "recursion": ("q = []", "def f(k):\n    q.append(k)\n    return k and f(k - 1)\nf(2)\nreturn x", "q"),
    "comprehension": ("q = []", "[q.append(i) for i in range(2)]\nreturn x * len(q)", "q"),
    "deepcopy": ("q = [1]", "p = copy.deepcopy(q)\np.append(2)\nq[0] += len(p)\nreturn x * q[0]", "q"),
    "parameter_write": (
        "w = nn.Parameter(torch.ones(2))",
        "with torch.no_grad():\n    w.copy_(w * 0.5)\nreturn x * w.detach().clone()",
        "w.tolist()",
    ),
    "replay_buffer": (
        "b = []",
        "b.append(x.clone())\nif len(b) > 3:\n    b.pop(0)\nreturn torch.stack(b).mean(0)",
        "len(b)",
    ),
    "every_third": ("n = [0]", "n[0] += 1\nreturn x if n[0] % 3 == 0 else x * 2", "n"),
    # -- a method that changes a container, and that other code calls
    "method_for_exit_stack": (
        "q = []",
        "with contextlib.ExitStack() as s:\n    s.callback(q.append, 'end')\n    y = x * 2\nreturn y",
        "q",
    ),
    "method_for_map": ("q = []", "list(map(q.append, ['a', 'b']))\nreturn x * 2", "q"),
    "method_for_filter": ("q = {1}", "k = len(q)\nlist(filter(q.add, [k, k + 1]))\nreturn x * 2", "q"),
    "method_as_key": ("q = []", "sorted([3, 1], key=lambda v: q.append(v) or v)\nreturn x * 2", "q"),
    "method_as_sort_key": ("q = []", "min([3], key=q.append)\nreturn x * 2", "q"),
    "method_of_deque": (
        "q = collections.deque(maxlen=3)",
        "list(map(q.appendleft, range(2)))\nreturn x * len(q)",
        "q",
    ),
    "setattr_for_map": ("o = Box()", "list(map(setattr, [o], ['n'], [o.n + 1]))\nreturn x * 2", "o.n"),
    "function_for_items": ("d = {'n': 0}", "operator.setitem(d, 'n', d['n'] + 1)\nreturn x * 2", "d"),
    "method_in_place": ("d = {'n': 0}", "d.__ior__({'n': d['n'] + 1})\nreturn x * 2", "d"),
    "function_in_place": ("d = {'n': 0}", "operator.ior(d, {'n': d['n'] + 1})\nreturn x * 2", "d"),
    "method_in_partial": ("q = []", "f = functools.partial(q.append, 1)\nf()\nreturn x * 2", "q"),
    "method_kept_only": ("q = []\nm = []", "m[:] = [q.append]\nreturn x * 2", "q"),
    "method_for_finalizer": (
        "q = []",
        "b = Box()\nweakref.finalize(b, q.append, 1)\ndel b\nreturn x * 2",
        "q",
    ),
    "moving_average": (
        "o = Box(v=0.0)",
        "o.v = 0.9 * o.v + 0.1 * x.mean().item()\nreturn x * o.v",
        "o.v",
    ),
}


def source(programs) -> str:
    """Return the text of a module with a function for each program."""
    parts = [IMPORTS]
    for name, (setup, body, observed) in programs.items():
        lines = [f"def make_{name}():", textwrap.indent(setup or "pass", "    "), "    def step(x):"]
        lines += [textwrap.indent(body, "        "), f"    return step, lambda: {observed}"]
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts)


def written(folder, programs=PROGRAMS):
    """Write the programs to a file, and return the module."""
    path = folder / "programs_with_effects.py"
    path.write_text(source(programs))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
