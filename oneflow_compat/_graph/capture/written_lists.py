"""Operators that write a list of tensors, such as torch._foreach_mul_."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from ..program.memory import overlapping
from ..program.operators import is_written, written_argument

Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls_of_apart(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Call]:
    """Yield the (args, kwargs) of the calls to record for one call, and count the writes of each.

    Tensors of a list that share memory are written one after the other, as the kernels of the CPU do it:
    passes and compilers take the tensors of a list for separate memory. Torch counts the writes of a list in
    the kernel, which does not run here, and the gradients of views depend on the counts.
    """
    written = _written_lists(func, args, kwargs)
    if written and func._schema.name.startswith("aten::_foreach_") and _share_memory(written):
        count = len(written[0])
        calls: Iterator[Call] = iter([(_element(args, i), _element(kwargs, i)) for i in range(count)])
    else:
        calls = iter([(args, kwargs)])
    for call in calls:
        yield call
        for tensors in _written_lists(func, *call):
            torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def _written_lists(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[torch.Tensor]]:
    if not func._schema.is_mutable:
        return []
    values = (
        written_argument((position, argument.name), args, kwargs)
        for position, argument in enumerate(func._schema.arguments)
        if is_written(argument)
    )
    return [list(value) for value in values if isinstance(value, (list, tuple)) and value]


def _share_memory(lists: list[list[torch.Tensor]]) -> bool:
    by_memory: dict[int, list[torch.Tensor]] = {}
    for tensor in itertools.chain.from_iterable(lists):
        if tensor.layout is torch.strided:
            by_memory.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    return any(overlapping(tensors) for tensors in by_memory.values())


def _element(values: Any, index: int) -> Any:
    """Return the arguments of a call for one tensor of each list."""
    if isinstance(values, dict):
        return {name: _element_of(value, index) for name, value in values.items()}
    return tuple(_element_of(value, index) for value in values)


def _element_of(value: Any, index: int) -> Any:
    return [value[index]] if isinstance(value, (list, tuple)) else value
