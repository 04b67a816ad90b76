"""python -m oneflow.scan PATH...: which oneflow and torch names does this code use, and do they work here?

Reads the source (ast), never imports it. Each name is one of: works; differs (the row of
docs/differences.md says how); missing. Exit code 0 when nothing is missing, 1 otherwise, 2 when
nothing could be read.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

_ROOTS = ("oneflow", "torch")


class _Names(ast.NodeVisitor):
    """Collects the dotted oneflow.* and torch.* names of one file with their line numbers."""

    def __init__(self):
        self.bound: dict[str, str] = {}
        self.found: list[tuple[str, int]] = []

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.split(".")[0] in _ROOTS:
                if alias.asname:
                    self.bound[alias.asname] = alias.name
                else:
                    self.bound[alias.name.split(".")[0]] = alias.name.split(".")[0]
                if "." in alias.name:
                    self.found.append((alias.name, node.lineno))

    def visit_ImportFrom(self, node):
        if node.level == 0 and node.module and node.module.split(".")[0] in _ROOTS:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if alias.name == "*":
                    self.found.append((node.module, node.lineno))
                else:
                    self.bound[alias.asname or alias.name] = full
                    self.found.append((full, node.lineno))

    def visit_Attribute(self, node):
        chain, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self.bound:
            self.found.append((".".join([self.bound[inner.id], *reversed(chain)]), node.lineno))
        else:
            self.visit(inner)


def names_in(source: str | bytes, filename: str = "<source>") -> list[tuple[str, int]]:
    """[(dotted name, line)] of one source text; SyntaxError when it is not Python."""
    visitor = _Names()
    tree = ast.parse(source, filename)
    visitor.visit(tree)  # imports may stand below their first use inside functions: a second look finds those
    visitor.found.clear()
    visitor.visit(tree)
    return visitor.found


def judge(name: str) -> tuple[str, str]:
    """("works" | "differs" | "missing", detail) of a dotted name, looked up under oneflow."""
    parts = name.split(".")
    obj, path = importlib.import_module("oneflow"), "oneflow"
    for part in parts[1:]:
        try:
            obj = getattr(obj, part)
        except AttributeError as error:
            if isinstance(obj, ModuleType):
                try:
                    obj = importlib.import_module(f"{path}.{part}")
                except ImportError:
                    return "missing", str(error)
            elif isinstance(obj, type):
                return "missing", f"{path} has no attribute {part!r}"
            else:
                break  # an attribute of a value; what that has is known only when it runs
        except Exception as error:
            return "works", f"found; reading it here raised {type(error).__name__}"
        path += f".{part}"
    row = _difference(path)
    return ("differs", row) if row else ("works", "")


def _difference(path: str) -> str:
    from ._tables.dialect import DIALECT
    from ._tables.differences import DIFFERENCES

    rows = ", ".join(key for key, row in DIFFERENCES.items() if path in row["names"])
    if path not in DIALECT:
        return rows
    return (
        f"{rows}; set_dialect('torch') gives {DIALECT[path]}"
        if rows
        else f"OneFlow's; set_dialect('torch') gives {DIALECT[path]}"
    )


def read(paths) -> dict[str, list[tuple[str, int]]]:
    """{file: its names with their lines} of every .py file at or below `paths`; one that cannot be read is told on stderr."""
    names = {}
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            try:
                names[str(file)] = names_in(file.read_bytes(), str(file))
            except SyntaxError as error:
                print(f"{file}: not read, line {error.lineno}: {error.msg}", file=sys.stderr)
            except (OSError, ValueError) as error:
                print(f"{file}: not read: {error}", file=sys.stderr)
    return names


def scan(paths) -> dict[str, dict]:
    """{name: {"state", "detail", "uses": [(file, line)]}} of every .py file at or below `paths`."""
    return _judged(read(paths))


def _judged(names) -> dict[str, dict]:
    places = defaultdict(list)
    for file, found in names.items():
        for name, line in found:
            places[name].append((file, line))
    report = {}
    for name in sorted(places):
        state, detail = judge(name)
        report[name] = {"state": state, "detail": detail, "uses": places[name]}
    return report


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m oneflow.scan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--all", action="store_true", help="list the names that work, too")
    args = parser.parse_args(argv)
    gone = [p for p in args.paths if not Path(p).exists()]
    if gone:
        print(f"no such file or folder: {', '.join(gone)}", file=sys.stderr)
        return 2
    names = read(args.paths)
    if not names:
        print(f"no Python file could be read at {', '.join(args.paths)}", file=sys.stderr)
        return 2
    report = _judged(names)
    counts = Counter(row["state"] for row in report.values())
    for state in ("missing", "differs", "works") if args.all else ("missing", "differs"):
        for name, row in report.items():
            if row["state"] == state:
                file, line = row["uses"][0]
                print(
                    f"{state:8} {name:45} {len(row['uses']):4}x  first at {file}:{line}"
                    + (f"  ({row['detail']})" if row["detail"] else "")
                )
    print(
        f"{len(report)} names: {counts['works']} work, {counts['differs']} work with a difference, {counts['missing']} missing"
    )
    return 1 if counts["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
