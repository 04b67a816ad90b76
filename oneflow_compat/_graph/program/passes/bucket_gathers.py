"""EXACT pass: parameters that are stored as shards are gathered in buckets.

For example, two gathers that fit into a bucket:

    a = wait(all_gather(w1)); y = mm(x, a); b = wait(all_gather(w2)); z = mm(y, b)
    a, b = all_gather_coalesced([w1, w2]); y = mm(x, wait(a)); z = mm(y, wait(b))

Every rank has to choose the same buckets. The programs of the ranks have the same collectives in the same
order. They differ in the padding of uneven shards only, so the choice must not depend on it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ..locations import Argument
from ..operators import communicates
from ..program import node_argument
from .cleanup import has_effect
from .patterns import Editor, base_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..program import Program
    from ..tensor_info import TensorInfo

BUCKET_BYTES = 4 * 2**20  # bytes of full tensors; a larger tensor is gathered by itself


@dataclass
class _Bucket:
    """Gathers that start together, where the first one was. `bytes`: of the full tensors."""

    nodes: list[Node] = field(default_factory=list)
    bytes: int = 0


def bucket_gathers(program: Program) -> Program:
    """Gather parameters together with those that the next operators need."""
    editor = Editor(program)
    if _writes_argument(editor):
        return program
    for bucket in _buckets(editor):
        if len(bucket.nodes) > 1:
            _gather_together(editor, bucket.nodes)
    return program


def _writes_argument(editor: Editor) -> bool:
    """Whether the program writes an argument of the call, which may be in the memory of a parameter."""
    placeholders = editor.graph.find_nodes(op="placeholder")
    return any(
        isinstance(slot, Argument) and not editor.untouched(node)
        for slot, node in zip(editor.program.slots, placeholders)
    )


def _buckets(editor: Editor) -> list[_Bucket]:
    """Return the buckets in order. A bucket has gathers of one phase, group and dtype."""
    buckets: list[_Bucket] = []
    latest: dict[Hashable, _Bucket] = {}
    for node in filter(_is_gather, list(editor.graph.nodes)):
        if not _can_start_early(editor, node):
            continue
        info: TensorInfo = node.meta["tensor"]
        key, size = (*node.args[1:], info.dtype, node.meta.get("phase")), _bytes(info)
        bucket = latest.get(key)
        if bucket is None or bucket.bytes + size > BUCKET_BYTES:
            bucket = latest[key] = _Bucket()
            buckets.append(bucket)
        bucket.nodes.append(node)
        bucket.bytes += size
    return buckets


def _is_gather(node: Node) -> bool:
    return communicates(node.target) and getattr(node.target, "_opname", "") == "all_gather_into_tensor"


def _bytes(info: TensorInfo) -> int:
    size = info.dtype.itemsize
    for length in info.shape:
        assert isinstance(length, int), "the pass sees programs of fixed sizes only"
        size *= length
    return size


def _can_start_early(editor: Editor, gather: Node) -> bool:
    """Whether a gather is of tensors of the state that nothing has written before.

    They may be cast, transposed or padded first, or prepared by any other operator without effects.
    """
    todo = list(gather.all_input_nodes)
    while todo:
        node = todo.pop()
        if node.op == "placeholder":
            if any(position < editor.order[gather] for position in editor.writes.get(node, ())):
                return False
        elif node.op != "call_function" or has_effect(node) or not _is_unwritten(editor, node, gather):
            return False
        todo += node.all_input_nodes
    return True


def _is_unwritten(editor: Editor, node: Node, gather: Node) -> bool:
    """Whether nothing writes the memory of a node before a gather; placeholders are asked by themselves."""
    base = base_of(node)
    return base.op == "placeholder" or all(w > editor.order[gather] for w in editor.writes.get(base, ()))


def _gather_together(editor: Editor, gathers: list[Node]) -> None:
    """Replace gathers by one of all their tensors, in the place of the first."""
    before = gathers[0]
    inputs = [node_argument(gather, 0) for gather in gathers]
    for node in inputs:
        _move_before(editor, node, before)
    several = torch.ops._c10d_functional.all_gather_into_tensor_coalesced.default
    together = editor.insert(before, several, (inputs, *before.args[1:]), info=None)
    results = [
        editor.insert(before, operator.getitem, (together, index), info=gather.meta["tensor"])
        for index, gather in enumerate(gathers)
    ]
    for gather, result in zip(gathers, results):
        gather.replace_all_uses_with(result)
        editor.graph.erase_node(gather)


def _move_before(editor: Editor, node: Node, before: Node) -> None:
    """Move a prepared shard, and what it is computed from, in front of a gather, if it comes after it."""
    if node.op == "placeholder" or editor.order[node] < editor.order[before]:
        return
    for source in node.all_input_nodes:
        _move_before(editor, source, before)
    before.prepend(node)
    editor.order[node] = editor.order[before] - 0.5
