"""Write oneflow_compat/_tables/aliases.py from the recorded OneFlow API.

    python tests/tools/make_aliases.py oneflow_api.json

A row is a name that both libraries have, whose parameters agree (or differ in nothing a caller sees),
and that no other table binds. Run again when the API list or the other tables change.
"""

import importlib
import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import oneflow
from oneflow import _bind

TIERS = {"documented", "exported", "deep-import"}
HEAD = '''"""Names that mean the same in OneFlow and torch: the very same object.

ALIASES[public namespace] = "name name ..."; the torch object is of the same name in torch.<namespace>.
Nothing is bound from here (a name without a row falls through to torch anyway): the rows say which
names are known to agree, for docs/api and for the test that proves each one by identity.
Written by tests/tools/make_aliases.py.
"""

ALIASES = {
'''


def find(path):
    parts = path.split(".")
    obj = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        obj = getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def main(api):
    rows = defaultdict(set)
    for r in json.loads(Path(api).read_text()):
        name, torch_name = r["name"], r.get("torch")
        if (
            r.get("tier") not in TIERS
            or not torch_name
            or r["kind"] in ("module", "method", "property")
            or torch_name != "torch" + name[len("oneflow") :]
        ):
            continue
        if r["signature_differs"] and r.get("difference_class") != ["minor"]:
            continue
        space, _, last = name.rpartition(".")
        if last.startswith("__") or last in _bind.function_rows(space) or last in _bind.rename_rows(space):
            continue
        ours, theirs = find(name), find(torch_name)
        if ours is None or ours is not theirs or isinstance(find(space), type):
            continue
        rows[space].add(last)
    out = [HEAD]
    for space in sorted(rows):
        lines = textwrap.wrap(" ".join(sorted(rows[space])), 150)
        body = "\n".join(
            f'        "{line}{" " if i < len(lines) - 1 else ""}"' for i, line in enumerate(lines)
        )
        out.append(f'    "{space}": (\n{body}),\n' if len(lines) > 1 else f'    "{space}": "{lines[0]}",\n')
    path = Path(oneflow.__file__).parent.resolve() / "_tables" / "aliases.py"
    path.write_text("".join(out) + "}\n")
    print(f"{sum(map(len, rows.values()))} rows in {len(rows)} namespaces -> {path.name}")


if __name__ == "__main__":
    main(sys.argv[1])
