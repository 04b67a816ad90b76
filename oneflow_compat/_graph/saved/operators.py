"""The functions that a saved graph may call, and a check of each call against the operator's schema.

A target is a name. It is looked up among the operators that torch's dispatcher knows, never imported and
never reached through attributes. A call is accepted if its arguments have the names, count and types of the
schema, because they become Python and C++ source.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.fx

from ..._file_safety.shown import shown
from ..._kernels import _ext
from ..program.random_functions import PYTHON_NAMES
from .reader import INT64, PackageError, is_one_line, refuse

if TYPE_CHECKING:
    from torch.fx.node import Target

Node = torch.fx.Node
ValueTest = Callable[[object], bool]

# name in the file -> (function, least and most number of arguments)
_ARITHMETIC = {
    f"operator.{n}": (getattr(operator, n), 2, 2)
    for n in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "eq", "ne", "lt", "le", "gt", "ge")
}
_ARITHMETIC |= {f"operator.{n}": (getattr(operator, n), 1, 1) for n in ("neg", "abs")}
_ARITHMETIC |= {
    f"math.{n}": (getattr(math, n), 1, 1)
    for n in ("sqrt", "exp", "log1p", "expm1", "cos", "sin", "tanh", "floor", "ceil")
}
_ARITHMETIC |= {"math.log": (math.log, 1, 2), "math.pow": (math.pow, 2, 2)}
_ARITHMETIC |= {f"torch.{n}": (getattr(torch, n), 1, 1) for n in ("sym_float", "sym_int", "sym_not")}
_ARITHMETIC |= {
    "torch.sym_min": (torch.sym_min, 2, 2),
    "torch.sym_max": (torch.sym_max, 2, 2),
    "torch.sym_ite": (torch.sym_ite, 3, 3),
}
_ARITHMETIC |= {"torch.equal": (torch.equal, 2, 2)}
_RANDOM = {name: (function, 0, 2) for name, function in PYTHON_NAMES.items()}
_SUM, _ITEM = {"torch.sym_sum": (torch.sym_sum, 1, 1)}, {"operator.getitem": (operator.getitem, 2, 2)}
_PYTHON = {**_ARITHMETIC, **_RANDOM, **_SUM, **_ITEM}
_PYTHON_NAME = {id(function): name for name, (function, *_) in _PYTHON.items()}

_NAMESPACES = ("aten", "prims", "prim", "oneflow")
# These operators touch files, print, change settings of the process, or create an unchecked tensor.
_REFUSED = re.compile(
    r"aten::(from_file|save|_print|record_stream|_test_.*|_cufft_.*|.*_unsafe|_nested_view_from_.*)\Z"
)
# Eager kernels check these indices; inductor's code does not.
_UNCHECKED_WHEN_COMPILED = re.compile(r"aten::_unsafe_(masked_)?index.*\Z")
_TARGET = re.compile(r"([a-z]+)::([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)\Z")
_WORD = re.compile(r"[A-Za-z0-9_,.>() +-]{0,500}\Z")  # a mode, an equation of einsum
# the message of an assertion; inductor pastes it into a C++ string
_SENTENCE = re.compile(r'[^"\\]{0,5000}\Z')
_ASSERTIONS = (
    "aten::_assert_async",
    "aten::_functional_assert_async",
    "aten::_assert_scalar",
    "aten::_functional_assert_scalar",
)


def target_name(target: Target) -> str:
    """Return the name of a function in a file."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    name = _PYTHON_NAME.get(id(target))
    if name is None:
        raise PackageError(f"the program calls {target!r}, which cannot be stored")
    return name


def target_of(name: object, location: str) -> Callable[..., Any]:
    """Return the function with a name from a file."""
    if type(name) is str and name in _PYTHON:
        function: Callable[..., Any] = _PYTHON[name][0]
        return function
    parts = _TARGET.match(name) if type(name) is str and len(name) < 200 else None
    if parts is None or parts[1] not in _NAMESPACES or _REFUSED.match(f"{parts[1]}::{parts[2]}"):
        raise PackageError(
            f"{location}: the operator {shown(name)} is not allowed in a saved program; build the graph from"
            " operators of aten and oneflow"
        )
    namespace, base, overload = parts.groups()
    if namespace == "oneflow":
        _register_kernels(name, location)
    if not _is_registered(f"{namespace}::{base}", overload):
        raise PackageError(
            f"{location}: this torch ({torch.__version__}) has no operator {shown(name)}; load the graph with"
            " the version it was saved with"
        )
    operator: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    return operator


def _is_registered(base: str, overload: str) -> bool:
    """Return True if the dispatcher has the operator. Functions that only TorchScript has (aten::open,
    prim::rpc_async) are not registered.
    """
    try:
        torch._C._dispatch_find_schema_or_throw(base, "" if overload == "default" else overload)
    except RuntimeError:
        # the only TorchScript operator that a capture records
        return base == "prim::device" and overload == "default"
    return True


def _register_kernels(name: object, location: str) -> None:
    if _ext.status() != "loaded":
        raise PackageError(
            f"{location}: the operator {shown(name)} is one of oneflow's kernels, which are not here"
            f" ({_ext.status()})"
        )


def has_unchecked_index(graph: torch.fx.Graph) -> bool:
    """Return True if a node reads or writes at indices that compiled code would not check."""
    return any(
        isinstance(n.target, torch._ops.OpOverload) and _UNCHECKED_WHEN_COMPILED.match(n.target._schema.name)
        for n in graph.nodes
    )


# --------------------------------------------------------------------------- the arguments of a call
def check_call(
    target: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object], location: str
) -> None:
    """Raise PackageError unless the arguments fit the function. The values are decoded; nodes represent
    results.
    """
    if isinstance(target, torch._ops.OpOverload):
        _check_operator(target, args, kwargs, location)
    else:
        _check_function(_PYTHON_NAME[id(target)], args, kwargs, location)


def _check_function(name: str, args: Sequence[object], kwargs: dict[str, object], location: str) -> None:
    _, least, most = _PYTHON[name]
    if kwargs or not least <= len(args) <= most:
        raise refuse(
            location, f"{least} to {most} positional arguments for {name}", (len(args), list(kwargs))
        )
    if name in _SUM:
        args = args[0] if isinstance(args[0], list | tuple) else args
    allowed = (_is_node, _is_index) if name in _ITEM else (is_scalar,) * len(args)
    for i, (value, fits) in enumerate(zip(args, allowed)):
        if not fits(value) and not (name in _RANDOM and value is None):
            raise refuse(f"{location}.args[{i}]", f"a number or the result of a node for {name}", value)


def _check_operator(
    target: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object], location: str
) -> None:
    """Raise an error unless the arguments fit the schema of the operator."""
    parameters = _parameters(target)
    positional = [p for p in parameters if not p.is_keyword_only]
    if len(args) > len(positional):
        raise refuse(location, f"at most {len(positional)} positional arguments for {target}", len(args))
    for i, (value, parameter) in enumerate(zip(args, positional)):
        if not parameter.fits(value):
            expected = f"a value for {parameter.name} of {target._schema}"
            raise refuse(f"{location}.args[{i}]", expected, value)
    passed = {p.name for p in positional[: len(args)]}
    by_name = {p.name: p.fits for p in parameters if p.name not in passed}
    for key, value in kwargs.items():
        if key not in by_name:
            raise refuse(f"{location}.kwargs", f"an argument of {target._schema}", key)
        if not by_name[key](value):
            raise refuse(f"{location}.kwargs.{key}", f"a value for {key} of {target._schema}", value)
    for p in parameters:
        if p.is_required and p.name not in passed and p.name not in kwargs:
            raise refuse(location, f"the argument {p.name} of {target._schema}", [*passed, *kwargs])


class Parameter(NamedTuple):
    """An argument in the schema of an operator."""

    name: str
    is_keyword_only: bool
    is_required: bool
    fits: ValueTest


@functools.cache
def _parameters(target: torch._ops.OpOverload) -> tuple[Parameter, ...]:
    assertion = target._schema.name in _ASSERTIONS
    return tuple(
        Parameter(a.name, a.kwarg_only, not a.has_default_value(), _test(a.real_type, assertion))
        for a in target._schema.arguments
    )


def _is_node(value: object) -> bool:
    return isinstance(value, Node)


def _is_int(value: object) -> bool:
    return type(value) is bool or type(value) is int and INT64[0] <= value <= INT64[1]


def is_scalar(value: object) -> bool:
    """Whether a value is a number or the result of a node."""
    if type(value) is int:
        return INT64[0] <= value < 2**64
    return isinstance(value, Node) or type(value) in (bool, float, complex)


def _is_index(value: object) -> bool:
    return _is_int(value) or isinstance(value, Node)


def _is_tensor(value: object) -> bool:
    # autograd passes None for an undefined tensor; numbers stand for tensors without dimensions
    return value is None or is_scalar(value)


def _is_word(value: object) -> bool:
    return type(value) is str and _WORD.match(value) is not None


def _is_sentence(value: object) -> bool:
    return type(value) is str and _SENTENCE.match(value) is not None and is_one_line(value)


# type of a schema, as text -> the test of its values; a type that is not here (a storage, a stream, a class)
# takes no value
_TESTS = {
    "Tensor": _is_tensor,
    "number": is_scalar,
    "float": is_scalar,
    "complex": is_scalar,
    "int": _is_index,
    "bool": _is_index,
    "Device": lambda v: isinstance(v, torch.device | Node),
    "Layout": lambda v: isinstance(v, torch.layout),
    "MemoryFormat": lambda v: isinstance(v, torch.memory_format),
    "ScalarType": lambda v: isinstance(v, torch.dtype),
    "str": _is_word,
}


def _test(schema_type: Any, assertion: bool) -> ValueTest:
    """Return the test for values of a schema type."""
    if isinstance(schema_type, torch._C.OptionalType):
        inner = _test(schema_type.getElementType(), assertion)
        return lambda v: v is None or inner(v)
    if isinstance(schema_type, torch.ListType):
        inner = _test(schema_type.getElementType(), assertion)
        # int[2] takes one integer for both
        return lambda v: all(map(inner, v)) if isinstance(v, list | tuple) else inner(v)
    if assertion and str(schema_type) == "str":
        return _is_sentence
    return _TESTS.get(str(schema_type), lambda v: False)
