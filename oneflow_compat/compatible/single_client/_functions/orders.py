"""Call a job function in the argument order of the OneFlow version that its caller was written for.

The orders and the kinds of the parameters are rows of `_tables/legacy/orders.py`.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch

from ...._ops.tensor.replacing import takes
from ...._tables.legacy.orders import KINDS, ORDERS
from .._jobs.host import HostBlob
from ..distribute import Distribute

_KIND_OF = {parameter: name for name, parameters in KINDS.items() for parameter in parameters.split()}


def _is_integer(value: float | Sequence[int]) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_blob(value: Any, arguments: Any = None) -> bool:
    return isinstance(value, (torch.Tensor, HostBlob))


def _is_axis(value: Any, arguments: Any) -> bool:
    dimensions = getattr(next(iter(arguments.values())), "ndim", None)
    return _is_integer(value) and (dimensions is None or -dimensions <= value < dimensions)


def _is_minimum(value: Any, arguments: Any) -> bool:
    """Whether `value` can be a smallest size beside the target size.

    OneFlow 0.1 had the largest size in its position.
    """
    target = arguments.get("target_size")
    return _is_integer(value) and not (_is_integer(target) and value > target)


def _is_distribution(value: Any, arguments: Any = None) -> bool:
    return isinstance(value, Distribute)


def _is_generator(value: Any, arguments: Any = None) -> bool:
    return isinstance(value, torch.Generator)


_PREDICATES: dict[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "blob": _is_blob,
    "bool": lambda value, _: isinstance(value, (bool, numpy.bool_)),
    "int": lambda value, _: _is_integer(value),
    "number": lambda value, _: isinstance(value, numbers.Real) and not isinstance(value, bool),
    "string": lambda value, _: isinstance(value, str),
    # @flow.global_function without parentheses
    "job type": lambda value, _: isinstance(value, str) or inspect.isfunction(value),
    "sequence": lambda value, _: isinstance(value, (list, tuple)),
    "int or sequence": lambda value, _: _is_integer(value) or isinstance(value, (list, tuple)),
    "string or sequence": lambda value, _: isinstance(value, (str, list, tuple)),
    "axis of the first argument": _is_axis,
    "at most the target size": _is_minimum,
    "formula": lambda value, _: value in ("google", "cambricon"),
    "distribution": _is_distribution,
    "sbp": lambda value, _: not isinstance(value, bool) and not _is_distribution(value),
    "clipping": lambda value, _: hasattr(value, "clip_conf"),
    "loss scaling": lambda value, _: hasattr(value, "SetLossScaleFieldsInTrainConf"),
    "config": lambda value, _: hasattr(value, "describes_training"),
    "generator": _is_generator,
}


def _has_kinds(arguments: Mapping[str, Any]) -> bool:
    """Whether each argument is of its parameter's kind."""
    return all(
        value is None or name not in _KIND_OF or _PREDICATES[_KIND_OF[name]](value, arguments)
        for name, value in arguments.items()
    )


class _Order:
    """One older order: its parameters, and what 0.5 calls them ("" for a dropped one)."""

    def __init__(self, row: str) -> None:
        pairs = [item.partition("=") for item in row.split()]
        self.names = [old for old, _, _ in pairs]
        self.today = {old: new if renamed else old for old, renamed, new in pairs}

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any], signature: Any) -> dict[str, Any] | None:
        """The call's arguments under 0.5's names, or None if it does not fit this order."""
        names = self.names[: len(args)]
        if len(args) > len(names) or any(name in names for name in kwargs):
            return None
        by_name = dict(zip(names, args)) | kwargs
        if not _has_kinds(by_name):
            return None
        arguments = {
            self.today.get(name, name): value for name, value in by_name.items() if self.today.get(name, name)
        }
        return arguments if takes(signature, **arguments) and _has_kinds(arguments) else None


def _older_arguments(
    signature: Any, orders: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """The arguments of a call that does not fit 0.5's order, under 0.5's names; None for every other call."""
    if takes(signature, *args, **kwargs) and _has_kinds(signature.bind(*args, **kwargs).arguments):
        return None
    for order in orders:
        arguments = order.arguments(args, kwargs, signature)
        if arguments is not None:
            return arguments
    return None


def takes_older_orders(name: str) -> Callable[..., Any]:
    """Decorate the function or class of a row of ORDERS: it also takes calls in that row's orders."""
    orders = [_Order(row) for row in ORDERS[name].values()]

    def decorate(target: Any) -> Any:
        signature = inspect.signature(target)
        function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            instance, args = (args[:1], args[1:]) if isinstance(target, type) else ((), args)
            arguments = _older_arguments(signature, orders, args, kwargs)
            if arguments is None:
                return function(*instance, *args, **kwargs)
            return function(*instance, **arguments)

        call.older_orders = orders  # type: ignore[attr-defined]
        if isinstance(target, type):
            target.__init__ = call  # type: ignore[misc]
            return target
        return call

    return decorate


def bound_arguments(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call under 0.5's names, in whichever order it is written.

    A call that fits no order raises TypeError.
    """
    signature = inspect.signature(target)
    function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    orders = getattr(function, "older_orders", ())
    arguments = _older_arguments(signature, orders, args, kwargs)
    return signature.bind(*args, **kwargs).arguments if arguments is None else arguments
