"""Arguments of functions that take OneFlow's or torch's positional order, told apart by a type."""

from __future__ import annotations


def bind(function: str, slots: tuple, args: tuple, kwargs: dict, **renamed: str) -> dict:
    """Return the arguments of a call as {name: value}. `slots` names the positions; keywords may use either
    spelling (`renamed`: ours=theirs).
    """
    if len(args) > len(slots):
        raise TypeError(
            f"{function}() takes at most {len(slots)} positional arguments ({', '.join(slots)}), found"
            f" {len(args)}"
        )
    arguments = dict(zip(slots, args))
    for name, value in kwargs.items():
        name = renamed.get(name, name)
        if name in arguments:
            raise TypeError(f"{function}() got the argument {name!r} twice")
        arguments[name] = value
    if slots[0] not in arguments:
        raise TypeError(f"{function}() misses its first argument {slots[0]!r}")
    return arguments


def need_tensors(function: str, **arguments) -> None:
    """Raise TypeError, as functions written in C do, if an argument is not a tensor. A torch.fx proxy counts
    as a tensor.
    """
    for name, value in arguments.items():
        if not hasattr(value, "dim"):
            raise TypeError(f"{function}(): argument {name!r} must be a tensor, found {type(value).__name__}")
