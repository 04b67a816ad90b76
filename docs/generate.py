"""Write the generated pages: differences.md, environment.md, graph-options.md, api/*.md, from the tables.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 when one of them is not current
"""
import importlib
import inspect
import sys
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

DOCS = Path(__file__).parent
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
    return "# Environment variables\n\n" + NOTE + "Read when needed, never at import; nothing is written.\n\n" + table(
        ("variable", "default", "meaning"), [(f"`{k}`", repr(d), m) for k, (d, m) in _env.VARIABLES.items()])


def graph_options():
    return "# Options of `nn.Graph`\n\n" + NOTE + table(("`graph.config.`", "kind", "what it does, or why nothing follows"), [(f"`{k}`", kind, why) for k, (kind, why) in GRAPH_CONFIG.items()])


def signature(obj):
    try:
        return str(inspect.signature(obj))
    except (TypeError, ValueError):
        return ""


def api_page(namespace):
    module = importlib.import_module(namespace)
    by_name = {}
    for key, row in DIFFERENCES.items():
        for name in row["names"]:
            by_name.setdefault(name, []).append(key)
    kinds = {n: "same as torch" for n in ALIASES.get(namespace, "").split()}
    kinds.update({n: "torch's, OneFlow's argument names" for n in RENAMES.get(namespace, {})})
    for names in FUNCTIONS.get(namespace, {}).values():
        kinds.update({n.partition("=")[0]: "own" for n in names.split()})
    if namespace == "oneflow._C":
        kinds.update({n.partition("=")[0]: "own" for names in C_OPS.values() for n in names.split()})
    rows = []
    for name in sorted(kinds, key=str.lower):
        obj = getattr(module, name)
        ids = by_name.get(f"{namespace}.{name}", [])
        note = kinds[name] + (f"; differs: {', '.join(f'`{i}`' for i in ids)}" if ids else "")
        rows.append((f"`{name}`", f"`{signature(obj)}`" if signature(obj) and kinds[name] != "same as torch" else "", note))
    return f"# `{namespace}`\n\n{NOTE}{len(rows)} names.\n\n" + table(("name", "signature", "how"), rows)


def tensor_page():
    rows = [(f"`{n}`", kind, why) for n, (kind, _, why) in TENSOR.items()]
    more = [(f"`{n}`", kind, why) for n, (kind, _, why) in MODULE.items()]
    return ("# `oneflow.Tensor` and `oneflow.nn.Module`\n\n" + NOTE + "They are `torch.Tensor` and `torch.nn.Module`. What OneFlow adds to them; nothing else changes.\n\n"
            + table(("Tensor", "kind", "what"), rows) + "\n" + table(("Module", "kind", "what"), more))


def pages():
    out = {"differences.md": differences(), "environment.md": environment(), "graph-options.md": graph_options(), "api/Tensor.md": tensor_page()}
    namespaces = sorted(set(ALIASES) | set(FUNCTIONS) | set(RENAMES) | {"oneflow._C"})
    for namespace in namespaces:
        if namespace not in ("oneflow.Tensor", "oneflow.nn.Module"):
            out[f"api/{namespace}.md"] = api_page(namespace)
    out["api/README.md"] = "# API\n\n" + NOTE + "\n".join(f"- [`{p[4:-3]}`]({p[4:]})" for p in out if p.startswith("api/")) + "\n"
    return out


def main(argv):
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
