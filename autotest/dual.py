"""The dual object: one name for a value on the reference's side and its twin on the candidate's.

Attributes, calls, operators, indexing and assignment act on both sides. `.pytorch` and `.oneflow`
(or the pair's own names) and `.reference`, `.candidate` hand out the sides.
"""
from __future__ import annotations

import operator

from . import case as cases
from .calls import both, record, split, split_arguments
from .errors import Mismatch

_set = object.__setattr__
# OneFlow's own tensor methods: on the reference's side they leave the value as it is.
PLACEMENT_METHODS = {"to_global", "to_local", "local_to_global", "global_to_global", "to_consistent"}
profiled: list = []  # paths of the dual functions that a running `profile` measures


class _Length(int):
    """What `dual.__len__()` gives when a test calls it by that name: it has the two sides, as other results do."""


class Dual:
    __dual__ = True
    __slots__ = ("_pair", "_ref", "_cand", "_path", "_owner", "_step", "__weakref__")

    def __init__(self, pair, ref, cand, path="", owner=None):
        _set(self, "_pair", pair)
        _set(self, "_ref", ref)
        _set(self, "_cand", cand)
        _set(self, "_path", path)
        _set(self, "_owner", owner)
        _set(self, "_step", None)

    # ------------------------------------------------------------------ the two sides
    @property
    def pytorch(self):
        return self._ref

    @property
    def oneflow(self):
        return self._cand

    reference, candidate = pytorch, oneflow

    @property
    def name(self):
        return self._path

    def plain(self):
        """The value as an ordinary Python value; both sides must agree."""
        if type(self._ref) is not type(self._cand) or self._ref != self._cand:
            raise Mismatch("values", f"{self._path or 'value'} is {self._ref!r} in {self._pair.names[0]} and {self._cand!r} in {self._pair.names[1]}")
        return self._ref

    # ------------------------------------------------------------------ attributes
    def __getattr__(self, key):
        pair = self._pair
        if key in pair.names:
            return self.pytorch if key == pair.names[0] else self.oneflow
        path = f"{self._path}.{key}" if self._path else key
        if self._step is None and not pair.is_reference_tensor(self._ref):
            return _namespace_attribute(self, key, path)
        special = _reference_of_placement(self, key)
        ref = getattr(self._ref, key) if special is None else special[0]
        cand = getattr(self._cand, key)
        if ref is None and cand is None:
            return None
        if (ref is None) != (cand is None) and key != "grad":
            raise Mismatch("number and type of outputs", f"{path} is {_kind(ref)} in {pair.names[0]} and {_kind(cand)} in {pair.names[1]}")
        out = Dual(pair, ref, cand, key, owner=self)
        if pair.is_reference_tensor(ref):
            record("get", self, (key,), None, out)
        return out

    def __setattr__(self, key, value):
        if key in Dual.__slots__:
            return _set(self, key, value)
        if key in ("pytorch", "reference", self._pair.names[0]):
            return _set(self, "_ref", value)
        if key in ("oneflow", "candidate", self._pair.names[1]):
            return _set(self, "_cand", value)
        value, r, c = split(value)
        setattr(self._ref, key, r)
        setattr(self._cand, key, c)
        record("set", self, (key, value), None, None)

    def __delattr__(self, key):
        delattr(self._ref, key)
        delattr(self._cand, key)

    def __dir__(self):
        return sorted(set(dir(self._ref)) | {"pytorch", "oneflow", "reference", "candidate", *self._pair.names})

    # ------------------------------------------------------------------ calls
    def __call__(self, *args, **kwargs):
        pair = self._pair
        if profiled and self._path in profiled:
            from .profiler import profile_dual_object

            return profile_dual_object(self)(*args, **kwargs)
        resolved, (r_args, r_kwargs), (c_args, c_kwargs) = split_arguments(self._ref, args, kwargs)
        name = self._path.rpartition(".")[2]
        if isinstance(self._ref, pair.reference_module) and cases.current() is not None:
            cases.current().note_forward(self)
        label = _Label(self, resolved)
        r, c = both(pair, label, self._ref, self._cand, r_args, r_kwargs, c_args, c_kwargs, name)
        out = wrap(pair, r, c)
        return record("call", self, resolved[0], resolved[1], out, random=pair.drawn_from)

    # ------------------------------------------------------------------ containers and contexts
    def __iter__(self):
        r, c = self._ref, self._cand
        if hasattr(r, "__len__") and hasattr(c, "__len__") and not isinstance(r, (dict, str)):
            n = len(self)
            return iter([self[i] for i in range(n)])
        return (Dual(self._pair, a, b) for a, b in zip(iter(r), iter(c)))

    def __next__(self):
        return Dual(self._pair, next(self._ref), next(self._cand))

    def __len__(self):
        length = _Length(_agreed(self, "len()", len(self._ref), len(self._cand)))
        for name in ("reference", "candidate", *self._pair.names):
            setattr(length, name, int(length))
        return length

    def __contains__(self, item):
        _, r, c = split(item)
        return _agreed(self, "in", r in self._ref, c in self._cand)

    def __setitem__(self, key, value):
        _operate(operator.setitem, "setitem", self, key, value)

    def __delitem__(self, key):
        _operate(operator.delitem, "delitem", self, key)

    def __enter__(self):
        r, c = self._ref.__enter__(), self._cand.__enter__()
        record("enter", self, (), None, None)
        return self if r is self._ref else wrap(self._pair, r, c)

    def __exit__(self, *exc):
        stop = self._cand.__exit__(*exc)
        stop = self._ref.__exit__(*exc) or stop
        record("exit", self, (), None, None)
        return stop

    # ------------------------------------------------------------------ as a Python value
    def __bool__(self):
        return _agreed(self, "bool()", bool(self._ref), bool(self._cand))

    def __int__(self):
        return _agreed(self, "int()", int(self._ref), int(self._cand))

    def __index__(self):
        return _agreed(self, "index", operator.index(self._ref), operator.index(self._cand))

    def __float__(self):
        return float(self._ref)

    def __complex__(self):
        return complex(self._ref)

    def __hash__(self):
        return id(self)

    def __instancecheck__(self, x):
        return isinstance(x._ref if hasattr(type(x), "__dual__") else x, (self._ref, self._cand))

    def __format__(self, spec):
        return format(self._ref, spec)

    def __repr__(self):
        a, b = self._pair.names
        return f"{a}:\n{self._ref}\n\n{b}:\n{self._cand}"

    __str__ = __repr__


def _agreed(dual, what, r, c):
    if r != c:
        raise Mismatch("values", f"{what} of {dual._path or 'the value'} is {r!r} in {dual._pair.names[0]} and {c!r} in {dual._pair.names[1]}")
    return r


def _kind(x):
    return "None" if x is None else f"a {type(x).__name__}"


def _namespace_attribute(self, key, path):
    """Attribute of a module of the two libraries, a class or a function; such objects never need a record."""
    try:
        ref = getattr(self._ref, key)
    except AttributeError:
        if not key.startswith("__") and hasattr(self._cand, key):
            raise AttributeError(f"{self._pair.names[0]} has no {path}, {self._pair.names[1]} has") from None
        raise
    cand = getattr(self._cand, key)
    if ref is None and cand is None:
        return None
    return Dual(self._pair, ref, cand, path, owner=self._owner)


def _reference_of_placement(dual, key):
    ref = dual._ref
    if key in PLACEMENT_METHODS:
        copy = ref.clone if dual._pair.is_reference_tensor(ref) else (lambda: ref)
        return (lambda *args, **kwargs: copy(),)
    if key in ("placement", "sbp"):
        return ("unused",)
    if key == "broadcast_like" and not hasattr(ref, key):
        return (lambda like, *args, **kwargs: ref.broadcast_to(like.size()),)
    return None


def wrap(pair, r, c, path=""):
    """The dual object of two results; a new module gets the reference's weights."""
    out = Dual(pair, r, c, path)
    if isinstance(r, pair.reference_module) and isinstance(c, pair.candidate_module):
        case = cases.current()
        known = case.known_modules if case is not None else ()
        if id(c) not in known:
            from .placement import in_global_scope, module_to_global

            missing = [k for k in r.state_dict() if k not in c.state_dict()]
            if missing:
                import warnings

                warnings.warn(f"{pair.names[1]}'s {type(c).__name__} does not have {missing}", stacklevel=3)
            pair.copy_state(r, c)
            if in_global_scope():
                c = module_to_global(pair, c)
                _set(out, "_cand", c)
            if case is not None:
                case.known_modules.add(id(c))
                case.modules.append(out)
    return out


class _Label:
    """What was called, as text; only worked out when a message needs it."""

    def __init__(self, target, resolved):
        self.target, self.resolved = target, resolved

    def __str__(self):
        from .script import call_text

        return call_text(self.target, self.resolved)

    __format__ = lambda self, spec: str(self)


# ---------------------------------------------------------------------- operators
def _operate(function, name, *operands):
    """An operator on both sides; one of the operands is a dual object."""
    parts = [split(o) for o in operands]
    dual = next(o for o in operands if hasattr(type(o), "__dual__"))
    resolved = tuple(p[0] for p in parts)
    target = Dual(dual._pair, function, function, name)
    r, c = both(dual._pair, _Label(target, (resolved, {})), function, function, [p[1] for p in parts], {}, [p[2] for p in parts], {})
    return record("op", target, resolved, None, Dual(dual._pair, r, c), random=dual._pair.drawn_from)


def _method(name, function, swapped=False):
    if swapped:
        return lambda self, other: _operate(function, name, other, self)
    return lambda self, *others: _operate(function, name, self, *others)


def _install():
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"):
        function = getattr(operator, name, None) or getattr(operator, name + "_")
        setattr(Dual, f"__{name}__", _method(name, function))
        setattr(Dual, f"__r{name}__", _method(name, function, swapped=True))
        setattr(Dual, f"__i{name}__", _method("i" + name, getattr(operator, "i" + name)))
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem", "neg", "pos", "abs", "invert"):
        setattr(Dual, f"__{name}__", _method(name, getattr(operator, name)))
    setattr(Dual, "__divmod__", _method("divmod", divmod))
    setattr(Dual, "__round__", _method("round", round))
    setattr(Dual, "__reversed__", lambda self: reversed(list(self)))


_install()


def GetDualObject(pair, name, ref, cand):
    """A dual object of two values made elsewhere; tensors become inputs of the running case."""
    if isinstance(ref, pair.reference_module):
        return wrap(pair, ref, cand, name)
    out = Dual(pair, ref, cand, name)
    if pair.is_reference_tensor(ref):
        record("input", None, (), None, out, value=ref.detach().clone())
    return out
