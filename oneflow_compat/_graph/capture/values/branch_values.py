"""Values that decide shapes and branches while build() is captured: lengths, masks, flags in buffers.

A program that is made for such a value tests it: before each call a small program computes the value again.
If it differs, another program serves the call (guards/conditions.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ...errors import KEEP_VALUE, CaptureError
from ...guards.conditions import Condition
from .known import guarded_scalar, guarded_tensor, known_value

if TYPE_CHECKING:
    from torch.fx import Node

    from ..interfaces import RecorderInterface


aten = torch.ops.aten


def lengths(recorder: RecorderInterface, tensor: torch.Tensor) -> Any:
    """Return the values of a small integer tensor, also of an argument: the program is made for them."""
    return guarded_tensor(recorder, tensor, of_arguments=True)


def with_known_lengths(recorder: RecorderInterface, tree: Any) -> Any:
    """Return the arguments of build() with the lengths in a PackedSequence as real tensors.

    The reason is that torch reads them in C++.
    """
    packed = torch.nn.utils.rnn.PackedSequence

    def with_real_lengths(value: Any) -> Any:
        if not isinstance(value, packed):
            return value
        sizes = lengths(recorder, value.batch_sizes)
        recorder.hold(sizes)
        return value._replace(batch_sizes=sizes)

    is_leaf: Callable[[Any], bool] = lambda value: isinstance(value, (packed, torch.Size))
    if not any(isinstance(leaf, packed) for leaf in pytree.tree_leaves(tree, is_leaf=is_leaf)):
        return tree  # the same tree, so that build() sees the caller's own lists and dicts
    return pytree.tree_map(with_real_lengths, tree, is_leaf=is_leaf)


# -- operators whose result's shape depends on values ------------------------------------
def known_shape(recorder: Any, func: Any, node: Any, args: Any) -> Any:
    """Return the symbolic result of an operator in the table below, or None."""
    shape_rule = _SHAPE_RULES.get(func)
    result = shape_rule(recorder, node, *args) if shape_rule is not None else None
    recorder.sizes.fixed |= result is not None and shape_rule in (_index, _select, _by_values)
    return result


def _pack(
    recorder: RecorderInterface, node: Node, data: Any, sizes: Any, batch_first: bool
) -> tuple[Any, ...]:
    value = lengths(recorder, sizes)
    if value is None:
        raise CaptureError(
            "the lengths of pack_padded_sequence are computed from values that a program cannot know",
            "Give them as a list of numbers, or as a CPU tensor that is an argument or a buffer: each set of"
            " lengths makes a program of its own.",
        )
    with _disable_current_modes():
        thin, counts = aten._pack_padded_sequence(
            torch.zeros(data.shape[:2] + (1,)), value.cpu(), batch_first
        )
    with recorder.fake_mode:
        packed = torch.empty(thin.shape[:1] + data.shape[2:], dtype=data.dtype, device=data.device)
    recorder.hold(counts)  # a real tensor: torch's C++ reads it
    return packed, counts


def _ctc(
    recorder: RecorderInterface,
    node: Node,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *options: Any,
) -> tuple[Any, ...]:
    """Return the losses. The longest target decides the size of the second result, which is opaque."""
    shape = (log_probs.shape[1],) if log_probs.dim() == 3 else ()
    with recorder.fake_mode:
        losses = torch.empty(shape, dtype=log_probs.dtype, device=log_probs.device)
        return losses, torch.empty(0, dtype=log_probs.dtype, device=log_probs.device)


def _by_values(recorder: RecorderInterface, node: Node, *args: Any) -> Any:
    """Return the results of an operator if the values of all its inputs are known, else None.

    Unless the inputs are constants, the program is guarded by the length of the first result.
    """
    known_results = known_value(recorder, node)
    value = known_results.value
    if value is None:
        return None
    if known_results.is_example:
        result_node, tensor = (
            (node, value)
            if isinstance(value, torch.Tensor)
            else (recorder.graph.call_function(operator.getitem, (node, 0)), value[0])
        )
        size = recorder.graph.call_function(aten.sym_size.int, (result_node, 0))
        recorder.guards.append(Condition(size, operator.eq, tensor.shape[0]))
    with recorder.fake_mode:
        return pytree.tree_map_only(
            torch.Tensor,
            lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device),
            value,
        )


def _flag(recorder: RecorderInterface, node: Any, *args: Any) -> Any:
    """Return the result of torch.equal or allclose of known values.

    Unless the values are constants, the program is guarded by the result.
    """
    answer = known_value(recorder, node)
    if answer.value is None:
        raise CaptureError(
            f"torch.{node.target._opname}() needs the values of tensors, which a static program does not"
            " have",
            KEEP_VALUE,
        )
    if answer.is_example:
        result = recorder.graph.call_function(node.target, node.args, node.kwargs)
        recorder.guards.append(Condition(result, operator.eq, answer.value))
    return answer.value


def _count(recorder: RecorderInterface, mask: Any) -> Any:
    """Return the number of set elements of a mask, or None if its values are unknown."""
    node = recorder.graph.call_function(aten.count_nonzero.default, (recorder._convert(mask)[0],))
    count = guarded_scalar(recorder, node)
    if count is None:
        recorder.graph.erase_node(node)
    return count


def _lstsq(recorder: RecorderInterface, node: Node, a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """Laid out as for a matrix of full rank, which alone has residuals."""
    with _disable_current_modes():
        full = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device).expand(a.shape)
        like = torch.linalg.lstsq(
            full, torch.zeros(b.shape, dtype=b.dtype, device=b.device), rcond, **node.kwargs
        )
    with recorder.fake_mode:
        return tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in like)


def _index(recorder: RecorderInterface, node: Any, x: Any, indices: Any) -> Any:
    """x[mask] is x[nonzero indices]: the number of set elements decides the shape."""
    index_tensors = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            index_tensors.append(index)
            continue
        count = _count(recorder, index) if index.dim() else None
        if count is None:
            return None
        with recorder.fake_mode:
            index_tensors += [
                torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())
            ]
    with recorder.fake_mode:
        return aten.index.Tensor(x, index_tensors)


def _select(recorder: RecorderInterface, node: Node, x: torch.Tensor, mask: Any) -> Any:
    count = _count(recorder, mask)
    if count is None:
        return None
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    with recorder.fake_mode:
        return torch.empty(count * (shape.numel() // max(1, mask.numel())), dtype=x.dtype, device=x.device)


_SHAPE_RULES: dict[Any, Callable[..., Any]] = {
    aten._pack_padded_sequence.default: _pack,
    aten._ctc_loss.default: _ctc,
    aten._ctc_loss.Tensor: _ctc,
    aten.index.Tensor: _index,
    aten.masked_select.default: _select,
    aten.nonzero.default: _by_values,
    aten.repeat_interleave.Tensor: _by_values,
    aten.bincount.default: _by_values,
    aten._unique2.default: _by_values,
    aten._unique.default: _by_values,
    aten.unique_consecutive.default: _by_values,
    aten.unique_dim.default: _by_values,
    aten.equal.default: _flag,
    aten.allclose.default: _flag,
    aten.linalg_lstsq.default: _lstsq,
}
