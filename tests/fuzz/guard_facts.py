"""Python facts that a random program reads, and how each of them changes: the catalog of the fuzzer of guards.

A fact has text for the program's file, a statement of the module's __init__, an expression that reads it in forward,
and statements that change it. `N` in a text is the number of the fact, which makes its names unique. The statements
run in the namespace of the file, where `model` is the module and `settings` another module that the file imports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One kind of fact; `word` appears in a warning that names it."""

    kind: str
    read: str
    changes: tuple
    file: str = ""
    init: str = ""
    word: str = ""

    def numbered(self, number: int) -> Fact:
        def fill(text):
            return text.replace("N_", f"{number}_")

        return Fact(
            self.kind,
            fill(self.read),
            tuple(map(fill, self.changes)),
            fill(self.file),
            fill(self.init),
            fill(self.word),
        )


def global_fact(kind, read, file="", init=""):
    return Fact(
        kind, read, ("KN_ = 3.0", "KN_ = 1.0", "KN_ = -0.5", "KN_ = 1"), "KN_ = 1.0\n" + file, init, "KN_"
    )


def attribute(kind, value, read, *changes, file=""):
    return Fact(kind, read, changes, file, f"self.aN_ = {value}", "aN_")


FACTS = (
    # globals, by how the function that reads them is reached
    global_fact("global", "y * KN_"),
    global_fact("global in a function", "fN_(y)", "def fN_(y):\n    return y * KN_\n"),
    global_fact("global in a private method", "self._mN_(y)"),
    global_fact("global in a staticmethod", "self.sN_(y)"),
    global_fact("global in a property", "y * self.pN_"),
    global_fact("global in a super method", "super().hN_(y)"),
    global_fact("global in an autograd function", "FunctionN_.apply(y)", (
        "class FunctionN_(torch.autograd.Function):\n    @staticmethod\n    def forward(context, y):\n        return y * KN_\n"
        "    @staticmethod\n    def backward(context, gradient):\n        return gradient * KN_\n")),
    global_fact("global in a wrapper", "wN_(y)", (
        "def wrapN_(f):\n    @functools.wraps(f)\n    def wrapper(*args):\n        return f(*args) * KN_\n    return wrapper\n"
        "@wrapN_\ndef wN_(y):\n    return y + 1\n")),
    global_fact("global in a lambda of a list", "self.lN_[0](y)", init="self.lN_ = [lambda y: y * KN_]"),
    global_fact("global in a comprehension", "sum([y * KN_ for _ in range(2)])"),
    global_fact("global in a generator", "sum(y * KN_ for _ in range(2))"),
    global_fact("global in a partial", "self.qN_(y)", "def gN_(z, y):\n    return y * KN_ + z\n", "self.qN_ = functools.partial(gN_, 1.0)"),
    global_fact("global in a callable object", "self.cN_(y)", "class CallN_:\n    def __call__(self, y):\n        return y * KN_\n", "self.cN_ = CallN_()"),
    # the user's other files
    Fact("constant of a module", "y * settings.SN_", ("settings.SN_ = 2.5", "settings.SN_ = 1.0"), "settings.SN_ = 1.0\n", word="SN_"),
    Fact("element of a module's table", "y * settings.TN_['a'][1]", ("settings.TN_['a'][1] = 3.0", "settings.TN_ = {'a': [0.0, 2.0]}"), "settings.TN_ = {'a': [1.0, 1.0]}\n", word="TN_"),
    Fact("function of a module", "settings.fN_(y)", ("settings.fN_ = torch.sin", "settings.fN_ = torch.tanh"), "settings.fN_ = torch.tanh\n", word="fN_"),
    # attributes
    attribute("number", "1.0", "y * self.aN_", "model.aN_ = 2.0", "model.aN_ = 1", "model.aN_ = -1.0"),
    Fact("private number", "y * self._aN_", ("model._aN_ = 2.0",), init="self._aN_ = 1.0", word="_aN_"),
    attribute("string", "'relu'", "getattr(torch, self.aN_)(y)", "model.aN_ = 'tanh'", "model.aN_ = 'relu'"),
    attribute("none", "None", "y if self.aN_ is None else y * self.aN_", "model.aN_ = 2.0", "model.aN_ = None"),
    attribute("namespace", "types.SimpleNamespace(k=1.0)", "y * self.aN_.k", "model.aN_.k = 2.0", "model.aN_ = types.SimpleNamespace(k=3.0)"),
    attribute("deep attribute", "types.SimpleNamespace(b=types.SimpleNamespace(c=types.SimpleNamespace(k=1.0)))", "y * self.aN_.b.c.k", "model.aN_.b.c.k = 2.0", "model.aN_.b = types.SimpleNamespace(c=types.SimpleNamespace(k=0.5))"),
    attribute("object with methods", "HelperN_()", "self.aN_.times(y)", "model.aN_.k = 2.0", "model.aN_ = HelperN_(0.5)", "HelperN_.k2 = 2.0",
              file="class HelperN_:\n    k2 = 1.0\n    def __init__(self, k=1.0):\n        self.k = k\n    def times(self, y):\n        return y * self.k * self.k2\n"),
    attribute("object in a list", "[HelperN_(), HelperN_()]", "self.aN_[1].times(y)", "model.aN_[1].k = 2.0", "model.aN_.reverse(); model.aN_[1].k = 0.5",
              file="class HelperN_:\n    def __init__(self, k=1.0):\n        self.k = k\n    def times(self, y):\n        return y * self.k\n"),
    attribute("bound method", "HelperN_().times", "self.aN_(y)", "model.aN_.__self__.k = 2.0", "model.aN_ = HelperN_(0.5).times",
              file="class HelperN_:\n    def __init__(self, k=1.0):\n        self.k = k\n    def times(self, y):\n        return y * self.k\n"),
    attribute("dataclass", "DataN_()", "y * self.aN_.k", "model.aN_.k = 2.0", "model.aN_ = DataN_(0.5)", file="@dataclasses.dataclass\nclass DataN_:\n    k: float = 1.0\n"),
    attribute("dataclass with slots", "DataN_()", "y * self.aN_.k", "model.aN_.k = 2.0", "model.aN_ = DataN_(0.5)", file="@dataclasses.dataclass(slots=True)\nclass DataN_:\n    k: float = 1.0\n"),
    attribute("frozen dataclass", "DataN_()", "y * self.aN_.k", "model.aN_ = dataclasses.replace(model.aN_, k=2.0)", file="@dataclasses.dataclass(frozen=True)\nclass DataN_:\n    k: float = 1.0\n"),
    attribute("named tuple", "PairN_(1.0, 2.0)", "y * self.aN_.left", "model.aN_ = PairN_(3.0, 2.0)", file="PairN_ = collections.namedtuple('PairN_', 'left right')\n"),
    attribute("list element", "[1.0, 2.0]", "y * self.aN_[0]", "model.aN_[0] = 3.0", "model.aN_ = [0.5, 2.0]", "model.aN_[0] = 1"),
    attribute("list length", "[1.0, 2.0]", "y * len(self.aN_)", "model.aN_.append(1.0)", "model.aN_.pop()"),
    attribute("long list", "[1.0] * 40", "y * sum(self.aN_)", "model.aN_[39] = 5.0", "model.aN_ = [0.5] * 40"),
    attribute("number type in a list", "[2]", "y * (torch.arange(4) * self.aN_[0]).sum().div(3, rounding_mode='floor' if isinstance(self.aN_[0], int) else None)", "model.aN_ = [2.0]", "model.aN_[0] = 2.0"),
    attribute("sign of zero", "[0.0]", "y + math.copysign(1.0, self.aN_[0])", "model.aN_[0] = -0.0", "model.aN_ = [-0.0]"),
    attribute("nested list", "[[1.0], [[2.0]]]", "y * self.aN_[1][0][0]", "model.aN_[1][0][0] = 3.0", "model.aN_[1] = [[0.5]]"),
    attribute("dict element", "{'k': 1.0}", "y * self.aN_['k']", "model.aN_['k'] = 2.0", "model.aN_ = {'k': 0.5}"),
    attribute("dict get", "{}", "y * self.aN_.get('k', 1.0)", "model.aN_['k'] = 2.0"),
    attribute("dict order", "{'a': 1.0, 'b': 2.0}", "y * next(iter(self.aN_.values()))", "model.aN_ = {'b': 2.0, 'a': 1.0}", "model.aN_.update(a=3.0)"),
    attribute("dict unpacked", "{'negative_slope': 0.1}", "F.leaky_relu(y, **self.aN_)", "model.aN_['negative_slope'] = 0.9"),
    attribute("set", "{1}", "y * (2 if 2 in self.aN_ else 1)", "model.aN_.add(2)", "model.aN_ = {2}", "model.aN_.discard(2)"),
    attribute("deque", "collections.deque([1.0])", "y * sum(self.aN_)", "model.aN_.append(2.0)", "model.aN_[0] = 3.0"),
    attribute("tuple of functions", "(torch.relu, torch.tanh)", "self.aN_[1](y)", "model.aN_ = (torch.relu, torch.sin)"),
    attribute("partial", "functools.partial(F.leaky_relu, negative_slope=0.1)", "self.aN_(y)", "model.aN_ = functools.partial(F.leaky_relu, negative_slope=0.9)"),
    attribute("fraction", "fractions.Fraction(1, 2)", "y * float(self.aN_)", "model.aN_ = fractions.Fraction(1, 3)"),
    attribute("enum", "ModeN_.A", "y * (2 if self.aN_ is ModeN_.B else 1)", "model.aN_ = ModeN_.B", file="class ModeN_(enum.Enum):\n    A = 1\n    B = 2\n"),
    attribute("array", "numpy.ones(3)", "y * float(self.aN_[0])", "model.aN_[0] = 3.0", "model.aN_ = numpy.full(3, 0.5)"),
    attribute("absent attribute", "0", "y * getattr(self, 'lateN_', 1.0)", "model.lateN_ = 2.0", "model.lateN_ = 3.0"),
    attribute("absent buffer", "0", "y if getattr(self, 'lateN_', None) is None else y * self.lateN_", "hasattr(model, 'lateN_') or model.register_buffer('lateN_', torch.full((4,), 2.0))", "model.lateN_ = torch.full((4,), 3.0)"),
    attribute("default argument", "lambda y, k=1.0: y * k", "self.aN_(y)", "model.aN_.__defaults__ = (2.0,)"),
    attribute("function code", "lambda y: y * 2.0", "self.aN_(y)", "model.aN_.__code__ = (lambda y: y * 3.0).__code__"),
    Fact("class attribute", "y * self.classN_", ("type(model).classN_ = 2.0", "model.classN_ = 3.0"), init="type(self).classN_ = 1.0", word="classN_"),
    Fact("closure", "self.funN_(y)", ("setN_(2.0)", "setN_(0.5)"), "def makeN_():\n    k = 1.0\n    def f(y):\n        return y * k\n    def change(v):\n        nonlocal k\n        k = v\n    return f, change\nfN_, setN_ = makeN_()\n", "self.funN_ = fN_", "k"),
    # tensors outside of the modules' state
    attribute("tensor attribute", "torch.full((4,), 1.5)", "y * self.aN_", "model.aN_ = torch.full((4,), 2.0)", "model.aN_.mul_(1.25)", "model.aN_ = torch.full((1,), 0.5)"),
    attribute("tensor in a dict", "{'t': torch.full((4,), 1.5)}", "y * self.aN_['t']", "model.aN_['t'] = torch.full((4,), 2.0)", "model.aN_['t'].add_(1)"),
    Fact("global tensor", "y * TENN_", ("TENN_ = torch.full((4,), 2.0)", "TENN_.mul_(1.5)"), "TENN_ = torch.full((4,), 1.5)\n", word="TENN_"),
    # what cannot be followed, and has to be announced
    Fact("environment", "y * float(os.environ.get('FUZZN_', '1'))", ("os.environ['FUZZN_'] = '3'",), word="environ"),
    Fact("context variable", "y * VARN_.get()", ("VARN_.set(2.0)",), "VARN_ = contextvars.ContextVar('VARN_', default=1.0)\n", word="VARN_"),
    Fact("thread local", "y * LOCALN_.k", ("LOCALN_.k = 2.0",), "LOCALN_ = threading.local()\nLOCALN_.k = 1.0\n", word="LOCALN_"),
    Fact("random object", "y * RNGN_.random()", ("pass",), "RNGN_ = random.Random(0)\n", word="random"),
    Fact("counter", "y * next(COUNTN_)", ("pass",), "COUNTN_ = itertools.count(1)\n", word="COUNTN_"),
    # caches
    Fact("cached table", "y * tableN_(4)", ("pass",), "@functools.lru_cache\ndef tableN_(n):\n    return torch.linspace(0.5, 1.5, n)\n"),
    Fact("cache in a dict", "y * tableN_(4)", ("pass", "CACHEN_.clear()"), "CACHEN_ = {}\ndef tableN_(n):\n    if n not in CACHEN_:\n        CACHEN_[n] = torch.linspace(0.5, 1.5, n)\n    return CACHEN_[n]\n", word="CACHEN_"),
)  # fmt: skip

# methods of the module for facts that are read through one; facts that are not drawn do not get theirs
METHODS = {
    "global in a private method": "    def _mN_(self, y):\n        return y * KN_\n",
    "global in a staticmethod": "    @staticmethod\n    def sN_(y):\n        return y * KN_\n",
    "global in a property": "    @property\n    def pN_(self):\n        return KN_\n",
}
BASE_METHODS = {"global in a super method": "    def hN_(self, y):\n        return y * KN_\n"}

IMPORTS = (
    "import collections, contextvars, dataclasses, enum, fractions, functools, itertools, math, os, random, threading, types\n"
    "import numpy, torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
)
