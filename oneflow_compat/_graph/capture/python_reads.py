"""What a capture took from Python: attributes of modules, names of closures and modules. Checked before each call.

While build() runs, reads of attributes are noted (module and graph objects), and the free names of the user's
functions. A number, string or flag that has another value at a later call makes another program; another tensor
of the same shape and dtype takes the place of the old one. Lists and dicts of plain values are compared as a whole,
NumPy arrays by their values (of many elements by identity), records (objects of a class without methods) by the attributes read.
"""
from __future__ import annotations

import contextlib
import copy
import enum
import types
import warnings

import numpy as np
import torch

from ..errors import skipped

_NUMBERS = (int, float, bool, str, bytes, complex, type(None))
_PLAIN = (*_NUMBERS, np.generic, torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, enum.Enum, slice, range)
_BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType, type, torch.nn.Module)
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # of CPython's type flags
_MANY = 32
DEPTH = 4  # of lists and dicts in each other: what lies deeper is not compared, and results may not be kept there
_ELEMENTS = 4096  # of an array whose values are compared at each call
_UNREAD = frozenset(vars(torch.nn.Module()))
_MISSING = object()
_WARN_AFTER = 8


def _same(a, b):
    """Equal as an argument of a program: 1 is not 1.0 and not True, 0.0 is not -0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        kind = list if isinstance(a, list) else tuple  # a subclass may have other elements, or no length
        return kind.__len__(a) == kind.__len__(b) and all(map(_same, kind.__iter__(a), kind.__iter__(b)))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if _is_record(type(a)):
        return vars(a).keys() == vars(b).keys() and all(_same(v, vars(b)[k]) for k, v in vars(a).items())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b) if isinstance(a, (float, complex, np.inexact)) else isinstance(a, _PLAIN) and a == b


def _plain(value):
    if isinstance(value, tuple) and not isinstance(value, _PLAIN):
        return tuple.__len__(value) <= _MANY and all(map(_plain, tuple.__iter__(value)))
    return isinstance(value, _PLAIN) or isinstance(value, frozenset) and len(value) <= _MANY and all(map(_plain, value))


def _is_dict(value):
    """A dict, or one of a subclass that finds values as dicts do."""
    return isinstance(value, dict) and type(value).__getitem__ is dict.__getitem__


def _is_record(cls):
    """A class of Python objects with attributes and no methods: argparse.Namespace, `class Config`."""
    of_python = type(cls) is type and cls.__flags__ & _HEAP_TYPE and not cls.__flags__ & _IMMUTABLE
    if not of_python or not cls.__dictoffset__ or issubclass(cls, (dict, list, tuple, *_NUMBERS[:-1])):
        return False
    return not any(isinstance(v, _METHODS) and not k.startswith("_") for c in cls.__mro__[:-1] for k, v in vars(c).items())


def _plain_container(value):
    if _is_dict(value):
        return len(value) <= _MANY and all(type(k) in _NUMBERS for k in value) and all(map(_plain, value.values()))
    return type(value) is list and len(value) <= _MANY and all(map(_plain, value))


def meta(tensor):
    """What a program takes for fixed about a tensor it reads."""
    stride = tensor.stride() if tensor.layout is torch.strided else None
    return tensor.shape, stride, tensor.dtype, tensor.device, tensor.requires_grad, tensor.layout, type(tensor)


class Reads:
    """A context: notes what build() reads. `owner` is the object build() belongs to, or None."""

    def __init__(self, build, owner, active, on_module):
        self.build, self.owner, self.active, self.on_module = build, owner, active, on_module
        self.entries: dict = {}  # (id(container), key) -> (container, key, value at the first read, label, by whom it may be changed)
        self.modules: dict = {}
        self.made: dict = {}
        self.functions: dict = {}
        self.classes: set = set()

    # -- attributes ------------------------------------------------------------------
    def __enter__(self):
        self.stack = contextlib.ExitStack()
        classes = {torch.nn.Module}
        if self.owner is not None:
            classes.add(type(self.owner))
        for cls in classes:
            self._reading(cls)
        if self.owner is not None:
            self._function(getattr(type(self.owner), "build", None))
        self._function(self.build)
        return self

    def __exit__(self, *exc):
        return self.stack.__exit__(*exc)

    def _reading(self, cls):
        """Attributes of the objects of a class are noted from here on."""
        if cls not in self.classes:
            self.classes.add(cls)
            self.stack.enter_context(self._patched(cls))

    @contextlib.contextmanager
    def _patched(self, cls):
        own = cls.__dict__.get("__getattribute__")
        get = cls.__getattribute__
        seen, active, note, absent = set(), self.active, self._note, self._absent

        def __getattribute__(self, name):
            try:
                value = get(self, name)
            except AttributeError:
                if not name.startswith("__") and (id(self), name) not in seen and active():
                    seen.add((id(self), name))
                    absent(self, name)
                raise
            key = (id(self), name)
            if key not in seen and active():
                seen.add(key)
                note(self, name, value)
            return value

        cls.__getattribute__ = __getattribute__
        try:
            yield
        finally:
            if own is None:
                del cls.__getattribute__
            else:
                cls.__getattribute__ = own

    def _note(self, thing, name, value):
        attributes = object.__getattribute__(thing, "__dict__")
        if isinstance(thing, torch.nn.Module):
            if id(thing) in self.made or not self._known(thing, attributes):
                return
        elif name.startswith("_"):
            return
        if name in attributes:
            if name not in _UNREAD:
                self._value(attributes, name, value, f"{type(thing).__name__}.{name}", True)
        elif isinstance(value, types.MethodType) and not name.startswith("_"):
            self._function(value.__func__)
        elif _plain(value):  # of the class, or computed: until the object has its own
            self.entries.setdefault((id(attributes), name), (attributes, name, _MISSING, f"{type(thing).__name__}.{name}", True))

    def _known(self, module, attributes):
        """False for a module that build() itself is making."""
        if id(module) not in self.modules:
            if "_modules" not in attributes:
                self.made[id(module)] = module
                return False
            self.modules[id(module)] = module
            self.on_module(module)
        return True

    def _absent(self, thing, name):
        """An attribute that build() looked for and did not find."""
        attributes = object.__getattribute__(thing, "__dict__")
        if id(thing) in self.made or isinstance(thing, torch.nn.Module) and not self._known(thing, attributes):
            return
        if not any(name in attributes.get(kind, ()) for kind in ("_parameters", "_buffers", "_modules", "_blocks")):
            self.entries.setdefault((id(attributes), name), (attributes, name, _MISSING, f"{type(thing).__name__}.{name}", True))

    def _value(self, container, key, value, label, attribute, depth=0):
        if getattr(value, "__module__", None) == f"{__package__}.recomputation":  # forward of a recomputed module
            return
        entry = (container, key, value, label, attribute)
        if isinstance(value, (*_BY_IDENTITY, torch.Tensor)) or _plain(value):
            self.entries.setdefault((id(container), key), entry)
            if isinstance(value, types.FunctionType):
                self._function(value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            if value.size <= _ELEMENTS:
                self.entries.setdefault((id(container), key), (_Elements(container, key), np.ndarray, _elements(value), label, False))
            else:
                self.entries.setdefault((id(container), key), entry)
        elif _plain_container(value):
            self.entries.setdefault((id(container), key), (*entry[:2], copy.copy(value), *entry[3:]))
        elif depth < DEPTH and (type(value) is list or _is_dict(value)) and len(value) <= _MANY:
            self.entries.setdefault((id(container), key), entry)
            self.entries.setdefault((id(value), len), (_Length(value), len, len(value), f"len({label})", False))
            for k, v in value.items() if type(value) is not list else enumerate(value):
                self._value(value, k, v, f"{label}[{k!r}]", attribute, depth + 1)
        elif _is_record(type(value)):
            self.entries.setdefault((id(container), key), entry)
            self._reading(type(value))
        elif depth < DEPTH and (isinstance(value, types.SimpleNamespace) or hasattr(type(value), "__dataclass_fields__")) and hasattr(value, "__dict__"):
            self.entries.setdefault((id(container), key), entry)
            for k, v in list(vars(value).items())[:_MANY]:
                self._value(vars(value), k, v, f"{label}.{k}", attribute, depth + 1)

    # -- names of functions --------------------------------------------------------------
    def _function(self, function):
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if isinstance(function, types.MethodType):
            function = function.__func__
        code = getattr(function, "__code__", None)
        if not isinstance(function, types.FunctionType) or code in self.functions or skipped(code.co_filename) or len(self.functions) > 200:
            return
        self.functions[code] = function
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self._value(_Cell(cell), "value", value, name, False)
        scope = function.__globals__
        for name in _names(code):
            value = scope.get(name, _MISSING)
            if value is not _MISSING and not isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
                self._value(scope, name, value, name, False)

    # -- the result ----------------------------------------------------------------------
    def finish(self):
        """The entries that hold for later calls, once build() has returned."""
        from torch._subclasses.fake_tensor import FakeTensor

        kept = []
        for container, key, value, label, attribute in self.entries.values():
            if isinstance(value, FakeTensor):
                continue
            now = _get(container, key)
            if not attribute or isinstance(value, (list, dict)):  # what build() itself changes there changes at captures only
                if not (isinstance(now, type(value)) and _same(now, value)) and now is not value:
                    continue
            kept.append((container, key, value, label))
        for module in self.modules.values():
            for kind in ("_modules", "_parameters", "_buffers"):
                container = module.__dict__.get(kind)
                if kind == "_modules" and container:
                    kept.append((_Length(container), len, len(container), f"len({type(module).__name__})"))
                for key, value in (container or {}).items():
                    if value is None or kind == "_modules":
                        kept.append((container, key, value, f"{type(module).__name__}.{key}"))
        return kept


class _Cell:
    """A closure cell as a container."""

    __slots__ = ("cell",)

    def __init__(self, cell):
        self.cell = cell

    def __getitem__(self, key):
        return self.cell.cell_contents


class _Length:
    """The length of a list or dict as a container."""

    __slots__ = ("of",)

    def __init__(self, of):
        self.of = of

    def __getitem__(self, key):
        return len(self.of)


class _Elements:
    """The values of the array at a place as a container."""

    __slots__ = ("container", "key")

    def __init__(self, container, key):
        self.container, self.key = container, key

    def __getitem__(self, key):
        return _elements(self.container[self.key])


def _elements(value):
    return (value.tobytes(), value.dtype.str, value.shape) if isinstance(value, np.ndarray) else (type(value),)


def _get(container, key):
    try:
        return container[key]
    except (KeyError, IndexError, ValueError):
        return _MISSING


def _names(code, depth=0):
    """Names a function's code may look up among its globals."""
    yield from code.co_names
    if depth < 3:
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from _names(const, depth + 1)


class Watch:
    """The check before each call: `holds()` is True while everything is the very object it was at the capture."""

    def __init__(self, entries, free_of):
        """`free_of`: id(tensor) -> (index among the free tensors or None) for tensors that the program reads."""
        self.entries = [list(e) for e in entries]
        self.free_of = free_of
        self.changed = None  # label of what was found changed
        self._write()

    def _write(self):
        scope, tests, names = {}, [], {}
        for i, (container, key, value, _) in enumerate(self.entries):
            if isinstance(container, _Cell):
                name, where = container.cell, "{}.cell_contents"
            elif isinstance(container, _Length):
                name, where = container.of, "len({})"
            elif isinstance(container, _Elements):
                name, where = container, "{}[0]"
            else:
                name, where = container, f"{{}}[{self._key(key, scope)}]"
            held = names.get(id(name))
            if held is None:
                held = names[id(name)] = f"c{len(names)}"
                scope[held] = name
            if value is _MISSING:
                tests.append(f"{self._key(key, scope)} not in {held}")
                continue
            scope[f"v{i}"] = value
            plain = isinstance(value, (list, dict)) and _plain_container(value)
            tests.append(f"{where.format(held)} {'==' if plain or isinstance(container, (_Length, _Elements)) else 'is'} v{i}")
        lines = [" and ".join(tests[i : i + 200]) for i in range(0, len(tests), 200)]
        body = "".join(f"    if not ({line}):\n        return False\n" for line in lines) or "    pass\n"
        source = f"def same():\n  try:\n{body}  except (KeyError, IndexError, ValueError):\n    return False\n  return True\n"
        exec(compile(source, "<watched values>", "exec"), scope)
        self.scope, self.same = scope, scope["same"]

    @staticmethod
    def _key(key, scope):
        """Code for a key of a dict: a literal, or the name of a key such as a dtype."""
        if type(key) in (str, int):
            return repr(key)
        name = f"k{len(scope)}"
        scope[name] = key
        return name

    def holds(self, rebind) -> bool:
        """`rebind(free index, tensor)` is called where another tensor of the same kind has taken a place."""
        if self.same():
            return True
        new = []
        for i, (container, key, value, label) in enumerate(self.entries):
            now = _get(container, key)
            if now is value:
                continue
            if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
                free = self.free_of.get(id(value), _MISSING)
                if free is None or meta(value) != meta(now):
                    self.changed = label
                    return False
                new.append((i, free, now))
            elif now is _MISSING or isinstance(value, _BY_IDENTITY) or not _same(value, now):
                self.changed = label
                return False
            elif not isinstance(value, (list, dict)):
                new.append((i, _MISSING, now))
        moved: dict = {}
        for i, free, now in new:
            if free is not _MISSING:
                moved.setdefault(free, []).append((i, now))
        for free, places in moved.items():
            old = self.entries[places[0][0]][2]
            if len({id(now) for _, now in places}) > 1 or len(places) != sum(e[2] is old for e in self.entries):
                self.changed = self.entries[places[0][0]][3]
                return False  # one of two names of a tensor was bound to another one
        for free, places in moved.items():
            rebind(free, places[0][1])
            self.free_of[id(places[0][1])] = self.free_of.pop(id(self.entries[places[0][0]][2]))
        for i, _, now in new:
            old, self.entries[i][2] = self.entries[i][2], now
            self.scope[f"v{i}"] = now
            if _is_record(type(now)) and any(e[0] is vars(old) for e in self.entries):  # an equal one took its place
                self.entries = [[vars(now) if e[0] is vars(old) else e[0], *e[1:]] for e in self.entries]
                self._write()
        return True


def tell(name, label, times):
    """One warning where the same value made program after program."""
    if times == _WARN_AFTER:
        warnings.warn(
            f"graph {name}: {label!r} had another value at {times} calls, and each value makes a program of its own. "
            "Pass it to build() as a tensor, or keep it in a buffer that is changed in place.", stacklevel=5,
        )
