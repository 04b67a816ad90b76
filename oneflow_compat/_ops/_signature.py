"""Helpers for functions under OneFlow's argument names that hand most calls straight to torch."""

from __future__ import annotations

import functools
import inspect
import sys
import types

from .._bind import rename


def parse(text: str) -> inspect.Signature:
    """The signature written as "(input, dim=None, **torch_keywords)"; a free name as default stands for
    itself.
    """
    body = text.strip()
    return inspect.signature(
        eval(
            f"lambda {body[1:-1]}: None",
            {"__builtins__": {}, "inf": float("inf"), "True": True, "False": False, "None": None},
        )
    )


def documented(text: str, name: str | None = None, doc: str | None = None):
    """Decorator: show the signature `text` for a function whose body takes *args, **kwargs."""
    signature = parse(text)

    def decorate(function):
        function.__signature__ = signature
        if name:
            function.__name__ = function.__qualname__ = name
        function.__module__ = "oneflow"
        if doc:
            function.__doc__ = doc
        return function

    return decorate


def spelled(pairs: str):
    """Decorator: also accept torch's keyword names, "torch=ours" pairs: @spelled("input=x axis=dim")."""
    mapping = dict(item.split("=") for item in pairs.split())
    theirs = frozenset(mapping)

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if kwargs and not theirs.isdisjoint(kwargs):
                kwargs = rename(function.__name__, kwargs, mapping)
            return function(*args, **kwargs)

        return call

    return decorate


def refused_by_class(error) -> bool:
    """Did a class with __torch_function__ say that it does not know torch's function?"""
    return type(error) is TypeError and "__torch_function__" in str(error)


def ask_class(name, args, kwargs):
    """Ask it about the function a program calls torch.NAME: classes find theirs in a dict with such functions
    as keys.
    """
    import torch

    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    concerned = [a for a in leaves if hasattr(type(a), "__torch_function__") and type(a) is not torch.Tensor]
    return torch.overrides.handle_torch_function(
        getattr(sys.modules["oneflow"], name), concerned, *args, **kwargs
    )


def or_else(target, name: str, signature: str, doc: str):
    """Decorator for the slow path `function(error, *args, **kwargs)` of `target`.

    The result calls torch's `target`; only when that refuses the call is the decorated function asked,
    which returns a result or `REFUSED` (torch's own error is raised then).
    """
    shown = parse(signature)

    def decorate(slow):
        def call(*args, **kwargs):
            try:
                return target(*args, **kwargs)
            except (TypeError, RuntimeError, NotImplementedError) as error:
                if refused_by_class(error):
                    return ask_class(name, args, kwargs)
                out = slow(error, *args, **kwargs)
                if out is REFUSED:
                    raise
                return out

        call.__name__ = call.__qualname__ = name
        call.__module__ = "oneflow"
        call.__doc__ = doc
        call.__signature__ = shown
        return call

    return decorate


REFUSED = types.SimpleNamespace(__name__="REFUSED")
