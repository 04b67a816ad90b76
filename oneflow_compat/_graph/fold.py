"""The value of a tensor that build() makes of nothing but constants: a mask, a table of positions."""
from __future__ import annotations

import torch

from .program import written_args

_MOST_NODES = 2000


def constant_value(recorder, node):
    """The real tensor of `node`, or None when it depends on arguments, state, randomness or a write in place."""
    from .capture import _roots

    nodes = _ancestors(node)
    if nodes is None:
        return None
    for other in recorder.graph.nodes:
        if other.op == "call_function" and any(w in nodes for w in _roots(written_args(other))):
            return None
    values = {}
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        for n in (n for n in recorder.graph.nodes if n in nodes):
            if n.op == "get_attr":
                values[n] = recorder.constants[n.target]
            else:
                args, kwargs = torch.fx.node.map_arg((n.args, n.kwargs), values.__getitem__)
                values[n] = n.target(*args, **kwargs)
    return values[node]


def _ancestors(node):
    found, todo = set(), [node]
    while todo:
        n = todo.pop()
        if n in found:
            continue
        found.add(n)
        if len(found) > _MOST_NODES or n.op not in ("call_function", "get_attr"):
            return None
        if n.op == "call_function":
            random = isinstance(n.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in n.target.tags
            if random or not isinstance(n.target, torch._ops.OpOverload) and n.target.__module__ not in ("_operator", "operator"):
                return None
        todo.extend(n.all_input_nodes)
    return found
