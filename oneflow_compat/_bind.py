"""The only reader of the tables: turns rows into names of the public modules.

A public module ends with

    __getattr__, __dir__ = fall_through(__name__, "torch.nn")

and from then on `module.NAME` is looked up in this order, once, and kept in the module:

1. a row of `_tables/functions.py` (our own function or class);
2. a row of `_tables/renames.py` (torch's function, other argument names);
3. a sub-module of ours;
4. torch's own object of that name, the very same one;
5. for the top level only, a name of the job-function API (`_tables/legacy/names.py`).

Names are resolved at first use, so a table may be long and `import oneflow` stays quick.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from . import _env
from ._import_hook import ROOT, TableError, import_target, is_ours, is_row, with_torch_fx_taught
from ._public_module import StandIn, back_with_torch, own_names
from ._tables.dialect import DIALECT, EXTENDED, STAND_INS
from ._tables.functions import FUNCTIONS
from ._tables.renames import RENAMES

_MISSING = object()


@functools.cache
def function_rows(namespace: str) -> dict[str, str]:
    """{public name: "module:name"} of our own functions and classes in one public namespace."""
    rows: dict[str, str] = {}
    for module, names in FUNCTIONS.get(namespace, {}).items():
        for name in names.split():
            public, _, inner = name.partition("=")
            if public in rows:
                raise TableError(f"{namespace}.{public} is bound twice: {rows[public]} and {module}")
            rows[public] = f"{module}:{inner or public}"
    return rows


@functools.cache
def rename_rows(namespace: str) -> dict[str, tuple[str, str]]:
    """{public name: (torch's function, OneFlow's parameters)} of one public namespace; see `renamed`."""
    rows = RENAMES.get(namespace, {})
    twice = set(rows) & set(function_rows(namespace))
    if twice:
        raise TableError(f"{namespace}: {sorted(twice)} are in functions.py and in renames.py")
    return rows


@functools.cache
def _extended(namespace: str) -> frozenset[str]:
    return frozenset(EXTENDED.get(namespace, "").split())


# --------------------------------------------------------------------------- renaming wrapper
@functools.cache
def renamed(public: str, target: Callable[..., Any], spec: str) -> Callable[..., Any]:
    """Return torch's `target` under OneFlow's argument names.

    `spec` lists OneFlow's parameters in the order of torch's positions, as in "inputs=tensors dim:0":

    - `ours=theirs`, if torch has another name for the parameter,
    - `name:default`, if torch's signature does not tell the default,
    - after a `|`, parameters that torch takes by name only, and OneFlow also by position.

    Calls by position, and calls with torch's names, go straight to torch.
    """
    positional, bar, by_name = spec.partition("|")
    parameters = [_parameter(item) for item in (positional + by_name).split()]
    pairs = {ours: theirs for ours, theirs, _ in parameters if ours != theirs}
    ours = frozenset(pairs)
    limit = len(positional.split()) if bar else None

    def call(*args: Any, **kwargs: Any) -> Any:
        if limit is not None and len(args) > limit:
            if len(args) > len(parameters):
                raise TypeError(
                    f"{call.__name__}() takes {len(parameters)} arguments by position, found {len(args)}"
                )
            kwargs = {**dict(zip([p[0] for p in parameters[limit:]], args[limit:])), **kwargs}
            args = args[:limit]
        if kwargs and not ours.isdisjoint(kwargs):
            kwargs = rename(call.__name__, kwargs, pairs)
        return target(*args, **kwargs)

    call.__module__, _, call.__name__ = public.rpartition(".")
    call.__qualname__ = call.__name__
    call.__doc__ = _doc_of_renamed(target, pairs)
    call.__signature__ = _signature(parameters, target)  # type: ignore[attr-defined]
    return call


def _doc_of_renamed(target: Callable[..., Any], pairs: dict[str, str]) -> str:
    name = f"torch's `{getattr(target, '__name__', target)}`"
    if not pairs:
        return f"{name}, which also takes OneFlow's arguments by position.\n\nTypeError for more of them."
    names = ", ".join(f"`{ours}` (torch: `{theirs}`)" for ours, theirs in pairs.items())
    return (
        f"{name} under OneFlow's argument names: {names}. torch's names are accepted too.\n\n"
        "TypeError for an argument under both names."
    )


def _parameter(item: str) -> tuple[str, str, str]:
    """Return (OneFlow's name, torch's name, default as source text or "") of one item of a spec."""
    ours, _, theirs = item.partition("=")
    ours, _, default = ours.partition(":")
    theirs, _, default_after_torchs = theirs.partition(":")
    return ours, theirs or ours, default or default_after_torchs


def rename(function: str, kwargs: dict[str, Any], pairs: dict[str, str]) -> dict[str, Any]:
    """Rename keyword arguments as `pairs` says; an argument passed under both names is an error."""
    out = {}
    for name, value in kwargs.items():
        name = pairs.get(name, name)
        if name in out:
            raise TypeError(f"{function}() got the argument {name!r} twice, under torch's and OneFlow's name")
        out[name] = value
    return out


def _signature(parameters: Iterable[tuple[str, str, str]], target: Callable[..., Any]) -> inspect.Signature:
    """OneFlow's parameters, then torch's remaining keywords."""
    P = inspect.Parameter
    try:
        theirs = {p.name: p for p in inspect.signature(target).parameters.values()}
    except (TypeError, ValueError):
        theirs = {}
    out, optional = [], False
    for ours, name, default_source in parameters:
        default = theirs[name].default if name in theirs else P.empty
        if default_source:
            default = ast.literal_eval(default_source)
        elif optional and default is P.empty:
            default = None
        optional = optional or default is not P.empty
        out.append(P(ours, P.POSITIONAL_OR_KEYWORD, default=default))
    used_names = {name for pair in parameters for name in pair[:2]}
    for p in theirs.values():
        if p.name not in used_names and p.kind in (P.POSITIONAL_OR_KEYWORD, P.KEYWORD_ONLY):
            out.append(p.replace(kind=P.KEYWORD_ONLY, default=None if p.default is P.empty else p.default))
    out.append(P("kwargs", P.VAR_KEYWORD))
    return inspect.Signature(out)


# --------------------------------------------------------------------------- modules
def fall_through(
    name: str, torch_name: str | None, also: str | None = None, classes: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of the public module `name`, backed by torch's `torch_name`.

    `also` names a second module of this package, searched last ("compatible.single_client"). `classes`: the
    module has torch's classes from the start, for programs that list them with vars(torch.optim).
    """
    own = own_names(sys.modules[name])
    if classes and torch_name:
        _add_classes(name, torch_name)
    declared = own.pop("__all__", ()) if torch_name else ()
    if torch_name:
        back_with_torch(sys.modules[name], torch_name, functools.partial(_add_names, name, torch_name))

    def __getattr__(attr: str) -> Any:
        if attr == "__all__":  # `from oneflow.nn import *`
            return sorted({*_starred_names(name, torch_name), *(() if _is_torch_dialect else declared)})
        if attr.startswith("__") and attr.endswith("__"):
            value = getattr(_torch_module(torch_name), attr, None) if torch_name else None
            if isinstance(value, ModuleType):  # torch.__config__
                return value
            raise AttributeError(f"module {name!r} has no attribute {attr!r}")
        value = _resolve(name, torch_name, also, attr)
        if not _is_rebound_by_torch(attr, value):
            own[attr] = value
        return value

    def __dir__() -> list[str]:
        theirs = _names_of_torch(torch_name) if torch_name else []
        listed = {*own, *function_rows(name), *rename_rows(name), *theirs}
        return sorted(listed - {"_dialect_ours"})

    return __getattr__, __dir__


def _names_of_torch(torch_name: str) -> list[str]:
    """Return the names of a torch module, without those of Python, such as __conditional_annotations__."""
    module = _torch_module(torch_name)
    return [
        name
        for name in dir(module)
        if not (name.startswith("__") and name.endswith("__"))
        or isinstance(getattr(module, name, None), ModuleType)
    ]


def _add_classes(name: str, torch_name: str) -> None:
    """Set the classes of the torch module in the public module `name`, except those that have a row."""
    own = own_names(sys.modules[name])
    rows = {*own, *function_rows(name)}
    theirs = vars(_torch_module(torch_name)).items()
    own.update({attr: value for attr, value in theirs if isinstance(value, type) and attr not in rows})


def _add_names(name: str, torch_name: str) -> None:
    """Set the names of the torch module in the public module `name`, for programs that read vars(torch)."""
    own = own_names(sys.modules[name])
    for attr, value in list(vars(_torch_module(torch_name)).items()):
        if attr in own or attr.startswith("__") or _is_rebound_by_torch(attr, value):
            continue
        has_row = attr in function_rows(name) or attr in rename_rows(name)
        if has_row and not (_is_torch_dialect and attr in _extended(name)):
            own[attr] = getattr(sys.modules[name], attr)
        elif issubclass(type(value), ModuleType) and (is_ours(f"{name}.{attr}") or is_row(f"{name}.{attr}")):
            own[attr] = importlib.import_module(f"{name}.{attr}")
        else:
            own[attr] = value


def _is_rebound_by_torch(attr: str, value: Any) -> bool:
    """Whether torch may bind a name to another object later: such a name is looked up at each use."""
    # type(value), because torch's deprecated objects warn when their class is read
    is_state = attr.startswith("_") and type(value) in (bool, int, tuple, list, dict, set, type(None))
    return is_state or attr in ("Storage", "default_generators")


def _starred_names(name: str, torch_name: str | None) -> set[str]:
    """Return the names that `from <name> import *` binds."""
    theirs = _torch_module(torch_name) if torch_name else None
    listed = getattr(theirs, "__all__", ())
    # an object of torch is left out before it is looked at: torch's deprecated names warn when they are read
    torchs = vars(theirs or object)
    if _is_torch_dialect and theirs is not None:  # no name of ours may hide a builtin, as `slice` would
        return {*(listed or (attr for attr in torchs if not attr.startswith("_")))}
    own_values = own_names(sys.modules[name]).items()
    candidates = [(a, value) for a, value in own_values if value is not torchs.get(a)]
    own = {attr for attr, value in candidates if _is_defined_here(value)}
    names = {*(listed or dir(theirs)), *own, *function_rows(name), *rename_rows(name)}
    return {attr for attr in names if not attr.startswith("_")} | {*listed}


def _is_defined_here(value: Any) -> bool:
    """Whether an object, or the module that defines it, is of this package."""
    home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(home).startswith(ROOT)


def _resolve(name: str, torch_name: str | None, also: str | None, attr: str) -> Any:
    """Return the object of a public name, or raise AttributeError. The module docstring has the order."""
    if not (_is_torch_dialect and attr in _extended(name)):
        value = _of_row(name, attr)
        if value is not _MISSING:
            stands_in = _is_torch_dialect and attr in STAND_INS.get(name, ())
            return StandIn(value, getattr(_torch_module(torch_name or name), attr)) if stands_in else value
    if is_ours(f"{name}.{attr}") or is_row(f"{name}.{attr}"):
        return importlib.import_module(f"{name}.{attr}")
    value = _MISSING if torch_name is None else _of_torch(torch_name, attr)
    if value is not _MISSING:
        return value
    # PyTorch programs ask with hasattr(torch, name) what this torch has
    if also is not None and not attr.startswith("_") and not _is_torch_dialect:
        value = getattr(importlib.import_module(f"{ROOT}.{also}"), attr, _MISSING)
        if value is not _MISSING:
            return value
    raise AttributeError(_no_such_name(name, torch_name, attr))


def _of_torch(torch_name: str, attr: str) -> Any:
    """Return an attribute of a module of torch, or a module in it that is not imported yet, or _MISSING."""
    value = getattr(_torch_module(torch_name), attr, _MISSING)
    if value is not _MISSING:
        return with_torch_fx_taught(value)
    if not attr.startswith("_"):
        try:
            return importlib.import_module(f"{torch_name}.{attr}")
        except ImportError:
            pass
    return _MISSING


def _of_row(name: str, attr: str) -> Any:
    target = function_rows(name).get(attr)
    if target is not None:
        return import_target(target)
    row = rename_rows(name).get(attr)
    return _MISSING if row is None else renamed(f"{name}.{attr}", import_target(row[0]), row[1])


def _torch_module(torch_name: str) -> ModuleType:
    module = sys.modules.get(torch_name)
    return module if module is not None else importlib.import_module(torch_name)


def _no_such_name(name: str, torch_name: str | None, attr: str) -> str:
    close = close_name(
        attr,
        [*function_rows(name), *rename_rows(name), *(dir(_torch_module(torch_name)) if torch_name else ())],
    )
    where = f"neither OneFlow's {name}" + (f" nor {torch_name}" if torch_name else "") + " has it here"
    return f"module {name!r} has no attribute {attr!r}: {where}" + (
        f"; did you mean {close!r}?" if close else ""
    )


def close_name(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that `name` probably means: another case, two letters exchanged or one wrong,
    or a similar long name.

    One or two letters must be part of the longer name: nearly every short name is one letter away.
    """
    public = sorted({n for n in names if n.startswith("_") == name.startswith("_")})
    by_case = [n for n in public if n.lower() == name.lower()]
    if by_case:
        return by_case[0]
    slips = [n for n in public if len(name) > 2 and len(n) > 1 and _is_one_slip(name, n)]
    similar = difflib.get_close_matches(
        name, slips or public, 1, cutoff=0.5 if slips else 0.6 if len(name) > 5 else 0.75
    )
    return similar[0] if similar else None


def _is_one_slip(typed: str, meant: str) -> bool:
    """Whether one letter is missing, added or wrong, or two neighbors are exchanged."""
    if abs(len(typed) - len(meant)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(typed, meant)) if a != b), min(len(typed), len(meant)))
    rest, meant_rest = typed[start:], meant[start:]
    return (
        rest[1:] == meant_rest[1:]
        or rest[1:] == meant_rest
        or rest == meant_rest[1:]
        or (rest[:2] == meant_rest[1::-1] and rest[2:] == meant_rest[2:])
    )


# --------------------------------------------------------------------------- dialects
_is_torch_dialect = False  # whether the names of EXTENDED are bound to torch's objects now


def apply_dialect(dialect: str) -> None:
    """Bind every row of `_tables/dialect.py` to torch's object ("torch") or to ours ("oneflow")."""
    global _is_torch_dialect
    if _is_torch_dialect != (dialect == "torch"):
        _is_torch_dialect = dialect == "torch"
        for space in EXTENDED.keys() & sys.modules.keys():
            for name in (*_extended(space), *STAND_INS.get(space, ())):
                own_names(sys.modules[space]).pop(name, None)  # the next access looks the name up again
    for public, torch_path in DIALECT.items():
        module_name, _, name = public.rpartition(".")
        module = importlib.import_module(module_name)
        kept = own_names(module).setdefault("_dialect_ours", {})
        if name not in kept:
            kept[name] = getattr(module, name)
        own_names(module)[name] = import_target(torch_path) if dialect == "torch" else kept[name]


def ours(module_name: str, name: str) -> Any:
    """Return our object behind a public name, whatever the current dialect."""
    module = importlib.import_module(module_name)
    kept = own_names(module).get("_dialect_ours", {})
    if name in kept:
        return kept[name]
    value = _of_row(module_name, name) if name in _extended(module_name) else _MISSING
    return getattr(module, name) if value is _MISSING else value


def dialect_at_start() -> str:
    return _env.get("ONEFLOW_DIALECT")
