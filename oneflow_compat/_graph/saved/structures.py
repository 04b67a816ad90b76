"""The structure of arguments and outputs in a saved graph: torch's JSON form of a pytree spec, read without
importing the names in it.

torch's own reader imports the modules of enums and of the factory of a defaultdict. Here the containers are a
fixed list. A user class is accepted if the running program has registered it with pytree, an enum if its
module is already imported.
"""

from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..._file_safety.budget import Keys, key_size
from ..._file_safety.errors import RefusedError
from ..._file_safety.shown import reason, shown
from .reader import (
    PackageError,
    anything,
    integer,
    label,
    listed,
    number,
    optional,
    parse,
    record,
    refuse,
    row,
    text,
)

if TYPE_CHECKING:
    from torch.utils._pytree import TreeSpec


_DEEPEST = 100
_FACTORIES = {("builtins", f.__name__): f for f in (list, dict, set, tuple, int, float, bool, str)} | {
    ("collections", "OrderedDict"): OrderedDict
}
_SEQUENCES = {"builtins.tuple": tuple, "builtins.list": list, "torch.Size": torch.Size}
_MAPPINGS = {"builtins.dict": dict, "collections.OrderedDict": OrderedDict}
_CONTAINERS = _SEQUENCES | _MAPPINGS | {"collections.defaultdict": defaultdict, "collections.deque": deque}
_NAMES = {container: name for name, container in _CONTAINERS.items()}
_OWN_MODULES = ("torch", "collections", "builtins", "oneflow", "oneflow_compat")  # not of a user

_spec = record(type=optional(label), context=anything, children_spec=listed(anything))
_enum = record(__enum__=anything, fqn=label, name=label)
_default = record(
    default_factory_module=optional(label),
    default_factory_name=optional(label),
    dict_context=listed(anything),
)


# --------------------------------------------------------------------------- writing
def spec_text(spec: pytree.TreeSpec) -> str:
    """Return the JSON text of a spec."""
    return json.dumps([1, _spec_record(spec)])


def _spec_record(spec: TreeSpec) -> dict[str, Any]:
    """Return the record of a structure in torch's JSON form. Raise PackageError for a foreign container."""
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    children = [_spec_record(child) for child in spec.children()]
    name = _NAMES.get(spec.type)
    if name is None:
        return {**_registered_record(spec), "children_spec": children}
    context = spec.context
    if spec.type is defaultdict:
        factory, keys = context
        if factory is not None and factory not in _FACTORIES.values():
            raise PackageError(
                f"a defaultdict of {factory!r} cannot be stored; pass a dict, or a defaultdict of"
                f" {', '.join(n for _, n in _FACTORIES)}"
            )
        module, name_of_factory = next((key for key, f in _FACTORIES.items() if f is factory), (None, None))
        return {
            "type": name,
            "context": {
                "default_factory_module": module,
                "default_factory_name": name_of_factory,
                "dict_context": [_key_record(k) for k in keys],
            },
            "children_spec": children,
        }
    if spec.type in _MAPPINGS.values():
        context = [_key_record(k) for k in context]
    return {"type": name, "context": json.dumps(context), "children_spec": children}


def _key_record(key: object) -> object:
    if isinstance(key, enum.Enum):
        return {"__enum__": True, "fqn": f"{type(key).__module__}:{type(key).__qualname__}", "name": key.name}
    if isinstance(key, tuple):
        return [_key_record(k) for k in key]
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise PackageError(
        f"a dict with the key {key!r} cannot be stored; its keys are texts, numbers, enums, or tuples of"
        " these"
    )


def _registered_record(spec: TreeSpec) -> dict[str, Any]:
    """Return the record of a class that the user has registered with pytree."""
    try:
        stored: dict[str, Any] = json.loads(
            pytree.treespec_dumps(pytree.TreeSpec(spec.type, spec.context, []))
        )[1]
        return stored
    except (NotImplementedError, TypeError) as error:
        raise PackageError(
            f"{spec.type.__qualname__} among the arguments or outputs cannot be stored: {error}"
        ) from None


# --------------------------------------------------------------------------- reading
def read_spec(value: object, location: str) -> pytree.TreeSpec:
    """Return the spec of a JSON text."""
    version, root = row(integer(1, 1), anything)(_parsed(value, location), location)
    spec: TreeSpec = _read(root, location, 0)
    return spec


def _parsed(value: object, location: str) -> object:
    """Parse a JSON text inside the file."""
    return parse(text(value, location).encode("utf-8", "replace"), location)


def _read(value: object, location: str, depth: int) -> TreeSpec:
    if depth > _DEEPEST:
        raise PackageError(
            f"{location} is damaged: containers are nested more than {_DEEPEST} deep; save the graph again"
        )
    entry = _spec(value, location)
    name, children = entry["type"], [_read(c, location, depth + 1) for c in entry["children_spec"]]
    if name is None:
        if children or entry["context"] is not None:
            raise refuse(location, "no children of a leaf", value)
        return pytree.tree_structure(0)
    context: Any
    cls, context = _container(name, entry["context"], location)
    keys = context[1] if cls is defaultdict else context if cls in _MAPPINGS.values() else None
    if keys is not None and len(keys) != len(children):
        raise refuse(location, f"{len(children)} keys of a {name}", keys)
    return pytree.TreeSpec(cls, context, children)


def _container(name: str, context: object, location: str) -> tuple[type, object]:
    """Return (class, context) of a container."""
    if name == "collections.defaultdict":
        entry = _default(context, location)
        factory: Any = entry["default_factory_module"], entry["default_factory_name"]
        if factory != (None, None) and factory not in _FACTORIES:
            expected = f"a defaultdict of {', '.join(n for _, n in _FACTORIES)}"
            raise refuse(location, expected, ".".join(map(str, factory)))
        return defaultdict, [_FACTORIES.get(factory), _keys(entry["dict_context"], location)]
    if name not in _NAMES.values():
        return _registered(name, context, location)
    context = _parsed(context, location)
    if name in _MAPPINGS:
        return _MAPPINGS[name], _keys(context, location)
    if name == "collections.deque":
        return deque, optional(integer(0))(context, location)
    if context is not None:
        raise refuse(location, f"no context of a {name}", context)
    return _SEQUENCES[name], None


def _keys(context: object, location: str) -> list[Hashable]:
    keys = [_key(k, location) for k in listed(anything)(context, location)]
    checked = Keys()
    try:
        for key in keys:
            key_size(key)
            checked.check(key)
    except RefusedError as error:
        raise PackageError(f"{location} is damaged: {reason(error)}; save the graph again") from None
    if len(set(keys)) != len(keys):
        raise refuse(location, "keys that differ", keys)
    return keys


def _key(value: object, location: str, depth: int = 0) -> Hashable:
    if type(value) is list and depth < _DEEPEST:
        return tuple(_key(v, location, depth + 1) for v in value)
    if type(value) is dict:
        return _enum_member(value, location)
    if value is None or type(value) is bool:
        return value
    return label(value, location) if type(value) is str else number(value, location)


def _enum_member(value: object, location: str) -> enum.Enum:
    """Return a member of an enum class whose module is already imported. Only dictionaries are searched, so
    no code of the module runs.
    """
    entry = _enum(value, location)
    module, _, names = entry["fqn"].partition(":")
    scope = sys.modules.get(module)
    for name in names.split("."):
        scope = vars(scope).get(name) if isinstance(scope, type | type(sys)) else None
    if not (isinstance(scope, type) and issubclass(scope, enum.Enum)):
        raise PackageError(
            f"{location}: the enum {shown(entry['fqn'])} is not imported; import the module that defines it"
            " before the graph is loaded"
        )
    member = enum.EnumMeta.__members__.fget(scope).get(entry["name"])
    if member is None:
        raise refuse(location, f"a member of {scope.__qualname__}", entry["name"])
    return member


def _registered(name: str, context: object, location: str) -> tuple[type, object]:
    """Return (class, context) of a class that the user has registered with pytree."""
    cls = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if cls is None or cls.__module__.split(".")[0] in _OWN_MODULES:
        raise PackageError(
            f"{location}: the class {shown(name)} is not registered here; register it with"
            " torch.utils._pytree.register_pytree_node (and a serialized_type_name) before the graph is"
            " loaded"
        )
    from_file = pytree.SUPPORTED_SERIALIZED_TYPES[cls].from_dumpable_context
    try:
        return cls, from_file(context) if from_file is not None else _parsed(context, location)
    except PackageError:
        raise
    except Exception as error:
        raise PackageError(
            f"{location}: {cls.__qualname__} does not take its stored context ({type(error).__name__}:"
            f" {reason(error)}); save the graph again"
        ) from None
