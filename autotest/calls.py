"""Running one call on both sides."""
from __future__ import annotations

import functools
import inspect
import types
import typing

from . import case as cases
from .case import Step
from .errors import BothDoNotSupportError, Mismatch, PyTorchDoesNotSupportError
from .generators import Nothing, generator

ATOMS = (int, float, bool, str, type(None), complex)
# The reference's result is handed to the candidate as it is (the values are nobody's promise) ...
POSTULATED = {"rand", "Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "IntTensor", "LongTensor", "ByteTensor", "CharTensor", "BoolTensor"}
# ... or the candidate makes its own and only the values are handed over.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}


# Arguments and annotations of torch's functions that were written in Python once: OneFlow's tests pass an untyped random() there.
FORMER = {
    "hardshrink": (["input", "lambd"], {"lambd": float}),
    "pairwise_distance": (["x1", "x2", "p", "eps", "keepdim"], {"p": float, "eps": float, "keepdim": bool}),
}


def split(x):
    """(x with generators drawn, its reference side, its candidate side), through containers."""
    kind = type(x)
    if kind in ATOMS:
        return x, x, x
    if hasattr(kind, "__dual__"):
        return x, x._ref, x._cand
    if isinstance(x, generator):
        return split(x.value())
    if kind is tuple or kind is list:
        parts = [split(e) for e in x]
        return kind(p[0] for p in parts), kind(p[1] for p in parts), kind(p[2] for p in parts)
    if kind is dict:
        parts = {k: split(v) for k, v in x.items()}
        return {k: p[0] for k, p in parts.items()}, {k: p[1] for k, p in parts.items()}, {k: p[2] for k, p in parts.items()}
    if kind is slice:
        parts = [split(e) for e in (x.start, x.stop, x.step)]
        return slice(*(p[0] for p in parts)), slice(*(p[1] for p in parts)), slice(*(p[2] for p in parts))
    return x, x, x


def split_arguments(function, args, kwargs):
    """(resolved, reference, candidate) argument lists and keyword dicts; `nothing` is dropped."""
    if any(isinstance(a, generator) for a in args) or any(isinstance(a, generator) for a in kwargs.values()):
        give_types(function, args, kwargs)
    parts = [split(a) for a in args]
    while parts and isinstance(parts[-1][0], Nothing):
        parts.pop()
    named = {}
    for k, v in kwargs.items():
        part = split(v)
        if not isinstance(part[0], Nothing):
            named[k] = part
    return tuple(
        (tuple(p[side] for p in parts), {k: p[side] for k, p in named.items()}) for side in range(3)
    )


def give_types(function, args, kwargs):
    """Ask untyped generators for the type the callee's annotation names."""
    function = getattr(function, "__func__", function)
    try:
        names, hints = _annotations(function)
    except TypeError:  # not hashable
        return
    for i, arg in enumerate(args):
        if isinstance(arg, generator) and i < len(names) and names[i] in hints:
            arg.to(hints[names[i]])
    for name, arg in kwargs.items():
        if isinstance(arg, generator) and name in hints:
            arg.to(hints[name])


@functools.lru_cache(maxsize=4096)
def _annotations(function):
    target = function
    if isinstance(function, type):
        target = function.__init__
    elif not inspect.isroutine(function) and not isinstance(function, functools.partial):
        target = getattr(type(function), "forward", None) or type(function).__call__
    try:
        names = [p.name for p in inspect.signature(target).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        return FORMER.get(getattr(target, "__name__", ""), ([], {}))
    if names and (names[0] == "self"):
        names = names[1:]
    hints = dict(getattr(target, "__annotations__", {}))
    if any(isinstance(h, str) for h in hints.values()):
        hints = _evaluated(target, hints)
    hints = {k: _numeric(v) for k, v in hints.items()}
    return names, {k: v for k, v in hints.items() if _drawable(v)}


def _evaluated(target, hints):
    scope = vars(typing) | getattr(inspect.unwrap(target), "__globals__", {})
    out = {}
    for name, hint in hints.items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, scope)
            except Exception:  # a name only known to type checkers
                continue
        out[name] = hint
    return out


def _numeric(hint):
    """A union without its str, which a generator of numbers cannot mean: padding: Union[str, int, tuple[int, int]]."""
    if typing.get_origin(hint) is typing.Union or isinstance(hint, getattr(types, "UnionType", ())):
        kinds = tuple(a for a in typing.get_args(hint) if a is not str)
        return typing.Union[kinds] if kinds else hint
    return hint


def _drawable(hint):
    """Can random() draw this type? int, float, bool, and unions and tuples of them."""
    if hint in (int, float, bool, type(None)) or hint is Ellipsis:
        return True
    args = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Union or isinstance(hint, getattr(types, "UnionType", ())) or origin in (tuple, list):
        return bool(args) and all(_drawable(a) for a in args)
    return False


def both(pair, label, reference, candidate, r_args, r_kwargs, c_args, c_kwargs, name=""):
    """Call both sides on the same random stream; returns the two results, or raises what the difference is."""
    state = pair.random_state()
    try:
        r = reference(*r_args, **r_kwargs)
    except Exception as e:
        refuse(pair, label, e, candidate, c_args, c_kwargs, state)
    pair.drawn_from = state if name in POSTULATED or name in UNINITIALISED or pair.has_moved(state) else None
    if name in POSTULATED and pair.is_reference_tensor(r):
        return r, pair.to_candidate(r)
    if pair.drawn_from is not None:
        pair.rewind(state)
    try:
        c = candidate(*c_args, **c_kwargs)
    except Exception as e:
        raise Mismatch("one side raised", f"{pair.names[0]} accepts {label}, {pair.names[1]} raised {type(e).__name__}: {e}") from e
    if name in UNINITIALISED and pair.is_reference_tensor(r) and tuple(r.shape) == tuple(c.shape):
        c.detach().copy_(pair.to_candidate(r, requires_grad=False))
    return r, c


def refuse(pair, label, error, candidate, c_args, c_kwargs, state):
    """The reference raised `error`: see what the candidate does, and raise accordingly."""
    pair.rewind(state)
    try:
        candidate(*c_args, **c_kwargs)
    except Exception as e:
        options = getattr(cases.current(), "options", None)
        if options is not None and options.check_errors == "class" and not same_class(error, e):
            raise Mismatch(
                "class of error", f"{label} raised {type(error).__name__} in {pair.names[0]} and {type(e).__name__} in {pair.names[1]}\n"
                f"{pair.names[0]}: {error}\n{pair.names[1]}: {e}") from e
        raise BothDoNotSupportError(error, e) from None
    options = getattr(cases.current(), "options", None)
    if options is not None and options.check_errors != "no" and not pair.accepts_more:
        raise Mismatch("one side raised", f"{pair.names[0]} raised {type(error).__name__} for {label}: {error}\n{pair.names[1]} accepts it") from error
    raise PyTorchDoesNotSupportError(error) from error


def same_class(a, b):
    """One class is the other, or its parent below Exception."""
    ta, tb = type(a), type(b)
    return issubclass(ta, tb) or issubclass(tb, ta)


def record(kind, target, args, kwargs, out, value=None, random=None):
    case = cases.current()
    if case is not None:
        case.add(Step(kind, target, args, kwargs, out, value, random))
    return out
