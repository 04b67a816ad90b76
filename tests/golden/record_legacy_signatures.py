"""Record the signatures of OneFlow's job functions by version: record_legacy_signatures.py SPEC_FOLDER >
legacy_signatures.json

The folder has legacy_signatures.json (0.1 to 0.4, from the sources) and legacy_api.json (0.5). Left out:
methods of blobs, and the first forms of today's API, which only 0.4 has (flow.experimental): no `name=`, or
modules and readers.
"""

import ast
import json
import sys
from pathlib import Path

VERSIONS = ["0.1", "0.2", "0.3", "0.4", "0.5"]


def signatures(folder):
    """{function: {version: [signature]}} of the recorded facts."""
    table = {}
    for version, functions in json.loads((folder / "legacy_signatures.json").read_text()).items():
        for name, texts in functions.items():
            table.setdefault(name, {})[version[1:4]] = texts
    for entry in json.loads((folder / "legacy_api.json").read_text()):
        if entry["signature"] and entry["kind"] in ("function", "class", "method"):
            table.setdefault(entry["short"], {})["0.5"] = [entry["signature"]]
    return table


def is_first_form_of_today(name, versions, text):
    return set(versions) == {"0.4"} and ("name=" not in text or name.startswith(("nn.", "tmp.")))


def without_defaults(text):
    """The parameters of a signature, each with its stars; a default is marked by "=" only."""
    spec = ast.parse(f"def f{text}: pass").body[0].args
    plain = [a.arg for a in spec.posonlyargs + spec.args]
    required = len(plain) - len(spec.defaults)
    parts = [name + "=" * (i >= required) for i, name in enumerate(plain) if name != "self"]
    parts += [f"*{spec.vararg.arg}"] if spec.vararg else ["*"] if spec.kwonlyargs else []
    parts += [a.arg + "=" * (d is not None) for a, d in zip(spec.kwonlyargs, spec.kw_defaults)]
    return " ".join(parts + ([f"**{spec.kwarg.arg}"] if spec.kwarg else []))


def recorded(folder):
    """{function: {"0.1-0.4": parameters, "0.5": parameters}}."""
    table = {}
    for name, versions in sorted(signatures(folder).items()):
        name = name.removeprefix("flow.")
        if "<" in name:
            continue
        rows = {}
        for version in VERSIONS:
            texts = [t for t in versions.get(version, ()) if not is_first_form_of_today(name, versions, t)]
            texts = [t for t in texts if len(texts) == 1 or "name=" in t]
            for text in texts:
                rows.setdefault(without_defaults(text), []).append(version)
        spans = {v[0] if len(v) == 1 else f"{v[0]}-{v[-1]}": text for text, v in rows.items()}
        if spans:
            table[name] = spans
    return table


if __name__ == "__main__":
    rows = [
        f" {json.dumps(name)}: {json.dumps(spans)}" for name, spans in recorded(Path(sys.argv[1])).items()
    ]
    print("{\n" + ",\n".join(rows) + "\n}")
