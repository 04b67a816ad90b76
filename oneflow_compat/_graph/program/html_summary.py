"""The summary at the top of the HTML page of a program: time by phase, module and source line, and memory."""

from __future__ import annotations

import html
import linecache
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from .program import Program

NUMBERS = "numbers"  # operators without a phase: Python numbers, such as step counters
_MOST_ROWS = 12
Nodes = Sequence[torch.fx.Node]


def phase_of(node: torch.fx.Node) -> str:
    return node.meta.get("phase") or NUMBERS


def summary(
    program: Program, nodes: Nodes, seconds: Mapping[str, float], writes: Iterable[str] | None
) -> str:
    """Return the HTML of the summary. `writes`: what a call does outside the program, if that is known."""
    tables = [
        _times("Phases", "phase", nodes, seconds, phase_of),
        _times("Modules (forward)", "module", nodes, seconds, _module_of),
        _times("Source lines", "line", nodes, seconds, _source_of),
        _table("Memory", [(role, _mib(size)) for role, size in _memory(program).items()]),
    ]
    if writes is not None:
        rows = [(line,) for line in writes] or [("nothing: a call computes its results and updates state",)]
        tables.append(_table("What a call also does in Python", rows))
    return "".join(tables)


def _times(
    title: str,
    subject: str,
    nodes: Nodes,
    seconds: Mapping[str, float],
    key_of: Callable[[torch.fx.Node], str],
) -> str:
    """Return a table of the groups with the longest times, or the most operators if nothing was timed."""
    spent: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for node in nodes:
        key = key_of(node)
        if key:
            spent[key] += seconds.get(node.name, 0.0)
            counts[key] += 1
    total = sum(seconds.values())
    keys = sorted(counts, key=lambda key: (spent[key], counts[key]), reverse=True)
    rows = [(subject, "time", "", "operators")] if keys else []
    for key in keys[:_MOST_ROWS]:
        time = f"{spent[key] * 1e3:.2f} ms" if total else ""
        share = f"{spent[key] / total:.0%}" if total else ""
        rows.append((key, time, share, str(counts[key])))
    if len(keys) > _MOST_ROWS:
        rest = keys[_MOST_ROWS:]
        time = f"{sum(spent[key] for key in rest) * 1e3:.2f} ms" if total else ""
        rows.append((f"{len(rest)} more", time, "", str(sum(counts[key] for key in rest))))
    return _table(title, rows)


def _table(title: str, rows: Iterable[Sequence[str]]) -> str:
    lines = (
        f"<tr><td>{html.escape(row[0])}</td>"
        + "".join(f"<td class=n>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<h2>{title}</h2><table>{''.join(lines)}</table>"


def _module_of(node: torch.fx.Node) -> str:
    return str(node.meta.get("module") or "") if node.meta.get("phase") == "forward" else ""


def _source_of(node: torch.fx.Node) -> str:
    """Return `train.py:12 return self.fc(x)`. The update has no line of its own."""
    location = node.meta.get("location")
    if location is None or node.meta.get("phase") == "update":
        return ""
    name, line, _ = location
    code = linecache.getline(name, line).strip()
    return f"{name.rsplit('/', 1)[-1]}:{line} {code}"


def _memory(program: Program) -> dict[str, int]:
    """Return bytes of the inputs by role, and the peak of the results that are alive together.

    Aliases of other tensors take no memory. Sizes that are symbols count with 1.
    """
    sizes: dict[str, int] = defaultdict(int)
    for slot in program.slots:
        if slot.shape is not None and slot.dtype is not None:
            sizes[_ROLES.get(slot.role, slot.role)] += _bytes(slot.shape, slot.dtype)
    sizes["results of operators, at most at once"] = _peak(program)
    return sizes


_ROLES = {
    "arg": "arguments",
    "param": "parameters",
    "buffer": "buffers",
    "optim": "optimizer state",
    "free": "other tensors that build() reads",
}


def _bytes(shape: Sequence[int | str], dtype: torch.dtype) -> int:
    return math.prod(n if isinstance(n, int) else 1 for n in shape) * dtype.itemsize


def _peak(program: Program) -> int:
    base: dict[torch.fx.Node, torch.fx.Node] = {}  # alias -> the node whose memory it is
    last: dict[torch.fx.Node, int] = {}
    nodes = list(program.graph.nodes)
    for index, node in enumerate(nodes):
        owner = node
        if node.op == "call_function" and _is_alias(node) and node.all_input_nodes:
            owner = base[node.all_input_nodes[0]]
        base[node] = owner
        for used in (node, *node.all_input_nodes):
            last[base[used]] = index
    freed: dict[int, int] = defaultdict(int)
    alive = peak = 0
    for index, node in enumerate(nodes):
        info = node.meta.get("tensor")
        if node.op == "call_function" and base[node] is node and hasattr(info, "dtype"):
            size = _bytes(info.shape, info.dtype)
            alive, peak = alive + size, max(peak, alive + size)
            freed[last[node]] += size
        alive -= freed[index]
    return peak


def _is_alias(node: torch.fx.Node) -> bool:
    """Whether the result is memory of an input: a view, or the input that was written in place."""
    source = node.args[0] if node.target is operator.getitem and node.args else node
    schema = getattr(getattr(source, "target", None), "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"
