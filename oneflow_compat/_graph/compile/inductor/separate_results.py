"""Results of a region that lie in memory of their own wherever they do so in eager mode.

Inductor merges equal operators and removes operators that copy. Then a result may be an input, or two results
one buffer. The update writes parameters and gradients in place, so it would read what it has already written:
the gradients of `torch.dot(a, b)` are `1 * b` and `1 * a`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

from ...program.program import roots

if TYPE_CHECKING:
    from torch.fx import Graph, Node


@contextlib.contextmanager
def results_apart(captured: Graph) -> Iterator[None]:
    """Let inductor copy each result whose buffer is an input's or another result's, but not in `captured`."""
    from torch._inductor.graph import GraphLowering

    captured_results: Any = captured.output_node().args[0]
    bases = [_base(result) for result in captured_results]
    output = GraphLowering.output

    def output_apart(self: GraphLowering, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = args[0]
        if type(self) is GraphLowering:  # no graph of a branch or loop
            args = (_apart(results, bases, self.graph_inputs.keys() | self.constants.keys()), *args[1:])
        return output(self, target, args, kwargs)

    with mock.patch.object(GraphLowering, "output", output_apart):
        yield


def _apart(results: Sequence[Any], bases: Sequence[Node], inputs: set[str]) -> list[Any]:
    """Return the results as inductor's buffers, with copies of those that must be apart."""
    from torch._inductor.ir import ExternKernel, TensorBox

    separate = []
    owners: dict[str, Node] = {}  # buffer -> the captured memory that its first result is a view of
    for result, base in zip(results, bases):
        if isinstance(result, TensorBox):
            name = ExternKernel.realize_input(result).get_name()
            is_shared = name in inputs and base.op == "call_function"
            if is_shared or owners.setdefault(name, base) is not base:
                result = ExternKernel.copy_input(result)
        separate.append(result)
    return separate


def _base(node: Node) -> Node:
    return list(roots([node]))[-1]
