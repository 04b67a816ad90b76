"""Run a training step call by call, and take a snapshot of all that a program can reach after each call."""

import array
import asyncio
import atexit
import collections
import contextlib
import ctypes
import decimal
import functools
import gc
import io
import itertools
import logging
import mmap
import os
import queue
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import types
import warnings
import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import oneflow as flow

CALLS = 6
MODULE = "step_program"  # the name of the program's module
PLAIN = (
    int,
    float,
    str,
    bool,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    torch.memory_format,
)
SKIPPED = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    weakref.ReferenceType,
    weakref.finalize,
)
# names of the module that are not state
NOT_STATE = ("step", "train_step", "change")
# attributes that hold bookkeeping of torch, and the numbers of hooks, which the process counts
_BOOKKEEPING = ("_is_full", "_load_state_dict", "_state_dict", "_opt_called", "_initial_step")


@dataclass(frozen=True)
class Setting:
    """A setting of the process that a step may change: how to read it and how to put it back."""

    read: object
    restore: object


def _unset_environment(earlier):
    for name in os.environ.keys() - earlier.keys():
        del os.environ[name]
    os.environ.update(earlier)


def _environment():
    return {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("TORCHINDUCTOR", "TRITON", "PYTEST", "KMP", "QT_"))
    }


def _umask():
    os.umask(mask := os.umask(0))
    return mask


SETTINGS = {
    "gc.isenabled": Setting(gc.isenabled, lambda v: gc.enable() if v else gc.disable()),
    "gc.threshold": Setting(gc.get_threshold, lambda v: gc.set_threshold(*v)),
    "recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "switch interval": Setting(sys.getswitchinterval, sys.setswitchinterval),
    "environment": Setting(_environment, _unset_environment),
    "umask": Setting(_umask, os.umask),
    "SIGUSR1": Setting(lambda: signal.getsignal(signal.SIGUSR1), lambda v: signal.signal(signal.SIGUSR1, v)),
    "threads of torch": Setting(torch.get_num_threads, torch.set_num_threads),
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": Setting(
        torch.are_deterministic_algorithms_enabled, lambda v: torch.use_deterministic_algorithms(v)
    ),
    "matmul precision": Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "print options": Setting(
        lambda: dict(vars(torch._tensor_str.PRINT_OPTS)),
        lambda v: vars(torch._tensor_str.PRINT_OPTS).update(v),
    ),
    "grad mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "anomaly mode": Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "autocast": Setting(
        lambda: torch.is_autocast_enabled("cpu"), lambda v: torch.set_autocast_enabled("cpu", v)
    ),
    "denormals": Setting(
        lambda: float(torch.tensor(1e-40) * 1.0) != 0, lambda v: torch.set_flush_denormal(not v)
    ),
    "numpy errors": Setting(np.geterr, lambda v: np.seterr(**v)),
    "numpy print options": Setting(np.get_printoptions, lambda v: np.set_printoptions(**v)),
    "decimal": Setting(lambda: decimal.getcontext().copy(), decimal.setcontext),
    "level of a logger": Setting(
        logging.getLogger("steps").getEffectiveLevel, logging.getLogger("steps").setLevel
    ),
    "handlers of a logger": Setting(
        lambda: list(logging.getLogger("steps").handlers),
        lambda v: setattr(logging.getLogger("steps"), "handlers", v),
    ),
}


@contextlib.contextmanager
def settings_put_back():
    """Run in a fresh folder, and put all settings back afterwards."""
    earlier = {name: setting.read() for name, setting in SETTINGS.items()}
    folder = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="step_files") as files:
        os.chdir(files)
        try:
            yield Path(files)
        finally:
            os.chdir(folder)
            atexit.unregister(print)
            for name, setting in SETTINGS.items():
                if str(setting.read()) != str(earlier[name]):
                    setting.restore(earlier[name])


def bits(tensor):
    """The bytes of a tensor's elements."""
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        return bits(tensor.indices()), bits(tensor.values())
    values = tensor.detach().contiguous().clone()
    return values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b""


def _tensor_facts(tensor):
    try:
        name = "Tensor" if type(tensor).__module__ == "oneflow" else type(tensor).__name__
        leaf = tensor.requires_grad and tensor.is_leaf
        return name, str(tensor.dtype), tuple(tensor.shape), leaf, bits(tensor)
    except Exception as error:  # A tensor of a capture that outlives it has no values
        return f"no values: {error}"


def _loop_state(iterator):
    """The arguments and the position of a copy of an iterator; the iterator itself does not advance."""
    with warnings.catch_warnings(), contextlib.suppress(TypeError):  # Python 3.14 copies none of itertools
        warnings.simplefilter("ignore")
        return iterator.__reduce__()[1:]


def _queue_items(items):
    """The items of a queue, which are put back."""
    values = [items.get() for _ in range(items.qsize())]
    for value in values:
        items.put(value)
    return values


def _generator_state(generator):
    frame = generator.gi_frame
    return None if frame is None else (frame.f_lasti, dict(frame.f_locals))


ITERATORS = tuple(
    type(iterator)
    for iterator in (
        *(iter(c) for c in ([], (), {}, {}.items(), {}.values(), "", range(0), range(2**70))),
        *(map(abs, ()), zip(), enumerate(()), reversed([])),
        *(
            itertools.count(),
            itertools.chain(),
            itertools.cycle([]),
            itertools.islice([], 0),
            itertools.accumulate([]),
        ),
    )
)
# Facts of objects that the walk does not enter: the first type that fits gives a value to walk.
VIEWS = (
    (torch.Generator, lambda o: o.get_state().numpy().tobytes()),
    (random.Random, lambda o: str(o.getstate())),
    (np.random.Generator, lambda o: str(o.bit_generator.state)),
    (np.random.RandomState, lambda o: str(o.get_state())),
    (np.generic, repr),
    ((bytearray, memoryview), bytes),
    (array.array, list),
    (mmap.mmap, lambda o: o[:]),
    ((ctypes._SimpleCData,), lambda o: o.value),
    (ctypes.Array, list),
    (ctypes.Structure, lambda o: [getattr(o, f[0]) for f in o._fields_]),
    ((io.StringIO, io.BytesIO), lambda o: (o.getvalue(), o.tell()) if not o.closed else "closed"),
    (io.IOBase, lambda o: "closed" if o.closed else "open"),
    (sqlite3.Connection, lambda o: list(o.iterdump())),
    ((queue.Queue, queue.SimpleQueue), _queue_items),
    (ContextVar, lambda o: o.get(None)),
    (type(threading.Lock()), lambda o: o.locked()),
    (threading.Semaphore, lambda o: o._value),
    (threading.Event, lambda o: o.is_set()),
    (threading.local, lambda o: dict(vars(o))),
    (asyncio.AbstractEventLoop, lambda o: o.is_closed()),
    (types.GeneratorType, _generator_state),
    (types.MappingProxyType, dict),
    (types.MethodType, lambda o: o.__self__),
    ((weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet), len),
    (decimal.Context, str),
    (logging.Logger, lambda o: (o.level, {k: v for k, v in vars(o).items() if k not in _LOGGER})),
    (ITERATORS, _loop_state),
)
_LOGGER = ("parent", "root", "manager", "_cache", "level", "handlers", "filters")


@dataclass
class Snapshot:
    """The facts of everything that is reachable from the names of a program, by path."""

    facts: dict = field(default_factory=dict)
    seen: dict = field(default_factory=dict)
    keep: list = field(default_factory=list)  # no other object gets the identity of one that was seen

    def add(self, path, value, depth=0):
        if depth > 14:
            return
        if isinstance(value, PLAIN):
            self.facts[path] = repr(value)
        elif id(value) in self.seen:
            self.facts[path] = "-> " + self.seen[id(value)]
        elif not isinstance(value, SKIPPED):
            self.seen[id(value)] = path
            self.keep.append(value)
            self._enter(path, value, depth + 1)

    def _enter(self, path, value, depth):
        if isinstance(value, torch.Tensor):
            self.facts[path] = _tensor_facts(value)
            if isinstance(self.facts[path], str):
                return
            if value.is_leaf and value.grad is not None:
                self.add(path + ".grad", value.grad, depth)
            self._attributes(path, value, depth)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self.facts[path] = (str(value.dtype), value.shape, value.tobytes())
        elif isinstance(value, types.FunctionType):
            self._function(path, value, depth)
        elif isinstance(value, type):
            if value.__module__ == MODULE:
                self._items(path + "::", _public(vars(value)), depth)
        elif isinstance(value, functools._lru_cache_wrapper):
            self.facts[path] = f"a cache of {value.cache_info().currsize} results"
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(path, value, depth)
        else:
            self._container(path, value, depth)

    def _container(self, path, value, depth):
        for kinds, view in VIEWS:
            if isinstance(value, kinds):
                self.facts[path] = type(value).__name__
                self.add(path + ".state", view(value), depth)
                return
        if isinstance(value, dict):
            self._dictionary(path, value, depth)
        elif isinstance(value, (list, tuple, collections.deque, np.ndarray)):
            self.facts[path] = (type(value).__name__, len(value))
            for i, item in enumerate(value.reshape(-1) if isinstance(value, np.ndarray) else value):
                self.add(f"{path}[{i}]", item, depth)
        elif isinstance(value, (set, frozenset)):
            plain = all(isinstance(v, PLAIN) for v in value)
            self.facts[path] = (type(value).__name__, sorted(map(repr, value)) if plain else len(value))
        else:
            self.facts[path] = type(value).__name__
        self._attributes(path, value, depth)

    def _dictionary(self, path, value, depth):
        self.facts[path] = ("dict", type(value).__name__, len(value))
        for i, (key, item) in enumerate(value.items()):
            plain = isinstance(key, PLAIN) or (
                isinstance(key, tuple) and all(isinstance(k, PLAIN) for k in key)
            )
            if isinstance(key, (torch.Tensor, torch.nn.Module)):
                self.add(f"{path}<{i}>", key, depth)
            self.add(f"{path}[{repr(key) if plain else f'key {i}'}]", item, depth)

    def _function(self, path, value, depth):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            with contextlib.suppress(ValueError):  # The variable has no value yet
                self.add(f"{path}.{name}", cell.cell_contents, depth)
        self.add(f"{path}.__defaults__", value.__defaults__, depth)
        self._items(path + ".", _public(vars(value)), depth)

    def _optimizer(self, path, value, depth):
        self.add(path + ".groups", value.param_groups, depth)
        for i, (parameter, state) in enumerate(value.state.items()):
            self.add(f"{path}.key {i}", parameter, depth)
            self.add(f"{path}.state {i}", state, depth)
        own = {k: v for k, v in vars(value).items() if k not in ("state", "param_groups", "defaults")}
        self._items(path + ".", {k: v for k, v in own.items() if not k.startswith("_")}, depth)

    def _attributes(self, path, value, depth):
        if type(value).__module__ == "oneflow":
            return
        names = getattr(value, "__dict__", None) or {}
        own = {k: v for k, v in names.items() if not k.startswith(_BOOKKEEPING)}
        if "lr_scheduler" in type(value).__module__:
            own.pop("step", None)
        for name, item in sorted(own.items(), key=str):
            hooks = str(name).endswith("_hooks") and isinstance(item, dict)
            self.add(f"{path}.{name}", list(item.values()) if hooks else item, depth)
        for kind in type(value).__mro__ if type(value).__module__ == MODULE else ():
            slots = vars(kind).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    self.add(f"{path}.{name}", getattr(value, name), depth)

    def _items(self, prefix, items, depth):
        for name, item in sorted(items.items()):
            self.add(prefix + name, item, depth)


def _public(items):
    return {k: v for k, v in items.items() if not k.startswith("__")}


def take_snapshot(names, result, files):
    """{path: fact} after a call: the program's names, its result, generators, settings and files."""
    snapshot = Snapshot()
    for name in sorted(names):
        if not name.startswith("__") and name not in NOT_STATE:
            snapshot.add(name, names[name])
    for name in NOT_STATE:  # Closures are reached through their functions
        snapshot.add(name, names.get(name))
    snapshot.add("result", result)
    facts = snapshot.facts
    facts["generator of torch"] = torch.get_rng_state().numpy().tobytes()
    facts["generator of NumPy"] = str(np.random.get_state())
    facts["generator of Python"] = str(random.getstate())
    for name, setting in SETTINGS.items():
        facts[f"setting {name}"] = str(setting.read())
    facts["working folder"] = os.path.relpath(os.getcwd(), files)
    for path in sorted(files.rglob("*")):
        pickled = path.suffix in (".pt", ".db")  # torch names the archive after the file and pads it
        facts[f"file {path.relative_to(files)}"] = "" if path.is_dir() or pickled else path.read_bytes()
    return facts


@dataclass
class Run:
    """The snapshot after each call, the warnings, what the step printed, and the errors by call."""

    snapshots: list
    messages: list
    printed: str
    errors: dict


def run_program(path, seed, backend=None, calls=CALLS):
    """Run a program file with new data in each call: in eager mode, or through `flow.compile_step`."""
    names, snapshots, errors = {"__name__": MODULE}, [], {}
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    printed, code = io.StringIO(), compile(Path(path).read_text(encoding="utf-8"), str(path), "exec")
    module = types.ModuleType(MODULE)
    module.__dict__.update(names)
    earlier = sys.modules.get(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look a class up by its module
    try:
        with (
            settings_put_back() as files,
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
        ):
            warnings.simplefilter("always")
            names = vars(module)
            exec(code, names)
            step = names["step"] if backend is None else flow.compile_step(names["step"], backend=backend)
            data = torch.Generator().manual_seed(seed + 1)
            for call in range(calls):
                x = torch.randn(4, 6, generator=data)
                y = torch.randint(0, 4, (4,), generator=data)
                names["change"](call)
                try:
                    result = step(x, y)
                except Exception as error:
                    errors[call] = error
                    result = type(error).__name__
                snapshots.append(take_snapshot(names, (result, x, y), files))
    finally:
        sys.modules.pop(MODULE, None)
        if earlier is not None:
            sys.modules[MODULE] = earlier
    messages = [str(w.message) for w in caught if not issubclass(w.category, ResourceWarning)]
    return Run(snapshots, messages, printed.getvalue(), errors)


def is_near(first, second):
    """Whether two facts are equal up to the rounding of compiled kernels."""
    if first == second:
        return True
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second) == 5:
        if first[:4] != second[:4] or first[1] not in ("torch.float32", "torch.float64", "torch.bfloat16"):
            return False
        if first[1] == "torch.bfloat16":
            return True
        values = [np.frombuffer(fact[4], first[1].removeprefix("torch.")) for fact in (first, second)]
        return np.allclose(*values, rtol=2e-2, atol=2e-3, equal_nan=True)
    try:
        return abs(float(first) - float(second)) <= 1e-3 + 2e-2 * abs(float(first))
    except (TypeError, ValueError):  # Text with digits, such as a line of a log
        return isinstance(first, str) and isinstance(second, str) and first[:3] == second[:3] and "." in first


def find_differences(first, second, near=False):
    """(call, {path: (fact of the first run, fact of the second)}) of the first call that differs, or None."""
    for call, (facts, others) in enumerate(zip(first.snapshots, second.snapshots)):
        paths = [*facts, *(path for path in others if path not in facts)]
        same = is_near if near else (lambda a, b: a == b)
        different = {p: (facts.get(p), others.get(p)) for p in paths if not same(facts.get(p), others.get(p))}
        if different:
            return call, different
    if first.printed != second.printed and not near:
        return len(first.snapshots), {"printed text": (first.printed, second.printed)}
    return None


def describe(fact):
    """A fact for a report: floats in place of their bytes."""
    if isinstance(fact, tuple) and len(fact) == 5 and fact[1] in ("torch.float32", "torch.int64"):
        values = np.frombuffer(fact[4], fact[1].removeprefix("torch."))
        return f"{fact[0]} {fact[1]} {fact[2]} {values[:4].tolist()}"
    text = repr(fact)
    return text if len(text) < 120 else f"{text[:50]} ... {text[-60:]}"
