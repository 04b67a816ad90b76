"""Fake tensors that outlive their capture: build() put them into a cache, a global list or another object.

Eager code and other graphs would then meet tensors without values. A survivor that is computed from constants
only, such as a table of positions, becomes a real tensor in place, so that each holder sees the value that
eager would have left. Any other survivor is announced, and raises a readable error as soon as it is used.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils._pytree as pytree

from ...._errors import OneFlowError
from ...._public_module import own_names
from ...errors import CaptureError, location_text
from ...guards import sources
from ...guards.guard import Guard
from ...guards.observed import Unfollowed
from ...program.captured import Captured
from ...program.live_numbers import live_number
from ...program.program import roots, written_args
from ...program.python_values import get_item
from ...program.symbolic import SYMBOLIC_NUMBERS
from ..interfaces import RecordedTensor
from ..values.known import constant_value

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from ..recorder import Recorder

T = TypeVar("T")


class LostTensor(RecordedTensor):
    """A tensor that build() computed and left somewhere, and that has no values outside of the program."""

    _loss: str  # the text of the error that each use raises

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        lost = next(x for x in pytree.tree_leaves((args, kwargs or {})) if isinstance(x, LostTensor))
        raise OneFlowError(lost._loss)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares a function
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls.__torch_function__(function, types, args, kwargs)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]  # torch: untyped
        return f"<{self._loss}>"


def settle_survivors(
    references: Sequence[Any], name: str, captured: Captured, ends_capture: bool
) -> Captured:
    """Give the survivors of a capture their values, or announce them. `ends_capture`: raise instead, and take
    the changes of build() back.

    `references` are weak references to the fake tensors of the capture. If a survivor is written in place,
    the next call needs another program, which starts from what this call leaves in it.
    """
    expected = _stored(captured)
    survivors = _not_garbage(lambda: _alive(references, expected))
    if not survivors:
        return captured
    nodes = [tensor._of_node for tensor in survivors]
    lost = _give_values(survivors, captured.program)
    if ends_capture:
        _end_if_held(lost, (survivors, lost), captured)
    for tensor in lost:
        _announce(tensor, name, (survivors, lost))
    captured = _with_guarded_values([t for t in survivors if not isinstance(t, LostTensor)], captured)
    if not any(_is_written(captured.program.graph, node) for node in nodes):
        return captured
    return captured.for_one_call()


def refuse_kept_numbers(references: Sequence[Any], captured: Captured, kept: Unfollowed | None) -> None:
    """Take back what build() changed, and raise, if someone holds a number that only a run knows.

    `references` are weak references to the numbers of .item(). Those that each run stores again do not count.
    `kept` is (site, what it is) of a number that build() put where no run fills it in.
    """
    stored = {id(leaf.node) for a in captured.effects.attributes for leaf in a.leaves if live_number(leaf)}
    numbers = functools.partial(_not_stored, references, stored)
    symbols = _symbols_of(_not_garbage(numbers) if kept is None else numbers())
    if kept is not None or symbols:
        _clear_caches(*symbols)
        captured.effects.undo_capture(captured.live)
        site, what = kept or (None, "an object outside")
        raise CaptureError(
            f"build() keeps a number of a tensor (.item(), a size) in {what}",
            "A program fills in what build() returns, and what it stores in lists, dicts and attributes.",
            None if site is None else site.code_location,
        )


def _not_stored(references: Sequence[Any], stored: set[int]) -> list[Any]:
    numbers = [number for reference in references if (number := reference()) is not None]
    return [number for number in numbers if id(number) not in stored]


def _symbols_of(numbers: list[Any]) -> list[Any]:
    """Return the symbols that hold the numbers. The history of a result holds numbers only."""
    referrers = gc.get_referrers(*numbers) if numbers else ()
    return [symbol for symbol in referrers if type(symbol) in SYMBOLIC_NUMBERS]


def _not_garbage(alive: Callable[[], list[T]]) -> list[T]:
    """Return what someone holds of the objects of a capture that are alive.

    A capture pauses garbage collection, so they are in its young generations, which are collected before all.
    """
    for generation in (1, 2):
        if not alive():
            return []
        gc.collect(generation)
    return alive()


def _with_guarded_values(tensors: Sequence[torch.Tensor], captured: Captured) -> Captured:
    """Guard that nobody writes tensors whose values the program computes again."""
    added = (
        Guard(sources.Attribute("_version"), tensor, tensor._version, "a tensor that build() keeps")
        for tensor in tensors
    )
    return replace(captured, guards=replace(captured.guards, python=(*captured.guards.python, *added)))


def settle_failed(recorder: Recorder) -> None:
    """Give the survivors of a capture that failed their values, if they are computed from constants only."""
    _give_values(_alive(recorder.fakes, set()), recorder)


def _give_values(survivors: Any, program: Any) -> Any:
    """Turn survivors into real tensors; return those whose value depends on a call."""
    fixed: set[Any] = set()  # nodes that depend on no input
    for node in program.graph.nodes:
        if node.op == "get_attr" or node.op == "call_function" and fixed.issuperset(node.all_input_nodes):
            fixed.add(node)
    lost, by_memory = [], collections.defaultdict(list)
    for tensor in survivors:
        node = tensor._of_node
        value = constant_value(program, node) if node in fixed else None
        if value is None:
            lost.append(tensor)
        else:
            by_memory[tensor.untyped_storage()._cdata].append((tensor, value))
    order = {node: index for index, node in enumerate(program.graph.nodes)}
    for sharing in by_memory.values():
        _become_real(sorted(sharing, key=lambda pair: order[pair[0]._of_node]))
    return lost


def _alive(references: Sequence[Any], expected: set[int]) -> list[RecordedTensor]:
    tensors = [tensor for reference in references if (tensor := reference()) is not None]
    return [
        tensor
        for tensor in {id(tensor): tensor for tensor in tensors}.values()
        if type(tensor) is RecordedTensor and id(tensor) not in expected and "_of_node" in vars(tensor)
    ]


def _stored(captured: Captured) -> set[Any]:
    """The ids of the fake tensors that each run replaces by its own results."""
    values = []
    for attribute in captured.effects.attributes:
        values += [attribute.leaves, get_item(attribute.container, attribute.key)]
    return {id(leaf) for leaf in pytree.tree_leaves(values) if isinstance(leaf, RecordedTensor)}


def _is_written(graph: Graph, node: Node) -> bool:
    """Whether the program writes the memory of a node."""
    memory = set(roots([node]))
    calls = (n for n in graph.nodes if n.op == "call_function")
    return any(not memory.isdisjoint(roots(written_args(call))) for call in calls)


def _become_real(sharing: Any) -> None:
    """Turn fake tensors that share memory into real ones that share memory, for everyone who holds them.

    `sharing` are (fake tensor, its value) in the order of the program: a later one may have been written.
    """
    earliest, value = sharing[0]
    reals = [value.detach().clone()]
    if len(sharing) > 1:
        size = earliest.untyped_storage().nbytes() // earliest.element_size()
        memory = torch.empty(size, dtype=earliest.dtype, device=earliest.device)
        reals = [memory.as_strided(t.shape, t.stride(), t.storage_offset()) for t, _ in sharing]
        positions = torch.arange(size, device=earliest.device)
        for t, value in sharing:  # elements of an expanded tensor share memory, so copy_() would refuse it
            elements = positions.as_strided(t.shape, t.stride(), t.storage_offset())
            memory.put_(elements, value.detach())
    for real, (tensor, _) in zip(reals, sharing):
        _become(tensor, real)


def _become(tensor: torch.Tensor, real: Any) -> None:
    """Turn a fake tensor into a real one."""
    real = real.requires_grad_(tensor.requires_grad)
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    tensor.__class__ = torch.nn.Parameter if is_parameter else torch.Tensor
    vars(tensor).clear()
    torch._C._swap_tensor_impl(tensor, real)


def _announce(tensor: Any, name: str, own_lists: Any) -> None:
    """Let each use of a tensor raise. Warn if a Python object holds it, and not only a view or autograd."""
    shape, location = tuple(tensor.shape), location_text(tensor._of_node.meta.get("location"))
    holder = _holder(tensor, own_lists)
    loss = (
        f"graph {name}: a tensor of shape {shape} that build() computed was kept in"
        f" {holder or 'another tensor'}, and has no values there\n  {location}\n  A graph fills in what"
        " build() returns and what it keeps in attributes of modules or of the graph: return it, or keep it"
        " there."
    )
    tensor.__class__, tensor._loss = LostTensor, loss
    if holder is not None:
        warnings.warn(loss, stacklevel=2)


def _end_if_held(lost: Sequence[Any], own_lists: Any, captured: Captured) -> None:
    """Take back what build() changed, and raise, if a Python object holds a tensor without values."""
    for tensor in lost:
        holder = _holder(tensor, own_lists)
        if holder is None:
            continue
        _clear_caches(tensor)
        captured.effects.undo_capture(captured.live)
        raise CaptureError(
            f"build() keeps a tensor of shape {tuple(tensor.shape)} in {holder}",
            "A program fills in what build() returns, and what it keeps in attributes of modules or graphs.",
            tensor._of_node.meta.get("location"),
        )


def _clear_caches(*values: Any) -> None:
    """Clear the caches of functions that hold one of the values."""
    for cache in gc.get_referrers(*values) if values else ():
        if isinstance(cache, functools._lru_cache_wrapper):
            cache.cache_clear()


def _holder(tensor: torch.Tensor, own_lists: Any) -> Any:
    """Return a readable name of the object that holds the tensor, or None if only C++ holds it.

    The lists of this module do not count.
    """
    own = set(map(id, own_lists))
    holders = [holder for holder in gc.get_referrers(tensor) if id(holder) not in own]
    for holder in holders:
        if isinstance(holder, functools._lru_cache_wrapper):
            return f"the cache of {holder.__wrapped__.__qualname__}()"
        if isinstance(holder, dict):
            return _name_of_dict(holder, _key_of(tensor, holder))
        if isinstance(holder, (list, tuple, set)):
            return f"a {type(holder).__name__}" + _name_of_container(holder)
        if isinstance(holder, types.CellType):
            return "a variable of an enclosing function"
    return "an object outside of the graph" if holders else None


def _key_of(tensor: torch.Tensor, holder: Any) -> Any:
    for key, value in holder.items():  # a generator expression would be a holder itself
        if value is tensor:
            return key


def _name_of_dict(holder: Any, key: Any) -> Any:
    for module_name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and own_names(module) is holder:
            return f"the global name {module_name}.{key}"
    owner = next((o for o in gc.get_referrers(holder) if getattr(o, "__dict__", None) is holder), None)
    if owner is not None:
        return f"the attribute {key!r} of a {type(owner).__name__}"
    return f"a dict under the key {key!r}" + _name_of_container(holder)


def _name_of_container(container: Any) -> str:
    """The global name of a container, in brackets."""
    for scope in gc.get_referrers(container):
        if isinstance(scope, dict) and "__name__" in scope:
            names = [k for k, v in scope.items() if v is container]
            if names:
                return f" ({scope['__name__']}.{names[0]})"
    return ""
