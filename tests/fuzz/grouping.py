"""Many programs in one graph: they compile together, but each keeps what it has when it compiles alone."""

import contextlib
from unittest import mock

from torch._functorch import compile_utils

MARK = "program"


@contextlib.contextmanager
def programs_keep_their_constants():
    """Merge equal nodes inside a program only. Programs that share a constant would hide a write into it."""
    merge = compile_utils.fx_graph_cse

    def merge_in_each_program(graph):
        programs = connected(graph)
        for node in sources(graph):
            node.kwargs = {**node.kwargs, MARK: programs(node)}
        merged = merge(graph)
        for node in (*sources(graph), *sources(merged)):
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != MARK}
        return merged

    with mock.patch.object(compile_utils, "fx_graph_cse", merge_in_each_program):
        yield


def sources(graph):
    """Nodes that read nothing, such as constants: only these are equal in programs that share no tensor."""
    return [node for node in graph.nodes if node.op == "call_function" and not node.all_input_nodes]


def connected(graph):
    """A function from a node to the number of its program: the nodes that are connected, but by the
    output.
    """
    parent = {}

    def root(node):
        while (above := parent.get(node, node)) is not node:
            node = above
        return node

    for node in graph.nodes:
        if node.op != "output":
            for read in node.all_input_nodes:
                parent[root(read)] = root(node)
    numbers = {}
    return lambda node: numbers.setdefault(root(node), len(numbers))
