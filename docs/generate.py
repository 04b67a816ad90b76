"""Write the generated pages: differences.md, environment.md, graph-options.md, api/*.md, from the tables.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 when one of them is not current
"""
import importlib
import inspect
import re
import sys
import types
from pathlib import Path

import oneflow
from oneflow import _env
from oneflow._tables.aliases import ALIASES
from oneflow._tables.c_ops import C_OPS
from oneflow._tables.dialect import DIALECT, EXTENDED
from oneflow._tables.differences import DIFFERENCES
from oneflow._tables.functions import FUNCTIONS
from oneflow._tables.graph_config import GRAPH_CONFIG
from oneflow._tables.knobs import KNOBS
from oneflow._tables.module import MODULE
from oneflow._tables.renames import RENAMES
from oneflow._tables.tensor import TENSOR
from oneflow_autotest import config as autotest_config

DOCS = Path(__file__).parent
# modules without rows in the tables that have a page of their own
PAGES = {f"oneflow.{name}" for name in (
    "Tensor", "amp", "asyncs", "boxing", "comm", "core", "env", "framework", "fx", "mock_torch", "nn.Module", "nn.graph", "nn.image", "nn.modules", "nn.optimizer",
    "nn.qat", "one_embedding", "optim", "optim.lr_scheduler", "remat", "sysconfig", "test_utils", "unittest", "utils.global_view", "utils.tensor", "utils.vision")}
NOTE = "<!-- written by docs/generate.py -->\n\n"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]) + "\n"


def differences():
    text = "# Differences\n\n" + NOTE
    text += ("Where OneFlow and torch disagree, or this package differs from OneFlow. Each row is data in `oneflow_compat/_tables/` with a test. "
             "`oneflow.set_dialect(\"torch\")` switches the names listed at the end to torch's meaning.\n\n")
    rows = [(f"`{key}`", ", ".join(f"`{n}`" for n in row["names"][:6]) + (" ..." if len(row["names"]) > 6 else ""), row["oneflow"], row["here"], row["reason"])
            for key, row in DIFFERENCES.items()]
    text += table(("id", "names", "OneFlow", "here", "why"), rows)
    text += "\n## Runtime knobs: remembered, without effect\n\n" + table(("name", "default", "why"), [(f"`oneflow.{k}`", repr(d), why) for k, (d, _, why) in KNOBS.items()])
    text += "\n## Names that `set_dialect` switches\n\n" + table(("name", "torch's"), [(f"`{k}`", f"`{v}`") for k, v in DIALECT.items()])
    text += "\nIn torch's dialect these functions and classes, which take all that torch's take and more, are torch's own too:\n"
    for space, names in EXTENDED.items():
        text += f"\n- `{space}`: " + ", ".join(f"`{n}`" for n in names.split()) + "\n"
    return text


def environment():
    def variables(rows):
        return table(("variable", "default", "meaning"), [(f"`{k}`", repr(d), m) for k, (d, m) in rows.items()])

    return ("# Environment variables\n\n" + NOTE + "Read when needed, never at import; nothing is written.\n\n" + variables(_env.VARIABLES)
            + "\n## AutoTest\n\nRead by the package `oneflow_autotest` ([autotest.md](autotest.md)).\n\n" + variables(autotest_config.VARIABLES))


def graph_options():
    return "# Options of `nn.Graph`\n\n" + NOTE + table(("`graph.config.`", "kind", "what it does, or why nothing follows"), [(f"`{k}`", kind, why) for k, (kind, why) in GRAPH_CONFIG.items()])


def signature(obj):
    """The signature Python knows, or the first line of a built-in's docstring where that is one."""
    try:
        return re.sub(r" at 0x\w+", "", str(inspect.signature(obj)))
    except (TypeError, ValueError):
        first = (getattr(obj, "__doc__", None) or "").strip().split("\n")[0]
        return found[1] if (found := re.match(r"\w+(\(.*\)(?: -> .*)?)$", first)) else ""


def find(root, parts):
    """The object behind a dotted path and what holds it; (None, None) where a part exists only on instances or not at all."""
    obj, path, parent = importlib.import_module(root), root, None
    for part in parts:
        path, parent = f"{path}.{part}", obj
        try:
            obj = inspect.getattr_static(obj, part) if isinstance(obj, type) else getattr(obj, part)
        except (AttributeError, RuntimeError, AssertionError):
            try:
                obj = importlib.import_module(path)
            except (ImportError, AttributeError):
                try:  # a function may hide the module of its name
                    obj = getattr(importlib.import_module(path.rpartition(".")[0]), part)
                except (ImportError, AttributeError):
                    return None, None
    return obj, parent


def table_kinds():
    """{public name: what its row says}; names without a row are looked at."""
    kinds = {}
    for namespace in namespaces():
        rows = {n: "same as torch" for n in ALIASES.get(namespace, "").split()}
        rows.update({n: "torch's, OneFlow's argument names" for n in RENAMES.get(namespace, {})})
        for names in FUNCTIONS.get(namespace, {}).values():
            rows.update({n.partition("=")[0]: "own" for n in names.split()})
        if namespace == "oneflow._C":
            rows.update({n.partition("=")[0]: "own" for names in C_OPS.values() for n in names.split()})
        kinds.update({f"{namespace}.{n}": kind for n, kind in rows.items()})
    kinds.update({f"oneflow.{n}": f"ignored: {why}" for n, (_, _, why) in KNOBS.items()})
    for owner in ("oneflow.nn.Graph.config", "oneflow.nn.graph.graph_config.GraphConfig"):
        kinds.update({f"{owner}.{n}": f"{kind}: {why}" for n, (kind, why) in GRAPH_CONFIG.items()})
    for owner, rows in (("oneflow.Tensor", TENSOR), ("oneflow.nn.Module", MODULE)):
        kinds.update({f"{owner}.{n}": f"added: {why}" for n, (_, _, why) in rows.items()})
    return kinds


def namespaces():
    return sorted((set(ALIASES) | set(FUNCTIONS) | set(RENAMES) | {"oneflow._C"}) - {"oneflow.Tensor", "oneflow.nn.Module"})


def kind_of(name, obj, parent):
    """What a name is that no row of the tables speaks of."""
    if parent is None:
        return "made when an instance is" if find("oneflow", name.split(".")[1:-1])[1] is not None else "missing"
    if isinstance(obj, types.ModuleType):
        return "module"
    theirs, _ = find("torch", name.split(".")[1:])
    from_torch = obj is theirs or (getattr(obj, "__module__", None) or getattr(parent, "__module__", None) or "").split(".")[0] == "torch"
    return "same as torch" if from_torch else "own"


def api_pages():
    """{page: text}: every name of names.txt and of the tables, on the page of its module."""
    by_name = {}
    for key, row in DIFFERENCES.items():
        for name in row["names"]:
            by_name.setdefault(name, []).append(key)
    kinds = table_kinds()
    owners = sorted(set(namespaces()) | PAGES, key=len, reverse=True)
    names = {*kinds, *(DOCS / "api" / "names.txt").read_text(encoding="utf-8").split()}
    for page in PAGES:
        module, _ = find("oneflow", page.split(".")[1:])
        names.update(f"{page}.{n}" for n in getattr(module, "__all__", ()) if (getattr(getattr(module, n, None), "__module__", None) or "").startswith("oneflow."))
    rows = {}
    for name in sorted(names, key=lambda n: (n.lower(), n)):
        page = next((o for o in owners if name.startswith(o + ".")), "oneflow")
        obj, parent = find("oneflow", name.split(".")[1:])
        kind = kinds.get(name) or kind_of(name, obj, parent)
        if kind == "own" and "_kernels" in (getattr(obj, "__module__", None) or ""):
            kind = "custom operator"
        ids = "".join(f", `{i}`" for i in by_name.get(name, []))[2:]
        called = signature(obj) if callable(obj) and kind != "module" else ""
        rows.setdefault(page, []).append((f"`{name[len(page) + 1:]}`", f"`{called}`" if called else "", kind + (f"; differs: {ids}" if ids else "")))
    return {page: f"# `{page}`\n\n{NOTE}{len(found)} names.\n\n" + table(("name", "signature", "how"), found) for page, found in rows.items()}


SPEED_ROWS = {  # model in performance.md: its name in the picture
    "MLP 3x64, 16": "MLP", "LSTM, 2 layers of 64, 2": "LSTM", "GRU, 2 layers of 64, 2": "GRU", "Mamba, 2 layers of 64, 2": "Mamba",
    "GPT-2-like, 4 layers of 128, 2": "GPT-2-like", "BERT-like, 4 layers of 128, 2": "BERT-like", "T5-like, 2 + 2 layers of 128, 2": "T5-like",
    "MobileNetV2, 2": "MobileNetV2", "ResNet-50, 2": "ResNet-50",
}


def speed_picture():
    """The bars of the README, as SVG: speed over torch eager, from the first table of performance.md."""
    figures = {}
    for line in (DOCS / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if cells[0] in SPEED_ROWS and cells[0] not in figures:
            eager, compiled, _aten, inductor = map(float, cells[1:5])
            figures[cells[0]] = (eager / compiled, eager / inductor)
    scale, left, row = 40, 110, 34
    height = 44 + row * len(figures)
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {height}" font-family="sans-serif" font-size="13" fill="#888">',
            "<title>Training steps per second relative to PyTorch eager, one CPU core</title>",
            f'<rect x="{left}" y="8" width="12" height="12" fill="#e8743b"/><text x="{left + 18}" y="18">nn.Graph, inductor</text>',
            f'<rect x="{left + 160}" y="8" width="12" height="12" fill="#9aa5b1"/><text x="{left + 178}" y="18">best torch.compile</text>',
            f'<text x="{left + 320}" y="18">(times the speed of PyTorch eager)</text>']
    for index, (model, (compiled, graph)) in enumerate(figures.items()):
        top = 34 + index * row
        text.append(f'<text x="{left - 8}" y="{top + 18}" text-anchor="end">{SPEED_ROWS[model]}</text>')
        for offset, ratio, color in ((0, graph, "#e8743b"), (14, compiled, "#9aa5b1")):
            text.append(f'<rect x="{left}" y="{top + offset}" width="{ratio * scale:.0f}" height="12" fill="{color}"/>'
                        f'<text x="{left + ratio * scale + 6:.0f}" y="{top + offset + 11}">{ratio:.1f}</text>')
    text.append(f'<line x1="{left + scale}" y1="30" x2="{left + scale}" y2="{height - 6}" stroke="#888" stroke-dasharray="3 3"/></svg>')
    return "\n".join(text) + "\n"


def pages():
    out = {"differences.md": differences(), "environment.md": environment(), "graph-options.md": graph_options(), "images/speed.svg": speed_picture()}
    found = api_pages()
    out.update({f"api/{page}.md": found[page] for page in sorted(found)})
    count = sum(text.count("\n| `") for text in found.values())
    out["api/README.md"] = (f"# API\n\n{NOTE}{count} names: OneFlow's public ones of 0.7 to 1.0, and those of the tables. \"Same as torch\" is torch's own object; \"own\" is written here; "
                            "a custom operator has kernels in csrc/; an ignored setting is remembered and has no effect; \"differs\" names rows of [differences](../differences.md).\n\n"
                            + "\n".join(f"- [`{p[4:-3]}`]({p[4:]})" for p in out if p.startswith("api/")) + "\n")
    return out


def main(argv):
    if set(argv) - {"--check"}:
        print(__doc__.strip())
        return 0 if set(argv) <= {"-h", "--help"} else 2
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{len(stale)} pages {'are not current' if '--check' in argv else 'written'}: {', '.join(stale) or 'none'} (oneflow {oneflow.__version__})")
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
