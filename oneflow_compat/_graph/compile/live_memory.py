"""How much memory a program needs at each of its operators, for passes that keep tensors longer."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from torch.fx import Graph, Node

from ..program.program import is_view
from ..program.tensor_info import TensorInfo


class LiveMemory:
    """The bytes of the temporary tensors of a graph. A size that is not static counts as 0."""

    def __init__(self, graph: Graph) -> None:
        self._position = {node: index for index, node in enumerate(graph.nodes)}
        self._base: dict[Node, Node] = {}
        self._end: dict[Node, int] = {}  # of the memory that a node created
        for node, index in self._position.items():
            self._base[node] = base = self._base_of(node)
            for used in (base, *(self._base[n] for n in node.all_input_nodes)):
                self._end[used] = index
        self._live = self._live_bytes()
        self.peak = max(self._live, default=0)

    def _base_of(self, node: Node) -> Node:
        viewed = node.args[0] if node.op == "call_function" and is_view(node) else None
        if not isinstance(viewed, Node) or (node.target is operator.getitem and not is_view(viewed)):
            return node
        return self._base[viewed]

    def _live_bytes(self) -> list[int]:
        """Return the bytes that are alive while each node runs."""
        changes = [0] * (len(self._position) + 1)
        for node, end in self._end.items():
            changes[self._position[node]] += _bytes(node)
            changes[end + 1] -= _bytes(node)
        total, live = 0, list[int]()
        for change in changes[:-1]:
            total += change
            live.append(total)
        return live

    def fitting_part(self, nodes: Sequence[Node]) -> int:
        """Return how many consecutive nodes may keep what they read until the last of them has run, without
        more memory than the peak of the graph.
        """
        read: set[Node] = set()
        start = self._position[nodes[0]]
        for count, node in enumerate(nodes):
            index = self._position[node]
            kept = sum(_bytes(base) for base in read if self._end[base] < index)
            if self._live[index] + kept > self.peak:
                return count
            bases = (self._base[n] for n in node.all_input_nodes)
            read.update(base for base in bases if self._position[base] < start)
        return len(nodes)


def _bytes(node: Node) -> int:
    info: TensorInfo | None = node.meta.get("tensor")
    if node.op != "call_function" or info is None or info.device.type != "cpu":
        return 0
    sizes = [n for n in info.shape if type(n) is int]
    return math.prod(sizes) * info.dtype.itemsize if len(sizes) == len(info.shape) else 0
