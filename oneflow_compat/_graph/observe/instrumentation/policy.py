"""Which code is observed: the user's fully, installed packages where they read objects, torch's never."""

from __future__ import annotations

import functools
import os
import sys
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ...._public_module import own_names
from ...code_origins import PACKAGE, SITE, STDLIB, is_of_this_package, torch_folder

_TORCH = torch_folder()


class Policy(Enum):
    USER = "user"  # every read
    INSTALLED = "installed"  # every read but those of its own globals, which are trusted
    NONE = "none"  # like C code: its arguments are guarded as a whole
    NONE_BELOW = "none below"  # and so is everything that it calls


# Parts that hold the user's objects and read them, or settings that decide the text of a tensor or an array.
_TORCH_PARTS = ("nn/", "optim/", "ao/", "distributions/", "jit/_script.py", "_tensor_str.py")
_TORCH_FUNCTIONS = ("nn/functional.py", "nn/init.py", "nn/_reduction.py", "nn/parameter.py")
_NUMPY_FILES = ("/numpy/_core/arrayprint.py", "/numpy/_core/printoptions.py", "/numpy/core/arrayprint.py")
_PACKAGE_PARTS = ("nn/", "one_embedding/", "optim/", "utils/", "amp/", "autograd/")
# They hand reads on to modules, or replace methods of modules.
_GRAPH_PARTS = ("nn/graph/graph.py", "nn/graph/proxy.py", "_graph/capture/patches/batch_norm.py")
# Their functions stand for methods of optimizers, schedules and modules in a step: they note the call, or
# hand it on to the method, whose code is observed.
_OF_STEPS = ("_graph/capture/update/steps_of_build.py", "_graph/capture/side_effects/gradients_of_call.py")
# Packages whose functions compute from their arguments only, or show progress (tqdm).
_FUNCTIONS_ONLY = ("torch", "numpy", "sympy", "mpmath", "scipy", "functorch", "torchgen", "triton", "tqdm")
# Parts of the standard library that keep the interpreter's own books.
_BOOKKEEPING = frozenset(
    """
    abc contextlib contextvars copyreg genericpath importlib inspect linecache
    posixpath re site sre_compile sre_parse threading tokenize traceback types typing warnings weakref
    _weakrefset unittest asyncio concurrent multiprocessing
    _py_warnings
    """.split()
)
# Code that fills in what is final where it found nothing: properties that Python or torch caches for itself,
# docstrings, and the mark of an optimizer that it has checked its parameters.
_FILLS_FOR_GOOD = (
    PACKAGE,
    os.path.join(_TORCH, "optim", ""),
    *(os.path.join(STDLIB, name) for name in ("functools.py", "dataclasses.py")),
)

# It picks an implementation by a class: a guard asks it again, and its cache is no fact of the program.
DISPATCH = functools.singledispatch(print).dispatch.__code__
_FROZEN_PARTS = ("<frozen os>", "<frozen _collections_abc>")


@functools.lru_cache(None)
def policy_of_file(name: str) -> Policy:
    """Return the policy for the code of a file."""
    if name.startswith(PACKAGE):
        observed = _is_part(name, PACKAGE, _PACKAGE_PARTS) and not _is_part(name, PACKAGE, ("nn/graph/",))
        return Policy.INSTALLED if observed or _is_part(name, PACKAGE, _GRAPH_PARTS) else Policy.NONE
    if name.startswith(_TORCH):
        observed = _is_part(name, _TORCH, _TORCH_PARTS) and not _is_part(name, _TORCH, _TORCH_FUNCTIONS)
        return Policy.INSTALLED if observed else Policy.NONE
    if SITE in name:
        package = name.rpartition(SITE)[2].split(os.sep)[0]
        of_functions = package in _FUNCTIONS_ONLY and not name.replace(os.sep, "/").endswith(_NUMPY_FILES)
        return Policy.NONE if of_functions else Policy.INSTALLED
    if name.startswith(STDLIB):
        return _policy_of_standard_library(name[len(STDLIB) :].split(os.sep)[0].removesuffix(".py"))
    if name.startswith("<frozen importlib"):  # a module that is imported runs once, in eager mode too
        return Policy.NONE_BELOW
    if name.startswith("<frozen"):
        return Policy.INSTALLED if name in _FROZEN_PARTS else Policy.NONE
    return Policy.USER


def _policy_of_standard_library(module: str) -> Policy:
    # torch logs while build() runs, and tqdm makes a lock: no part of the program
    if module in ("logging", "multiprocessing"):
        return Policy.NONE_BELOW
    return Policy.NONE if module in _BOOKKEEPING else Policy.INSTALLED


def _is_part(name: str, root: Any, parts: Any) -> bool:
    return name[len(root) :].replace(os.sep, "/").startswith(parts)


def policy_of(code: CodeType, scope: dict[str, Any]) -> Policy:
    """Return the policy for a code object that runs in the scope of a module.

    A method that `dataclasses` generates has no file of its own: it belongs to its module.
    """
    if code is DISPATCH:
        return Policy.NONE_BELOW
    generated = code.co_filename == "<string>" and type(scope.get("__file__")) is str
    policy = policy_of_file(scope["__file__"] if generated else code.co_filename)
    if code.co_name == "__torch_dispatch__" and policy is not Policy.USER:
        return Policy.NONE_BELOW
    return policy


def is_installed_module(module: Any) -> bool:
    """Whether a module is of the interpreter, of the standard library or of an installed package.

    A module without a file is the user's unless the interpreter or a known package made it: the main module
    of a notebook, for example.
    """
    # getattr() would run a __getattr__ of the user's module, and vars() would look up all names of torch
    attributes = own_names(module) if isinstance(module, ModuleType) else vars(module)
    name = attributes.get("__file__")
    if isinstance(name, str):
        return policy_of_file(name) is not Policy.USER
    if module.__name__.partition(".")[0] in (*sys.builtin_module_names, *_FUNCTIONS_ONLY):
        return True
    return attributes.get("__spec__") is not None  # a namespace package, a frozen module


def policy_of_module(name: str) -> Policy:
    """Return the policy for the code of a module, by its name."""
    module = sys.modules.get(name)
    return Policy.INSTALLED if module is not None and is_installed_module(module) else Policy.USER


def stands_for_method(code: CodeType) -> bool:
    """Whether a function of the capture stands for a method, and reads nothing that needs a guard."""
    return code.co_filename.startswith(PACKAGE) and _is_part(code.co_filename, PACKAGE, _OF_STEPS)


def fills_for_good(code: CodeType) -> bool:
    """Whether what this code fills in where it found nothing stays as it is."""
    return code.co_filename.startswith(_FILLS_FOR_GOOD)


def origin_of_read(instance: Any, name: str) -> Any:
    """Return the object whose attribute a proxy of a module in a graph reads for its own, or None."""
    code = getattr(getattr(type(instance), "__getattr__", None), "__code__", None)
    if code is None or not is_of_this_package(code.co_filename) or hasattr(type(instance), name):
        return None
    attributes = vars(instance)
    origin = None if name in attributes else attributes.get("_origin")
    return origin if name in getattr(origin, "__dict__", ()) else None


def is_of_the_capture(value: Any) -> bool:
    """Whether a value is a function that a capture put into torch or into a module for a while."""
    function = value.fget if type(value) is property else value
    if type(function) is not FunctionType:
        return False
    return function.__code__.co_filename.startswith(PACKAGE + "_graph" + os.sep)
