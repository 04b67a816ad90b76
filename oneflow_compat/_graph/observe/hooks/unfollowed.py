"""Values that no guard can follow: clocks, generators outside torch, files, iterators, unknown C objects."""

import _random
import contextvars
import datetime
import dis
import logging
import random
import re
import sys
import threading
import types
from typing import Any

import numpy as np
import torch

from ...._public_module import PublicModule
from ...code_origins import is_of_this_package
from ...guards.values import is_a
from ...program.python_values import is_python_class
from ..instrumentation.instrument import Site
from ..instrumentation.policy import Policy, policy_of

CLOCK = "a clock"
GENERATOR = "a random generator that torch does not know"
STATE_OF_GENERATOR = "the state of a torch.Generator, which each call changes"
FILE = "the file system"
IDENTITY = "whether two names mean one tensor, which may differ in another call"
MEMORY = "a fact of the memory of a tensor that each call computes or gets"
CLASS = "the class of a tensor, which is torch's FakeTensor while build() is captured"
TEXT = "the text of a tensor, whose values each call computes or gets"
WEAK_TENSOR = "a weak reference to a tensor, which the program keeps alive"
ARGUMENT_ATTRIBUTE = "an attribute that build() sets on an argument"
LAZY = "a tensor without a shape: its module is a lazy one (nn.Lazy...) that never ran"
OUTPUT = "a text that each call shows"
WRITER = "what a function writes that other code calls"
THREAD = "code that runs in another thread or process"
EFFECT = "a change outside of Python's objects, which each call makes"

# module of a function written in C -> what its functions read, and which of them
_FUNCTIONS = {
    "time": (CLOCK, None),
    "posix": (GENERATOR, {"urandom", "getrandom"}),
    "nt": (GENERATOR, {"urandom"}),
    "_uuid": (GENERATOR, None),
    "sys": ("the number of references to an object", {"getrefcount"}),
    "_locale": ("the locale", {"setlocale", "localeconv", "nl_langinfo"}),
    "io": (FILE, {"open", "open_code"}),
    "_io": (FILE, {"open", "open_code"}),
}
# module of a function written in C -> which of its functions only read; the others change the process, its
# files, or another process
_ONLY_READ = {
    "gc": re.compile(r"get_.+|is_?.+|collect"),  # no result depends on when garbage goes
    "posix": re.compile(
        r"_.+|W[A-Z]+|(sched_)?get.+|is.+|f?(stat|pathconf)(vfs)?|sysconf|confstr|fspath|uname|strerror"
        r"|(process_)?cpu_count|ctermid|device_encoding|major|minor|makedev|times|lseek"
    ),
    "_signal": re.compile(r"get.+|strsignal|valid_signals|sigpending|default_int_handler"),
    "_locale": re.compile(r".+"),
    "_tracemalloc": re.compile(r"_?(get|is).+"),
    "resource": re.compile(r"get.+"),
    **dict.fromkeys(
        "atexit fcntl faulthandler _posixsubprocess _socket select syslog termios _winapi msvcrt".split(),
        re.compile(r"get.+|in(et)?_.+|[nh]to[nh].+"),
    ),
}
_ONLY_READ["nt"] = _ONLY_READ["posix"]
_CHANGES_OF_SYS = re.compile(r"set.+|add.+|_clear.+|activate.+|deactivate.+")
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_SETTERS = frozenset([torch.set_num_threads, torch.set_num_interop_threads])
_OF_LOCKS = frozenset(["acquire", "release", "acquire_lock", "release_lock"])
_FILE_FUNCTIONS = {"listdir", "scandir", "stat", "lstat", "access", "readlink"}
_PATH_FUNCTIONS = {"isjunction", "islink", "ismount", "lexists", "realpath"}
_ARRAY_BYTES = 1 << 20  # of an array whose elements are compared before each call
_OBJECT_READS = frozenset(
    [
        "BINARY_SLICE",
        "BINARY_SUBSCR",
        "IMPORT_STAR",
        "LOAD_ATTR",
        "LOAD_CLASSDEREF",
        "LOAD_DEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "LOAD_METHOD",
        "LOAD_SPECIAL",
        "LOAD_SUPER_ATTR",
    ]
)
_OBJECT_READS_BY_ARGUMENT = frozenset(["INTRINSIC_IMPORT_STAR", "[]"])
_OBSERVED = (Policy.USER, Policy.INSTALLED)
_CLOCKS = {("posix", "times"), ("nt", "times"), ("posix", "getloadavg"), ("resource", "getrusage")}
_NO_CLOCK = {"sleep", "strftime", "strptime", "mktime"}
_NOW = {"now", "utcnow", "today"}
NUMPY_FUNCTION = type(np.sum)  # from NumPy 1.25 on a class written in C; its objects do not change
_OF_STATES = ("getstate", "get_state", "setstate", "set_state", "__init__")
_GENERATORS = (_random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_TORCH_GENERATORS = (torch.Generator,)  # a capture replaces the class itself under all its names
# methods of torch.Generator in C; torch.manual_seed(), torch.get_rng_state() and the like are recorded
_OF_TORCH_GENERATORS = frozenset(
    "manual_seed seed get_state set_state clone_state get_offset set_offset graphsafe_get_state"
    " graphsafe_set_state".split()
)

# Packages whose C objects do not change, or which a program follows by other means.
_KNOWN_PACKAGES = frozenset(
    [
        "builtins",
        "torch",
        "_thread",
        "functools",
        "operator",
        "re",
        "weakref",
        "types",
        "typing",
        "_abc",
        "_contextvars",
        "_json",
        "pybind11_builtins",
    ]
)


def unfollowed_call(function: Any, owner: Any, name: str) -> str | None:
    """Return what a call of a C function reads that has no guard, or None."""
    module = owner.__name__ if type(owner) in (types.ModuleType, PublicModule) else None
    row = _FUNCTIONS.get(module) if module is not None else None
    if row is not None and name not in _NO_CLOCK and (row[1] is None or name in row[1]):
        return row[0]
    if (module, name) in _CLOCKS:
        return CLOCK
    if module in ("posix", "nt") and name in _FILE_FUNCTIONS:
        return FILE
    if _changes_process(module, name):
        return EFFECT
    if name in _NOW and is_a(owner, type) and issubclass(owner, datetime.date):
        return CLOCK
    if name in _OF_TORCH_GENERATORS and is_a(owner, _TORCH_GENERATORS):
        return STATE_OF_GENERATOR
    if is_a(owner, _GENERATORS) and not _is_module_generator(owner):
        return GENERATOR
    return None


def _changes_process(module: str | None, name: str) -> bool:
    """Whether a C function changes a setting of the interpreter, a file, or another process."""
    if module == "sys":
        return _CHANGES_OF_SYS.fullmatch(name) is not None
    if module == "time":
        return name == "sleep"
    only_reads = _ONLY_READ.get(module) if module is not None else None
    return only_reads is not None and only_reads.fullmatch(name) is None


def has_effect(function: object, owner: object, name: str) -> bool:
    """Whether a C function takes or gives back a lock, sets a context variable or the number of threads."""
    if is_a(owner, contextvars.ContextVar):
        return name in ("set", "reset")
    return name in _OF_LOCKS and is_a(owner, _LOCKS) or function in _SETTERS


def samples_globally(owner: object, name: str) -> bool:
    """Whether a method of Python's or NumPy's global generator may sample, which no program repeats."""
    return name not in _OF_STATES and is_a(owner, _GENERATORS) and _is_global(owner)


def reads_generator(owner: object, name: str) -> bool:
    """Whether a method gives or takes the state of a generator, also of one whose draws a capture notices."""
    return name in _OF_STATES and name != "__init__" and is_a(owner, _GENERATORS)


def unfollowed_function(function: Any) -> str | None:
    """Return what a function of an installed package reads or changes that has no guard, or None."""
    module = function.__module__ or ""
    if module == "genericpath" or module in ("posixpath", "ntpath") and function.__name__ in _PATH_FUNCTIONS:
        return FILE
    name = function.__name__
    if module == "numpy" and name.startswith("save") or module == "torch.serialization" and name == "save":
        return FILE
    if module == "numpy" and name.startswith("seterr"):
        return EFFECT
    is_thread = module in ("threading", "multiprocessing.process") and name == "start"
    of_workers = module.startswith(("concurrent.futures", "multiprocessing.pool", "multiprocessing.queues"))
    return THREAD if is_thread or of_workers or module == "asyncio.runners" else None


def is_shown_by_logging(function: Any, owner: Any) -> bool:
    """Whether a function of logging hands a message to a handler."""
    if function.__module__ != "logging":
        return False
    level = getattr(logging, function.__name__.upper(), None)
    logger = owner if is_a(owner, logging.Logger) else logging.getLogger()
    return logger.isEnabledFor(level) if type(level) is int else function.__name__ in ("log", "exception")


def _is_module_generator(owner: object) -> bool:
    """Return True for a generator that no program needs to follow.

    A capture compares the states of Python's and NumPy's generators (capture/patches/random_state.py). sympy
    samples the order in which it derives facts about sizes, which no result depends on.
    """
    of_sympy = vars(sys.modules["sympy.core.random"]).values() if "sympy.core.random" in sys.modules else ()
    return _is_global(owner) or any(owner is generator for generator in of_sympy)


def _is_global(owner: object) -> bool:
    return owner is random._inst or owner is getattr(np.random.mtrand, "_rand", None)


def unfollowed_object(value: object) -> str | None:
    """Return why an object whose contents a C function reads has no guard, or None."""
    cls = type(value)
    if is_a(value, _GENERATORS):
        return None if _is_module_generator(value) else GENERATOR
    if hasattr(cls, "__next__"):
        return f"an iterator ({cls.__name__}), which remembers its position"
    base = next(c for c in cls.__mro__ if not is_python_class(c))  # its fields are in the objects, too
    package = base.__module__.partition(".")[0]
    if package in _KNOWN_PACKAGES or is_a(value, (np.dtype, np.ufunc, NUMPY_FUNCTION)):
        return None
    return f"an object of {cls.__module__}.{cls.__qualname__}, a class without a guard"


def calling_site(through_torch: bool = True) -> Any:
    """Return the innermost instruction of the user's code that runs now, or None.

    `through_torch`: also if code that is not observed, such as torch's, lies between.
    """
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        policy = policy_of(code, frame.f_globals)
        if policy is Policy.USER:
            return Site(code, None, _position(frame), True)
        if policy is not Policy.INSTALLED and not through_torch and not is_of_this_package(code.co_filename):
            return None
        frame = frame.f_back
    return None


def is_at(frame: types.FrameType | None, site: Site) -> bool:
    """Whether the innermost observed frame from this one on runs the instruction of a site."""
    while frame is not None and policy_of(frame.f_code, frame.f_globals) not in _OBSERVED:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename != site.code.co_filename:
        return False
    return frame.f_code.co_name == site.code.co_name and _position(frame) == site.position


def is_logging(frame: types.FrameType | None) -> bool:
    """Whether the text is for a log, or for what a graph prints of itself."""
    while frame is not None and policy_of(frame.f_code, frame.f_globals) not in _OBSERVED:
        if frame.f_globals.get("__name__", "").startswith(("logging", "oneflow.nn.graph")):
            return True
        frame = frame.f_back
    return False


def reads_objects(code: types.CodeType) -> bool:
    """Whether code reads attributes, items, variables of a closure or all names of a module."""
    return any(
        instruction.opname in _OBJECT_READS or instruction.argrepr in _OBJECT_READS_BY_ARGUMENT
        for instruction in dis.get_instructions(code)
    )


def _position(frame: Any) -> Any:
    if sys.version_info >= (3, 11):
        for index, position in enumerate(frame.f_code.co_positions()):
            if index == frame.f_lasti // 2:
                return position
    return frame.f_lineno, frame.f_lineno, None, None


def uncompared_array(array: Any) -> str | None:
    """Return why the elements of an array are not compared before each call, or None."""
    if array.dtype.hasobject:
        return "an array of objects"
    return f"an array of {array.nbytes >> 20} MiB" if array.nbytes > _ARRAY_BYTES else None
