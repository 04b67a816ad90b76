"""Look up dotted names in this package.

The lookup tells whether a name exists, and which rows of the table of differences concern it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import io
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Iterator

from .._tables.dialect import DIALECT
from .._tables.differences import DIFFERENCES

# Functions and methods that always return a tensor. The scan follows values through them.
TENSOR_FUNCTIONS = frozenset(
    f"oneflow.{name}"
    for name in """
    arange as_tensor empty empty_like eye from_numpy full full_like linspace ones ones_like rand rand_like
    randint randint_like randn randn_like
    randperm tensor zeros zeros_like
""".split()
)
TENSOR_METHODS = frozenset(
    """
    abs bool clone contiguous cpu cuda detach double exp flatten float half int log long mean permute prod
    relu requires_grad_ reshape sigmoid sqrt
    squeeze sum t tanh to transpose unsqueeze view
""".split()
)
INTEGER_OPERATORS = frozenset(
    "oneflow.Tensor.__" + name + "__"
    for name in "floordiv and or xor pow add sub mul eq truediv ifloordiv ipow iadd isub imul".split()
)


@dataclass(frozen=True, eq=False)
class Target:
    """A looked-up name: its path from `oneflow`, its value, and why it is missing.

    `is_instance`: the name is an instance of the class `value`. `is_uncertain`: the value is only known at
    run time.
    """

    path: str
    value: Any = None
    missing: str = ""
    note: str = ""
    is_instance: bool = False
    is_uncertain: bool = False
    owner: type | None = None  # the class that has the attribute


@functools.cache
def find(name: str) -> Target:
    """Look a dotted name up under `oneflow`, whichever library it starts with; "()" marks a call."""
    _, _, rest = name.partition(".")
    target = Target("oneflow", importlib.import_module("oneflow"))
    for segment in filter(None, rest.split(".")):
        attribute, *calls = segment.split("()")
        target = _attribute(target, attribute)
        for _ in calls:
            target = target if target.missing else _called(target)
        if target.missing or target.is_uncertain:
            break
    return target


def _called(target: Target) -> Target:
    if isinstance(target.value, type) and not target.is_instance:
        return Target(target.path, target.value, is_instance=True)
    is_tensor = target.path in TENSOR_FUNCTIONS or (
        target.owner is not None and target.path.removeprefix("oneflow.Tensor.") in TENSOR_METHODS
    )
    if is_tensor:
        return Target("oneflow.Tensor", importlib.import_module("oneflow").Tensor, is_instance=True)
    return Target(target.path, is_uncertain=True)


def _attribute(target: Target, attribute: str) -> Target:
    path = f"{target.path}.{attribute}"
    if target.is_instance:
        return _instance_attribute(target, attribute, path)
    owner = target.value if isinstance(target.value, type) else None
    try:
        with _quiet():
            return Target(path, getattr(target.value, attribute), owner=owner)
    except AttributeError as error:
        if isinstance(target.value, ModuleType):
            is_of_torch = target.value.__name__.partition(".")[0] == "torch"
            missing = f"module {target.path!r} has no attribute {attribute!r}"
            return _submodule(path, missing if is_of_torch else str(error))
        if owner is not None:
            return Target(path, missing=f"{target.path} has no attribute {attribute!r}")
        return Target(path, is_uncertain=True)  # an attribute of a value is only known at run time
    except (Exception, SystemExit) as error:
        return Target(path, note=f"reading it raised {type(error).__name__}", is_uncertain=True)


def _instance_attribute(target: Target, attribute: str, path: str) -> Target:
    cls = target.value
    if inspect.getattr_static(cls, attribute, None) is not None:
        return Target(path, getattr(cls, attribute), owner=cls)
    if cls is importlib.import_module("oneflow").Tensor:
        return Target(path, missing=f"{target.path} has no attribute {attribute!r}", owner=cls)
    return Target(path, is_uncertain=True)  # __init__ may set it


def _submodule(path: str, reason: str) -> Target:
    if path.rpartition(".")[2].startswith("_") and path not in sys.modules:
        return _private_submodule(path, reason)
    try:
        with _quiet():
            return Target(path, importlib.import_module(path))
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed in ("oneflow", "torch", ""):
            return Target(path, missing=reason)
        return Target(path, note=f"needs the package {needed}", is_uncertain=True)
    except ImportError:
        return Target(path, missing=reason)
    except (Exception, SystemExit) as error:
        return Target(path, note=f"importing it raised {type(error).__name__}", is_uncertain=True)


def _private_submodule(path: str, reason: str) -> Target:
    """Find a private module without importing it, because internal modules of torch may start compilers or
    end the process.
    """
    try:
        exists = importlib.util.find_spec(path) is not None
    except (ImportError, ValueError):
        exists = False
    return Target(path, is_uncertain=True) if exists else Target(path, missing=reason)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence modules of torch that print or warn when they are imported."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def is_in_torch(name: str) -> bool:
    """Whether the installed torch has a name that this package lacks."""
    try:
        value = importlib.import_module("torch")
        for segment in name.split(".")[1:]:
            value = getattr(value, segment)
    except (Exception, SystemExit):
        return False
    return True


# --------------------------------------------------------------------------- rows of the table of differences
@functools.cache
def _rows() -> tuple[dict[str, list[str]], dict[int, list[str]], dict[str, list[tuple[type, str]]]]:
    """Return row ids by path, by the identity of a function or class, and by class and method name."""
    by_path, by_object, by_method = defaultdict(list), defaultdict(list), defaultdict(list)
    for id, row in DIFFERENCES.items():
        for path in row["names"]:
            by_path[path].append(id)
            target = find(path)
            if target.owner is not None:
                by_method[path.rpartition(".")[2]].append((target.owner, id))
            elif callable(target.value) and not target.is_uncertain:
                by_object[_identity(target.value)].append(id)
    return by_path, by_object, by_method


def _identity(value: Any) -> int:
    return id(value)


def row_ids(target: Target) -> list[str]:
    """Return the ids of the rows about a name.

    Rows are matched by the path, the object, the class or the module of the name.
    """
    by_path, by_object, by_method = _rows()
    ids = dict.fromkeys(by_path.get(target.path, ()))
    parts = target.path.split(".")
    for length in range(2, len(parts)):  # a row of a module concerns everything in it
        outer = ".".join(parts[:length])
        if outer in by_path and isinstance(find(outer).value, ModuleType):
            ids.update(dict.fromkeys(by_path[outer]))
    if target.owner is not None:
        ids.update((id, None) for cls, id in by_method.get(parts[-1], ()) if issubclass(target.owner, cls))
    elif isinstance(target.value, type):
        ids.update((id, None) for cls in target.value.__mro__ for id in by_object.get(_identity(cls), ()))
    elif callable(target.value):
        ids.update((id, None) for id in by_object.get(_identity(target.value), ()))
    if target.owner is not None and target.path in INTEGER_OPERATORS:
        return []  # the rows concern integers, and the source does not show the dtype of the tensor
    return list(ids)


def dialect_target(path: str) -> str:
    """Return torch's name that set_dialect("torch") selects instead of ours, or "" if the name is not
    switched.
    """
    return DIALECT.get(path, "")


def judge(name: str) -> tuple[str, str]:
    """Return ("works" | "differs" | "missing", detail) of a dotted name, looked up under oneflow."""
    target = find(name)
    if target.missing:
        return "missing", target.missing
    detail = ", ".join(row_ids(target))
    torchs = dialect_target(target.path)
    if torchs:
        detail = (detail or "OneFlow's") + f"; set_dialect('torch') gives {torchs}"
    return ("differs", detail) if detail else ("works", target.note)
