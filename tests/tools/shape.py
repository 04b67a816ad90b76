"""Print the shape of the code: size, line length, complexity, vague names, imports in functions, import rings.

python tests/tools/shape.py            the figures
python tests/tools/shape.py --rings    each import ring in full
"""

import argparse
import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("oneflow_compat", "autotest")
LINE_LENGTH, COMPLEXITY = 110, 15
VAGUE_NAMES = frozenset(
    "found one made place kind way held taken known given wanted many first more other thing text number numbers".split()
)
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.IfExp, ast.comprehension, ast.Assert)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> dict[str, Path]:
    """Return {dotted name: file} of every module of the packages."""
    names = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            names[name.removesuffix(".__init__")] = file
    return names


def imported(name: str, is_package: bool, node: ast.ImportFrom, known: dict[str, Path]) -> set[str]:
    """Return the modules of ours that a relative import names."""
    parents = name.split(".") if is_package else name.split(".")[:-1]
    base = ".".join(parents[: len(parents) - node.level + 1] + ([node.module] if node.module else []))
    targets = {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return {
        target
        for target in targets
        if target in known and target != name and not name.startswith(target + ".")
    }


def for_type_checkers(nodes: list[ast.AST]) -> set[ast.AST]:
    """Return the statements under `if TYPE_CHECKING:`, which no program runs."""
    conditions = [node for node in nodes if isinstance(node, ast.If)]
    return {
        statement
        for node in conditions
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
    }


def complexity(function: ast.AST) -> int:
    """Count the branches of a function, as McCabe's complexity does, with boolean operators."""
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + operators + sum(isinstance(node, BRANCHES) for node in nodes)


def imports_of_ours(nodes: list[ast.AST]) -> list[ast.ImportFrom]:
    return [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def imports_by_module(files: dict[str, Path]) -> dict[str, set[str]]:
    """Return {module: modules that it imports}. Imports in functions and for type checkers count."""
    edges = {}
    for name, file in files.items():
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        targets = (imported(name, file.name == "__init__.py", node, files) for node in imports_of_ours(nodes))
        edges[name] = set().union(*targets)
    return edges


def seam(package: str, files: dict[str, Path]) -> set[str] | None:
    """Return the modules that the `SEAM` of a package names, in full; None for a package without a seam."""
    for node in ast.parse(files[package].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SEAM"]:
            return {f"{package}.{name}" for name in ast.literal_eval(node.value)}
    return None


def entered_modules(package: str, edges: dict[str, set[str]]) -> set[str]:
    """Return the modules of a package that modules outside of it import."""
    inside = package + "."
    return {
        target
        for module, targets in edges.items()
        if module != package and not module.startswith(inside)
        for target in targets
        if target.startswith(inside)
    }


def rings(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other, the largest first."""
    reach = {}
    for start in edges:
        seen, queue = set(), list(edges[start])
        while queue:
            module = queue.pop()
            if module not in seen:
                seen.add(module)
                queue += edges.get(module, ())
        reach[start] = seen
    groups = {frozenset({a, *(b for b in reach[a] if a in reach[b])}) for a in reach if a in reach[a]}
    return sorted((sorted(group) for group in groups), key=len, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rings", action="store_true", help="print each import ring in full")
    arguments = parser.parse_args()
    files = modules()
    counts: Counter[str] = Counter(files=len(files))
    complexities = []
    for name, file in files.items():
        source = file.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(source)))
        imports = imports_of_ours(nodes)
        unexecuted = for_type_checkers(nodes)
        counts["statements"] += sum(isinstance(node, ast.stmt) for node in nodes)
        counts["long lines"] += sum(len(line) > LINE_LENGTH for line in source.splitlines())
        counts["imports of ours in functions"] += sum(
            node.col_offset > 0 and node not in unexecuted for node in imports
        )
        stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        stored += [node.arg for node in nodes if isinstance(node, ast.arg)]
        counts["vague names bound"] += sum(identifier in VAGUE_NAMES for identifier in stored)
        complexities += [
            (complexity(node), f"{name}.{node.name}") for node in nodes if isinstance(node, FUNCTIONS)
        ]
    for label in ("files", "statements", "long lines", "imports of ours in functions", "vague names bound"):
        print(f"{counts[label]:7}  {label}")
    complexities.sort(reverse=True)
    print(f"{sum(value > COMPLEXITY for value, _ in complexities):7}  functions over complexity {COMPLEXITY}")
    for value, function in complexities[:5]:
        print(f"         {value:4} {function}")
    import_rings = rings(imports_by_module(files))
    print(f"{len(import_rings):7}  import rings, of {[len(ring) for ring in import_rings]} modules")
    for ring in import_rings if arguments.rings else ():
        print("         ring:", ", ".join(ring))


if __name__ == "__main__":
    main()
