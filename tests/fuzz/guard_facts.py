"""The catalog of the guard fuzzer: Python facts that a random program reads, and how each of them changes.

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


def containers(kind, make, left, right, file=""):
    """Facts of two tensors in a container that another one replaces, outside and by build().

    `make`: the container, with L and R for the tensors; `left` and `right` read them from `v`.
    """
    held = lambda left, right: make.replace("L", left).replace("R", right)
    tensors = [f"torch.full((4,), {value})" for value in (1.5, 1.0, 2.0, 0.5)]
    first, other, twice = held(*tensors[:2]), held(*tensors[2:]), held("t", "t")
    swapped = held(right.replace("v", "model.aN_"), left.replace("v", "model.aN_"))
    changes = f"model.aN_ = {other}", f"model.aN_ = {swapped}", f"t = {tensors[2]}; model.aN_ = {twice}"
    reads = f"def readN_(v, y):\n    return y * {left} + {right}\n"
    binds = reads + (
        f"def bindN_(model, y):\n    v, new = model.aN_, y.detach().mean(0)\n"
        f"    model.aN_ = {held('new', left)}\n    return y * {left} + {right}\n"
    )
    return (
        attribute(f"tensors in {kind}", first, "readN_(self.aN_, y)", *changes, file=file + reads),
        attribute(f"state in {kind}", first, "bindN_(self, y)", *changes, file=file + binds),
    )


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
    # containers of tensors
    *containers("a tuple", "(L, R)", "v[0]", "v[1]"),
    *containers("a named tuple", "PairN_(L, R)", "v.left", "v[1]", file="PairN_ = collections.namedtuple('PairN_', 'left right')\n"),
    *containers("a list", "[L, R]", "v[0]", "v[1]"),
    *containers("a nested list", "[[L], {'r': R}]", "v[0][0]", "v[1]['r']"),
    *containers("a dict", "{'l': L, 'r': R}", "v['l']", "v['r']"),
    *containers("a dataclass", "DataN_(L, R)", "v.left", "v.right", file="@dataclasses.dataclass\nclass DataN_:\n    left: torch.Tensor\n    right: torch.Tensor\n"),
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
    # other sources of values
    Fact("environment", "y * float(os.environ.get('FUZZN_', '1'))", ("os.environ['FUZZN_'] = '3'", "os.environ.pop('FUZZN_', None)"), word="environ"),
    Fact("context variable", "y * VARN_.get()", ("VARN_.set(2.0)",), "VARN_ = contextvars.ContextVar('VARN_', default=1.0)\n", word="VARN_"),
    Fact("thread local", "y * LOCALN_.k", ("LOCALN_.k = 2.0",), "LOCALN_ = threading.local()\nLOCALN_.k = 1.0\n", word="LOCALN_"),
    # caches
    Fact("cached table", "y * tableN_(4)", ("pass",), "@functools.lru_cache\ndef tableN_(n):\n    return torch.linspace(0.5, 1.5, n)\n"),
    Fact("cache in a dict", "y * tableN_(4)", ("pass", "CACHEN_.clear()"), "CACHEN_ = {}\ndef tableN_(n):\n    if n not in CACHEN_:\n        CACHEN_[n] = torch.linspace(0.5, 1.5, n)\n    return CACHEN_[n]\n", word="CACHEN_"),
    # other syntax that reads a value
    attribute("slice", "[1.0, 2.0, 3.0]", "y * sum(self.aN_[1:])", "model.aN_[2] = 5.0", "model.aN_.insert(0, 4.0)"),
    attribute("starred", "[1.0, 2.0, 3.0]", "y * sum(last for _, *rest in [self.aN_] for last in rest)", "model.aN_[2] = 5.0", "model.aN_.append(4.0)"),
    attribute("zip", "[1.0, 2.0]", "y * sum(a * b for a, b in zip(self.aN_, (1, 2)))", "model.aN_[1] = 5.0", "model.aN_.pop()"),
    attribute("enumerate", "[1.0, 2.0]", "y * sum(i * v for i, v in enumerate(self.aN_))", "model.aN_[1] = 5.0", "model.aN_.append(0.5)"),
    attribute("reversed", "[1.0, 2.0]", "y * next(reversed(self.aN_))", "model.aN_[-1] = 5.0", "model.aN_.append(0.5)"),
    attribute("max with a key", "[1.0, -2.0]", "y * max(self.aN_, key=abs)", "model.aN_[1] = 0.5", "model.aN_[0] = 9.0"),
    attribute("any", "[0, 0]", "y * (2 if any(self.aN_) else 1)", "model.aN_[1] = 1", "model.aN_[1] = 0"),
    attribute("formatted name", "'ta'", "getattr(torch, f'{self.aN_}nh')(y)", "model.aN_ = 'si'", "model.aN_ = 'ta'"),
    attribute("percent format", "1.5", "y * float('%.2f' % self.aN_)", "model.aN_ = 2.5"),
    attribute("match", "{'kind': 'a'}", "matchN_(self.aN_, y)", "model.aN_['kind'] = 'b'", "model.aN_ = {'kind': 'a', 'k': 1}",
              file="def matchN_(v, y):\n    match v:\n        case {'kind': 'a', **rest} if not rest:\n            return y\n        case {'kind': 'b'}:\n            return y * 2\n        case _:\n            return y * 3\n"),
    attribute("missing key", "{}", "tryN_(self.aN_, y)", "model.aN_['k'] = 2.0", "model.aN_.pop('k', None)",
              file="def tryN_(d, y):\n    try:\n        return y * d['k']\n    except KeyError:\n        return y\n"),
    attribute("missing attribute", "types.SimpleNamespace()", "tryN_(self.aN_, y)", "model.aN_.k = 2.0", "vars(model.aN_).pop('k', None)",
              file="def tryN_(d, y):\n    try:\n        return y * d.k\n    except AttributeError:\n        return y\n"),
    global_fact("global in a with block", "withN_(y)", "class ContextN_:\n    def __enter__(self):\n        return KN_\n    def __exit__(self, *error):\n        pass\ndef withN_(y):\n    with ContextN_() as k:\n        return y * k\n"),
    global_fact("global by globals()", "y * globals()['KN_']"),
    global_fact("global by eval()", "y * eval('KN_')"),
    global_fact("global by getattr", "y * getattr(sys.modules[__name__], 'KN_')"),
    global_fact("global by import", "y * importlib.import_module(__name__).KN_"),
    Fact("absent global", "y * globals().get('LATEN_', 1.0)", ("LATEN_ = 2.0", "globals().pop('LATEN_', None)"), word="LATEN_"),
    Fact("shadowed builtin", "shadowN_(y)", ("settings.abs = lambda v: 3.0", "vars(settings).pop('abs', None)"),
         "exec('def shadowed(y):\\n    return y * abs(-2.0)\\n', vars(settings))\ndef shadowN_(y):\n    return settings.shadowed(y)\n", word="abs"),
    Fact("module attribute by name", "y * getattr(settings, 'SN_', 1.0)", ("settings.SN_ = 2.5", "vars(settings).pop('SN_', None)"), word="SN_"),
    # other classes of objects
    attribute("range", "range(3)", "y * sum(self.aN_)", "model.aN_ = range(4)", "model.aN_ = range(0, 3)"),
    attribute("slice object", "slice(0, 4)", "y * torch.ones(8)[self.aN_].cumsum(0)[-1]", "model.aN_ = slice(2, 5)"),
    attribute("complex", "1 + 1j", "y * abs(self.aN_)", "model.aN_ = 2 + 1j"),
    attribute("bytes", "b'ab'", "y * self.aN_[0] / 97", "model.aN_ = b'cb'"),
    attribute("bytearray", "bytearray(b'ab')", "y * self.aN_[0] / 97", "model.aN_[0] = 99"),
    attribute("array.array", "array.array('d', [1.0, 2.0])", "y * self.aN_[1]", "model.aN_[1] = 3.0"),
    attribute("memoryview", "memoryview(bytearray(b'ab'))", "y * self.aN_[0] / 97", "model.aN_[0] = 99"),
    attribute("pattern", "re.compile('a+')", "y * len(self.aN_.findall('aabaa'))", "model.aN_ = re.compile('b+')"),
    attribute("decimal", "decimal.Decimal('0.5')", "y * float(self.aN_)", "model.aN_ = decimal.Decimal('1.5')"),
    attribute("numpy scalar", "numpy.float32(1.0)", "y * float(self.aN_)", "model.aN_ = numpy.float32(2.0)"),
    attribute("numpy view", "numpy.ones((3, 3))[1:]", "y * float(self.aN_[0, 0])", "model.aN_.base[1, 0] = 3.0", "model.aN_[0] = 2.0"),
    attribute("array to tensor", "numpy.ones(4, 'float32')", "y * torch.from_numpy(self.aN_.copy())", "model.aN_[0] = 3.0"),
    attribute("torch.Size", "torch.Size([2, 3])", "y * self.aN_.numel()", "model.aN_ = torch.Size([2, 2])"),
    attribute("dtype", "torch.float32", "y.to(self.aN_).float()", "model.aN_ = torch.float16", "model.aN_ = torch.float64"),
    attribute("shape of a tensor", "torch.ones(3)", "y * self.aN_.shape[0]", "model.aN_ = torch.ones(5)", "model.aN_ = torch.ones(3, 1)"),
    attribute("item of a tensor", "torch.tensor(1.5)", "y * self.aN_.item()", "model.aN_.fill_(2.5)", "model.aN_ = torch.tensor(0.5)"),
    attribute("branch on a tensor", "torch.tensor(1.5)", "y * (2 if self.aN_ > 1 else 1)", "model.aN_.fill_(0.5)", "model.aN_ = torch.tensor(2.5)"),
    attribute("tolist of a tensor", "torch.tensor([1.0, 2.0])", "y * self.aN_.tolist()[1]", "model.aN_[1] = 2.5", "model.aN_ = torch.tensor([0.5, 0.5])"),
    attribute("sizes in a tensor", "torch.tensor([1, 3])", "torch.cat(y.split(self.aN_.tolist(), -1)[::-1], -1)", "model.aN_ = torch.tensor([2, 2])"),
    attribute("default dict", "collections.defaultdict(lambda: 1.0)", "y * self.aN_['k']", "model.aN_['k'] = 2.0", "model.aN_.clear()"),
    attribute("ordered dict", "collections.OrderedDict(a=1.0, b=2.0)", "y * next(iter(self.aN_.values()))", "model.aN_.move_to_end('a')", "model.aN_['a'] = 3.0"),
    attribute("counter object", "collections.Counter('aab')", "y * self.aN_['a'] * self.aN_['z' * 2 if len(self.aN_) > 5 else 'b']", "model.aN_.update('a')", "model.aN_.subtract('b')"),
    attribute("chain map", "collections.ChainMap({}, {'k': 1.0})", "y * self.aN_['k']", "model.aN_.maps[1]['k'] = 2.0", "model.aN_['k'] = 3.0"),
    attribute("user dict", "collections.UserDict(k=1.0)", "y * self.aN_['k']", "model.aN_['k'] = 2.0", "model.aN_.data = {'k': 3.0}"),
    attribute("mapping proxy", "types.MappingProxyType(TABLEN_)", "y * self.aN_['k']", "TABLEN_['k'] = 2.0", file="TABLEN_ = {'k': 1.0}\n"),
    attribute("frozenset of names", "frozenset('ab')", "y * (2 if 'c' in self.aN_ else 1)", "model.aN_ = frozenset('abc')"),
    attribute("dict keys", "{'a': 1, 'b': 2}", "y * len(self.aN_.keys() & {'b', 'c'})", "model.aN_['c'] = 1", "model.aN_.pop('b', None)"),
    attribute("dict key of two types", "{1: 1.0}", "y * (2.0 if isinstance(next(iter(self.aN_)), float) else 1.0)", "model.aN_ = {1.0: 1.0}"),
    attribute("list subclass", "ListN_([1.0])", "y * self.aN_[0] * self.aN_.k", "model.aN_.k = 2.0", "model.aN_[0] = 3.0", file="class ListN_(list):\n    k = 1.0\n"),
    attribute("dict subclass", "DictN_(k=1.0)", "y * self.aN_.k", "model.aN_.k = 2.0", "model.aN_['k'] = 3.0",
              file="class DictN_(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__\n"),
    attribute("float subclass", "FloatN_(1.0)", "y * self.aN_.times()", "model.aN_.k = 2.0", "model.aN_ = FloatN_(3.0)",
              file="class FloatN_(float):\n    k = 1.0\n    def times(self):\n        return float(self) * self.k\n"),
    attribute("object with __getattr__", "LazyN_()", "y * self.aN_.k", "model.aN_.values['k'] = 2.0", "model.aN_.k = 3.0",
              file="class LazyN_:\n    def __init__(self):\n        self.values = {'k': 1.0}\n    def __getattr__(self, name):\n        return self.values[name]\n"),
    attribute("object with __getattribute__", "LazyN_()", "y * self.aN_.k", "LazyN_.factor = 2.0", "model.aN_.k = 3.0",
              file="class LazyN_:\n    factor = 1.0\n    def __init__(self):\n        self.k = 1.0\n    def __getattribute__(self, name):\n        value = object.__getattribute__(self, name)\n        return value * LazyN_.factor if name == 'k' else value\n"),
    attribute("object with __getitem__", "RowsN_()", "y * self.aN_[1] * len(self.aN_)", "model.aN_.rows[1] = 2.0", "model.aN_.rows.append(0.5)",
              file="class RowsN_:\n    def __init__(self):\n        self.rows = [1.0, 1.5]\n    def __getitem__(self, i):\n        return self.rows[i]\n    def __len__(self):\n        return len(self.rows)\n"),
    attribute("object with __iter__", "RowsN_()", "y * sum(self.aN_)", "model.aN_.rows[1] = 2.0", "model.aN_.rows.append(0.5)",
              file="class RowsN_:\n    def __init__(self):\n        self.rows = [1.0, 1.5]\n    def __iter__(self):\n        yield from self.rows\n"),
    attribute("object with __contains__", "RowsN_()", "y * (2 if 'k' in self.aN_ else 1)", "model.aN_.rows.append('k')", "model.aN_.rows.clear()",
              file="class RowsN_:\n    def __init__(self):\n        self.rows = []\n    def __contains__(self, value):\n        return value in self.rows\n"),
    attribute("object with __bool__", "FlagN_()", "y * (2 if self.aN_ else 1)", "model.aN_.on = True", "FlagN_.__bool__ = lambda self: True",
              file="class FlagN_:\n    on = False\n    def __bool__(self):\n        return self.on\n"),
    attribute("object with __eq__", "KeyN_(1)", "y * (2 if self.aN_ == KeyN_(2) else 1)", "model.aN_.k = 2", "model.aN_ = KeyN_(3)",
              file="class KeyN_:\n    def __init__(self, k):\n        self.k = k\n    def __eq__(self, other):\n        return self.k == other.k\n    def __hash__(self):\n        return hash(self.k)\n"),
    attribute("object with operators", "ScaleN_(1.0)", "(self.aN_ * 2.0).k * y", "model.aN_.k = 2.0", "ScaleN_.__mul__ = lambda self, v: self",
              file="class ScaleN_:\n    def __init__(self, k):\n        self.k = k\n    def __mul__(self, v):\n        return ScaleN_(self.k * v)\n"),
    attribute("descriptor", "1.0", "y * self.scaleN_", "vars(type(model))['scaleN_'].k = 2.0", "type(model).scaleN_ = 3.0",
              file="class ScaleN_:\n    k = 1.0\n    def __get__(self, owner, cls):\n        return self.k\n    def __set__(self, owner, value):\n        self.k = value\n"),
    attribute("slots", "SlotN_()", "y * self.aN_.k", "model.aN_.k = 2.0", "del model.aN_.k; model.aN_.k = 3.0", file="class SlotN_:\n    __slots__ = ('k',)\n    def __init__(self):\n        self.k = 1.0\n"),
    attribute("replaced class", "FirstN_()", "y * self.aN_.k()", "model.aN_.__class__ = SecondN_", "FirstN_.k = SecondN_.k",
              file="class FirstN_:\n    def k(self):\n        return 1.0\nclass SecondN_:\n    def k(self):\n        return 2.0\n"),
    attribute("base class attribute", "ChildN_()", "y * self.aN_.k", "ParentN_.k = 2.0", "ChildN_.k = 3.0", "ChildN_.__bases__ = (OtherN_,)",
              file="class ParentN_:\n    k = 1.0\nclass OtherN_:\n    k = 4.0\nclass ChildN_(ParentN_):\n    pass\n"),
    attribute("metaclass attribute", "ClassN_", "y * self.aN_.k", "MetaN_.k = 2.0", "ClassN_.k = 3.0", file="class MetaN_(type):\n    k = 1.0\nclass ClassN_(metaclass=MetaN_):\n    pass\n"),
    attribute("class method", "ClassN_", "y * self.aN_.times()", "ClassN_.k = 2.0", "ClassN_.times = staticmethod(lambda: 3.0)", file="class ClassN_:\n    k = 1.0\n    @classmethod\n    def times(cls):\n        return cls.k\n"),
    attribute("instance check", "1", "y * (2 if isinstance(self.aN_, VirtualN_) else 1)", "model.aN_ = 1.0", "model.aN_ = 'a'", file="VirtualN_ = (float, str)\n"),
    attribute("enum member with data", "ModeN_.A", "y * self.aN_.value['k']", "ModeN_.A.value['k'] = 2.0", "model.aN_ = ModeN_.B", file="class ModeN_(enum.Enum):\n    A = {'k': 1.0}\n    B = {'k': 3.0}\n"),
    attribute("flag", "ModeN_.A", "y * (2 if ModeN_.B in self.aN_ else 1)", "model.aN_ |= ModeN_.B", "model.aN_ = ModeN_.A", file="class ModeN_(enum.Flag):\n    A = 1\n    B = 2\n"),
    attribute("weak reference", "weakref.ref(OBJECTN_)", "y * self.aN_().k", "OBJECTN_.k = 2.0", file="class ObjectN_:\n    k = 1.0\nOBJECTN_ = ObjectN_()\n"),
    attribute("linked list", "NodeN_(1.0, NodeN_(2.0, NodeN_(3.0, None)))", "y * NodeN_.total(self.aN_)", "model.aN_.next.next.k = 5.0", "model.aN_.next.next.next = NodeN_(1.0, None)", "model.aN_.next = None",
              file="class NodeN_:\n    def __init__(self, k, next):\n        self.k, self.next = k, next\n    @staticmethod\n    def total(node):\n        k = 0.0\n        while node is not None:\n            k, node = k + node.k, node.next\n        return k\n"),
    attribute("item getter", "operator.itemgetter(0)", "y * self.aN_([1.0, 2.0])", "model.aN_ = operator.itemgetter(1)"),
    attribute("attribute getter", "types.SimpleNamespace(k=1.0)", "y * operator.attrgetter('k')(self.aN_)", "model.aN_.k = 2.0"),
    attribute("method caller", "[2.0, 1.0]", "y * operator.methodcaller('index', 1.0)(self.aN_)", "model.aN_.reverse()", "model.aN_.insert(0, 3.0)"),
    attribute("reduce", "[1.0, 2.0]", "y * functools.reduce(operator.mul, self.aN_)", "model.aN_[0] = 3.0", "model.aN_.append(2.0)"),
    attribute("chain", "[[1.0], [2.0]]", "y * sum(itertools.chain.from_iterable(self.aN_))", "model.aN_[1][0] = 3.0", "model.aN_.append([4.0])"),
    attribute("bisect", "[1.0, 2.0, 3.0]", "y * bisect.bisect(self.aN_, 2.5)", "model.aN_[1] = 2.75", "model.aN_.insert(0, 0.5)"),
    attribute("json", "[1.0, {'a': 2.0}]", "y * len(json.dumps(self.aN_))", "model.aN_[1]['a'] = 2.25", "model.aN_.append(None)"),
    attribute("deep copy", "{'a': [1.0]}", "y * copy.deepcopy(self.aN_)['a'][0]", "model.aN_['a'][0] = 2.0"),
    attribute("asdict", "DataN_([1.0])", "y * dataclasses.asdict(self.aN_)['k'][0]", "model.aN_.k[0] = 2.0", "model.aN_.k = [3.0]", file="@dataclasses.dataclass\nclass DataN_:\n    k: list\n"),
    attribute("vars", "types.SimpleNamespace(k=1.0)", "y * vars(self.aN_)['k']", "model.aN_.k = 2.0"),
    attribute("keyword arguments", "{'p': 1.0}", "keyN_(y, **self.aN_)", "model.aN_['p'] = 2.0", "model.aN_['q'] = 3.0", file="def keyN_(y, p=1.0, q=1.0):\n    return y * p * q\n"),
    attribute("positional arguments", "[1.0]", "positN_(y, *self.aN_)", "model.aN_[0] = 2.0", "model.aN_.append(3.0)", file="def positN_(y, p=1.0, q=1.0):\n    return y * p * q\n"),
    attribute("keyword default", "lambda y, *, k=1.0: y * k", "self.aN_(y)", "model.aN_.__kwdefaults__ = {'k': 2.0}", "model.aN_.__kwdefaults__['k'] = 3.0"),
    attribute("attribute of a function", "stepN_", "y * self.aN_.k", "stepN_.k = 2.0", "model.aN_.k = 3.0", file="def stepN_():\n    pass\nstepN_.k = 1.0\n"),
    attribute("single dispatch", "1", "y * dispatchN_(self.aN_)", "dispatchN_.register(int, lambda v: 3.0)", "model.aN_ = 'a'", file="@functools.singledispatch\ndef dispatchN_(v):\n    return 1.0\ndispatchN_.register(str, lambda v: 2.0)\n"),
    attribute("cached function of a number", "1.0", "y * cachedN_(self.aN_)", "model.aN_ = 2.0", "model.aN_ = 3.0", file="@functools.lru_cache\ndef cachedN_(k):\n    return k * 2\n"),
    attribute("cleared cache", "0", "y * cachedN_()", "KN_ = 2.0; cachedN_.cache_clear()", file="KN_ = 1.0\n@functools.lru_cache\ndef cachedN_():\n    return KN_\n"),
    attribute("cached property", "HolderN_()", "y * self.aN_.twice", "model.aN_.__dict__.pop('twice', None); model.aN_.k = 2.0", "model.aN_.twice = 3.0",
              file="class HolderN_:\n    k = 1.0\n    @functools.cached_property\n    def twice(self):\n        return self.k * 2\n"),
    # modules inside of containers
    attribute("module list", "nn.ModuleList([nn.Tanh(), nn.ReLU()])", "functools.reduce(lambda v, m: m(v), self.aN_, y)", "model.aN_.append(nn.Sigmoid())", "model.aN_[0] = nn.GELU()", "model.aN_ = model.aN_[:1]"),
    attribute("module dict", "nn.ModuleDict({'a': nn.Tanh(), 'b': nn.ReLU()})", "self.aN_[next(iter(self.aN_))](y)", "model.aN_['a'] = nn.ReLU()", "del model.aN_['a']"),
    attribute("modules in a list", "[nn.Tanh(), nn.ReLU()]", "self.aN_[1](y)", "model.aN_[1] = nn.GELU()", "model.aN_.reverse()"),
    attribute("parameter list", "nn.ParameterList([torch.ones(4), torch.ones(4)])", "functools.reduce(torch.mul, self.aN_, y)", "model.aN_.append(torch.full((4,), 2.0))", "model.aN_[0] = torch.full((4,), 2.0)"),
    attribute("children", "nn.Sequential(nn.Tanh())", "y * len(list(self.aN_.children()))", "model.aN_.append(nn.Identity())"),
    attribute("training of a layer", "nn.Dropout(0.5)", "y * (2 if self.aN_.p > 0.5 else 1)", "model.aN_.p = 0.75"),
    attribute("requires_grad", "nn.Parameter(torch.ones(4))", "y * self.aN_ * (2 if self.aN_.requires_grad else 1)", "model.aN_.requires_grad_(not model.aN_.requires_grad)"),
    attribute("gradient", "nn.Parameter(torch.ones(4))", "y * (2 if self.aN_.grad is None else 1) * self.aN_", "pass"),
    attribute("extra state of a tensor", "torch.ones(4)", "y * getattr(self.aN_, 'k', 1.0)", "model.aN_.k = 2.0", "model.aN_.k = 3.0"),
    attribute("sparse tensor", "torch.eye(4).to_sparse()", "torch.sparse.mm(self.aN_, y.T).T", "model.aN_ = (torch.eye(4) * 2).to_sparse()"),
    attribute("tensor in a closure", "makeN_(torch.ones(4))", "self.aN_(y)", "model.aN_.__closure__[0].cell_contents = torch.full((4,), 2.0)", "model.aN_.__closure__[0].cell_contents.mul_(1.5)", file="def makeN_(t):\n    return lambda y: y * t\n"),
    attribute("tensors in a set", "{torch.full((4,), 1.5)}", "functools.reduce(torch.mul, self.aN_, y)", "next(iter(model.aN_)).mul_(1.25)", "model.aN_ = {torch.full((4,), 0.5)}"),
    attribute("tensor in a dataclass", "DataN_(torch.ones(4))", "y * self.aN_.t", "model.aN_.t = torch.full((4,), 2.0)", "model.aN_.t.mul_(1.5)", file="@dataclasses.dataclass\nclass DataN_:\n    t: torch.Tensor\n"),
    attribute("generator of torch", "torch.Generator().manual_seed(3)", "y * torch.rand((), generator=self.aN_)", "model.aN_.manual_seed(5)", "pass"),
    attribute("text of a tensor", "torch.ones(3)", "y * len(str(self.aN_))", "model.aN_.mul_(1e-9)", "model.aN_ = torch.zeros(2)"),
    attribute("attribute of a script module", "torch.jit.script(ScriptN_())", "self.aN_(y)", "model.aN_.k = 2.0", "model.aN_.k = 0.5",
              file="class ScriptN_(nn.Module):\n    k: float\n    def __init__(self):\n        super().__init__()\n        self.k = 1.0\n    def forward(self, y):\n        return y * self.k\n"),
    Fact("defaults of a function of torch", "leakN_(y)", ("leakN_.__defaults__ = (0.5, False)", "leakN_.__defaults__ = (0.01, False)"),
         "leakN_ = types.FunctionType(F.leaky_relu.__code__, vars(F), 'leaky_relu', F.leaky_relu.__defaults__)\n", word="leaky_relu"),
    Fact("value of a member", "y * EnumN_.LOW.value", ("EnumN_.LOW._value_ = 2.0", "EnumN_.LOW._value_ = 0.5"), "class EnumN_(enum.Enum):\n    LOW = 1.0\n    HIGH = 3.0\n", word="EnumN_"),
    Fact("namespace of executed code", "y * executedN_()", ("NAMESN_['k'] = 2.0", "NAMESN_['other'] = 1.0"), "NAMESN_ = {'k': 1.0}\ndef executedN_():\n    exec('j = k * 2', NAMESN_)\n    return NAMESN_['j']\n", word="NAMESN_"),
    # what a later argument answers otherwise; see ARGUMENT_CHANGES
    Fact("attribute of an argument", "y * getattr(x, 'tag', 1.0)", ("pass",)),
    Fact("gradient of an argument", "y * (1.0 if x.grad is None else 2.0)", ("pass",)),
    Fact("history of an argument", "y * (1.0 if x.is_leaf and x.grad_fn is None else 2.0)", ("pass",)),
    Fact("class of an argument", "y * (2.0 if isinstance(x, nn.Parameter) else 1.0)", ("pass",)),
    Fact("place of an argument", "y * (x.storage_offset() + 1)", ("pass",)),
    # state that the program changes
    Fact("number counted by build", "countN_(self, y)", ("model.aN_ = 5", "model.aN_ = 0"), "def countN_(model, y):\n    model.aN_ = model.aN_ + 1\n    return y * (2 if model.aN_ > 3 else 1)\n", "self.aN_ = 0", "aN_"),
    Fact("tensor counted by build", "countN_(self, y)", ("model.aN_ = torch.tensor(5.0)", "model.aN_.zero_()"), "def countN_(model, y):\n    model.aN_ = model.aN_ + 1\n    return y * (1 + model.aN_)\n", "self.aN_ = torch.tensor(0.0)", "aN_"),
    Fact("tensor replaced by build", "keepN_(self, y)", ("model.aN_ = None", "model.aN_ = torch.full((4,), 2.0)"), "def keepN_(model, y):\n    last, model.aN_ = model.aN_, y.detach().mean(0)\n    return y if last is None else y + last\n", "self.aN_ = None", "aN_"),
    Fact("flag set by build", "onceN_(self, y)", ("model.aN_ = False", "del model.aN_; model.aN_ = False"), "def onceN_(model, y):\n    if not model.aN_:\n        model.aN_ = True\n        return y * 2\n    return y\n", "self.aN_ = False", "aN_"),
)  # fmt: skip

# changes that no guard can follow: a warning, or each call runs the line
ANNOUNCED = (
    Fact("random object", "y * RNGN_.random()", ("pass",), "RNGN_ = random.Random(0)\n", word="random"),
    Fact("counter", "y * next(COUNTN_)", ("pass",), "COUNTN_ = itertools.count(1)\n", word="COUNTN_"),
    Fact("numpy generator", "y * float(RNGN_.random())", ("pass",), "RNGN_ = numpy.random.default_rng(0)\n", word="random"),
    Fact("iterator of a list", "y * next(ITN_)", ("pass",), "ITN_ = iter([1.0, 2.0, 3.0] * 50)\n", word="ITN_"),
    Fact("generator of the user", "y * next(GENN_)", ("pass",), "GENN_ = (float(k) for k in itertools.count(1))\n", word="GENN_"),
    Fact("global list that build extends", "extendN_(y)", ("pass", "SEENN_.clear()"), "SEENN_ = []\ndef extendN_(y):\n    SEENN_.append(1.0)\n    return y * len(SEENN_)\n", word="SEENN_"),
    Fact("global that build counts", "countN_(y)", ("pass", "CALLSN_ = 0"), "CALLSN_ = 0\ndef countN_(y):\n    global CALLSN_\n    CALLSN_ += 1\n    return y * CALLSN_\n", word="CALLSN_"),
)  # fmt: skip

# methods of the module for facts that are read through one; facts that are not drawn do not get theirs
METHODS = {
    "descriptor": "    scaleN_ = ScaleN_()\n",
    "global in a private method": "    def _mN_(self, y):\n        return y * KN_\n",
    "global in a staticmethod": "    @staticmethod\n    def sN_(y):\n        return y * KN_\n",
    "global in a property": "    @property\n    def pN_(self):\n        return KN_\n",
}
BASE_METHODS = {"global in a super method": "    def hN_(self, y):\n        return y * KN_\n"}

IMPORTS = (
    "import array, bisect, collections, contextvars, copy, dataclasses, decimal, enum, fractions, functools, importlib, itertools, json\n"
    "import math, operator, os, random, re, sys, threading, time, types, uuid, weakref\n"
    "import numpy, torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
)
