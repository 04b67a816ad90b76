"""Small functions of OneFlow's deep paths under `oneflow.framework`: rows of `_tables/deep_paths.py`."""

import itertools

import torch

from .. import _env

_numbers = itertools.count()


class BalancedRanges(list):
    """[(begin, end), ...]: `total` cut into `part_size` ranges whose lengths differ by one at most, longer
    ones first.
    """

    def __init__(self, total: int, part_size: int):
        base, rest = divmod(total, part_size)
        begin, parts = 0, []
        for i in range(part_size):
            end = begin + base + (i < rest)
            parts.append((begin, end))
            begin = end
        super().__init__(parts)


def add_docstr(fun, docstr: str):
    """`fun` with a docstring; RuntimeError where it has one."""
    if fun.__doc__ is not None:
        raise RuntimeError(f"{fun!r} has a docstring already; reset_docstr replaces it")
    return reset_docstr(fun, docstr)


def reset_docstr(o, docstr: str):
    """`o` with another docstring."""
    o.__doc__ = docstr
    return o


def HasAllMultiClientEnvVars() -> bool:
    """True: one process is its own world; several get their variables from the launcher."""
    variables = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")
    return all(map(_env.is_given, variables)) or not any(map(_env.is_given, variables[2:]))


def scope_to_proto(scope):
    """The scope's name, numbers and attributes as a message (`scope_util.ScopeProto`)."""
    return scope.proto()


def UniqueStr(prefix: str) -> str:
    """`prefix` and a number that no other name of this process has."""
    return f"{prefix}{next(_numbers)}"


def register_tensor_op(op_name: str):
    """A decorator: the function becomes the method `op_name` of every tensor; also torch's own of that name
    is replaced.
    """

    def put(function):
        setattr(torch.Tensor, op_name, function)
        return function

    return put


def convert_to_tensor_tuple(args) -> list:
    """A list of tensors from one tensor, several, or None."""
    return [] if args is None else [args] if isinstance(args, torch.Tensor) else list(args)
