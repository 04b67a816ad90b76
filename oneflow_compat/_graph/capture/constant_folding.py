"""The value of a tensor that build() makes of nothing but constants: a mask, a table of positions."""

from __future__ import annotations

import torch

from ..program.program import roots, written_args

_MOST_NODES = 2000


def constant_value(recorder, node):
    """The real tensor of `node`, or None when it depends on arguments, state or randomness."""
    nodes = _ancestors(node)
    if nodes is None:
        return None
    for other in recorder.graph.nodes:
        if other.op == "call_function" and any(w in nodes for w in roots(written_args(other))):
            return _replayed(recorder, node)
    values = {}
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        for n in (n for n in recorder.graph.nodes if n in nodes):
            if n.op == "get_attr":
                values[n] = recorder.constants[n.target]
            else:
                args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), values.__getitem__)
                values[n] = n.target(*args, **kwargs)
    return values[node]


def _replayed(recorder, node):
    """constant_value of a tensor that was written in place: everything that wrote it runs again."""
    from ..program.scalar_guards import part

    small, copies, inputs = part(recorder.graph, {node})
    if (
        inputs
        or len(small.nodes) > _MOST_NODES
        or not all(n.op == "get_attr" or _plain(n) for n in small.nodes)
    ):
        return None
    small.output(copies[node])
    module = torch.nn.Module()
    for name, constant in recorder.constants.items():
        module.register_buffer(name, constant)
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        return torch.fx.Interpreter(torch.fx.GraphModule(module, small)).run()


def _plain(node):
    """Return True if the inputs of the operator determine its result."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target.__module__ in ("_operator", "operator")
    return torch.Tag.nondeterministic_seeded not in node.target.tags


def _ancestors(node):
    ancestors, todo = set(), [node]
    while todo:
        n = todo.pop()
        if n in ancestors:
            continue
        ancestors.add(n)
        if len(ancestors) > _MOST_NODES or n.op not in ("call_function", "get_attr"):
            return None
        if n.op == "call_function" and not _plain(n):
            return None
        todo.extend(n.all_input_nodes)
    return ancestors
