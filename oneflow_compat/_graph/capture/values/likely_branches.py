"""The branch that a test of values usually takes: `if bad.any()` does not, `if count > 0` does.

A branch on sampled numbers may take either: a layer that is dropped at random.
"""

import math
from typing import Any

import torch
from torch.fx import Node

from ...program.operators import communicates
from ...program.program import written_args
from ...program.random_functions import samples

aten = torch.ops.aten


def _overloads(*names: Any) -> set[Any]:
    return {
        getattr(getattr(aten, name), o)
        for name in names
        for o in ("default", "Tensor", "Scalar", "dim", "dims")
        if hasattr(getattr(aten, name), o)
    }


_NOT = _overloads("logical_not", "bitwise_not")
_JOINED = _overloads("logical_and", "bitwise_and", "mul", "logical_or", "bitwise_or")
_ANY_ALL = _overloads("any", "all")
_NOT_FINITE = _overloads("isinf", "isnan", "isposinf", "isneginf")
_EQUAL, _FEW = _overloads("eq"), _overloads("lt", "le")
_COMPARED = _EQUAL | _FEW | _overloads("ne", "gt", "ge")


def likely_outcome(node: Node, reduced_by: str | None = None) -> bool | None:
    """Return the likely truth of comparisons of integers or sampled numbers, or of tests that numbers are
    finite; else None.

    `reduced_by`: "any" or "all" if the bool tensor is reduced by it.
    """
    target: Any = node.target
    args: Any = node.args
    if target in _NOT:
        dual = {None: None, "any": "all", "all": "any"}[reduced_by]
        likely = likely_outcome(args[0], dual)
        return None if likely is None else not likely
    if target in _JOINED:
        return _likely_of_joined(node, target, reduced_by)
    if target in _ANY_ALL:
        return likely_outcome(args[0], "any" if target.__name__.startswith("any") else "all")
    if target in _NOT_FINITE:
        return False
    if target not in _COMPARED:
        return None
    # x == x, abs(x) != inf: parts of isfinite() and isnan()
    if args[0] is args[1] or args[1] in (math.inf, -math.inf):
        return (target in _EQUAL) is (args[0] is args[1])
    if not all(map(_is_of_scalars_or_integers, args)) and not is_sampled(node):
        return None
    return target not in _EQUAL | _FEW if reduced_by is None else reduced_by == "any"  # counts are large


def _likely_of_joined(node: Node, target: torch._ops.OpOverload, reduced_by: str | None) -> bool | None:
    outcomes = [likely_outcome(a, reduced_by) if isinstance(a, Node) else None for a in node.args]
    if None in outcomes:
        return None
    is_or = target.__name__.startswith(("logical_or", "bitwise_or"))
    return any(outcomes) if is_or else all(outcomes)


def _is_of_scalars_or_integers(argument: Any) -> bool:
    if not isinstance(argument, Node):
        return type(argument) in (int, float)
    dtype = argument.meta["tensor"].dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def is_sampled(node: Node) -> bool:
    """Whether a value depends on sampled numbers and on no input: `torch.rand([]) < 0.1`."""
    nodes, pending = set(), [node]
    while pending:
        n = pending.pop()
        if n.op == "placeholder" or communicates(n.target):
            return False
        if n not in nodes:
            nodes.add(n)
            pending += n.all_input_nodes
            pending += [user for user in n.users if n in written_args(user)]  # uniform_()
    return any(samples(n.target) for n in nodes)
