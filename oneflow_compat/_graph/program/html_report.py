"""A program as one HTML page: modules, operators with shapes, and their times from a profiled run."""

import html
import operator
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from .codegen import ARITHMETIC, readable
from .html_summary import phase_of, summary
from .program import Program, Slot

Tree = dict[str, Any]  # nested by the path of a module; "" has the nodes of a module

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:#1b1b1b}
h1{font-size:1.4em}h2{font-size:1.05em;margin:.8em 0 .1em}
summary{cursor:pointer;padding:.15em .3em;border-radius:4px}
summary:hover{background:#eef3fa}
details{margin-left:1.1em}
table{border-collapse:collapse;margin:.2em 0 .6em 1.2em;font:12.5px ui-monospace,monospace}
td{padding:.1em .8em .1em 0;white-space:nowrap;vertical-align:top}td.n{text-align:right;color:#555}
.bar{display:inline-block;height:.7em;background:#5b8def;border-radius:2px}.phase{color:#8a5a00}.c{color:#666}
pre{background:#f6f8fa;padding:1em;overflow:auto;font-size:12px}
"""


def times(program: Program, values: Sequence[Any], repeats: int = 3) -> dict[str, float]:
    """Return {node name: seconds}, the minimum of `repeats` runs.

    The runs use copies of `values`, so that no state is changed.
    """
    on_cuda = any(isinstance(v, torch.Tensor) and v.is_cuda for v in values)
    with torch.random.fork_rng(range(torch.cuda.device_count()) if on_cuda else []):
        return _times(program, values, repeats, on_cuda)


def _times(program: Program, values: Sequence[Any], repeats: int, on_cuda: bool) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(repeats):
        env = {}
        copies = iter([v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values])
        with torch.no_grad():
            for node in program.graph.nodes:
                if node.op == "placeholder":
                    env[node] = next(copies)
                elif node.op == "get_attr":
                    env[node] = program.constants[node.target].clone()
                elif node.op == "call_function":
                    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
                    begin = time.perf_counter()
                    env[node] = node.target(*args, **kwargs)
                    if on_cuda:
                        torch.cuda.synchronize()
                    best[node.name] = min(best.get(node.name, 1e9), time.perf_counter() - begin)
    return best


def page(
    program: Program, seconds: dict[str, float] | None = None, writes: Sequence[str] | None = None
) -> str:
    """Return the page as HTML: the summary, then the details.

    `seconds` is the result of `times`; `writes`: what a call does outside the program.
    """
    seconds = seconds or {}
    groups = defaultdict(list)
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target not in (operator.getitem, *ARITHMETIC):
            groups[_path(node)].append(node)
    total = sum(seconds.values())
    tree: Tree = {}
    for path, nodes in groups.items():
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch.setdefault("", []).extend(nodes)
    head = (
        f"{program.count()} operators, {len(program.slots)} inputs,"
        f" {'training' if program.training else 'inference'}"
    )
    if total:
        head += f", {total * 1e3:.2f} ms in operators (each run alone by the aten interpreter)"
    inputs = "".join(
        f"<tr><td>{html.escape(s.role)}</td><td>{html.escape(s.name)}</td>"
        f"<td class=c>{html.escape(_slot(s))}</td></tr>"
        for s in program.slots
    )
    stages = "".join(
        f"<tr><td>{html.escape(n)}</td><td class=n>{t * 1e3:.1f} ms</td><td class=n>{c} operators</td></tr>"
        for n, t, c in program.history
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(program.name)}</title>"
        f"<style>{_STYLE}</style>"
        f"<h1>{html.escape(program.name)}</h1><p>{head}</p>"
        + summary(program, [node for nodes in groups.values() for node in nodes], seconds, writes)
        + f"<h2>Details</h2>{_block(tree, seconds, total)}"
        f"<details><summary>inputs</summary><table>{inputs}</table></details>"
        f"<details><summary>how it was made</summary><table>{stages}</table></details>"
        + f"<details><summary>as Python</summary><pre>{html.escape(readable(program))}</pre></details>"
    )


def _path(node: torch.fx.Node) -> tuple[str, ...]:
    phase, module = phase_of(node), node.meta.get("module") or ""
    return (phase, *module.split(".")) if module else (phase,)


def _slot(slot: Slot) -> str:
    return (
        "number"
        if slot.shape is None
        else f"{str(slot.dtype).removeprefix('torch.')}{list(slot.shape)}"
        + (" updated" if slot.written else "")
    )


def _time_of(tree: Tree, seconds: dict[str, float]) -> float:
    return sum(
        _time_of(v, seconds) if isinstance(v, dict) else sum(seconds.get(n.name, 0) for n in v)
        for v in tree.values()
    )


def _block(tree: Tree, seconds: dict[str, float], total: float) -> str:
    out = []
    if "" in tree:
        rows = []
        for node in tree[""]:
            info, spent = node.meta.get("tensor"), seconds.get(node.name)
            shape = (
                f"{str(info.dtype).removeprefix('torch.')}{list(info.shape)}"
                if info is not None and hasattr(info, "dtype")
                else ""
            )
            name = (
                node.target._schema.name.removeprefix("aten::")
                if hasattr(node.target, "_schema")
                else getattr(node.target, "__name__", str(node.target))
            )
            bar = (
                f"<span class=bar style='width:{max(1, 300 * spent / total):.0f}px'></span>"
                if spent and total
                else ""
            )
            rows.append(
                f"<tr><td title='{html.escape(str(node.meta.get('location') or ''))}'>"
                f"{html.escape(name)}</td>"
                f"<td class=c>{html.escape(shape)}</td>"
                f"<td class=n>{'' if spent is None else f'{spent * 1e6:.1f} µs'}</td><td>{bar}</td></tr>"
            )
        out.append(f"<table>{''.join(rows)}</table>")
    for name, inner in tree.items():
        if name:
            spent = _time_of(inner, seconds)
            note = f" <span class=c>{spent * 1e3:.2f} ms, {spent / total:.0%}</span>" if total else ""
            out.append(
                f"<details><summary>{html.escape(name)}{note}</summary>"
                f"{_block(inner, seconds, total)}</details>"
            )
    return "".join(out)
