"""Print the shape of the code: size, line length, complexity, vague names, imports in functions, import
rings.

python tests/tools/shape.py            the figures
python tests/tools/shape.py --rings    each import ring in full
python tests/tools/shape.py --any      the parameters of type Any, by package
python tests/tools/shape.py --record   lower the ceilings of `any_parameters.json` to what is found
"""

import argparse
import ast
import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("oneflow_compat", "autotest")
LINE_LENGTH, COMPLEXITY = 110, 15
CEILINGS = Path(__file__).with_name("any_parameters.json")
VAGUE_NAMES = frozenset(
    (
        "found one made place kind way held taken known given wanted many first more other thing text"
        " number numbers"
    ).split()
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


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return the parameters that have a type: not `self`, and not *args and **kwargs."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument for argument in named if argument.annotation is not None]


def any_parameters(files: dict[str, Path]) -> dict[str, tuple[int, int]]:
    """Return {package: (parameters whose whole type is Any, all parameters)}.

    A package is a folder; below `_graph` each folder counts by itself.
    """
    bare: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for file in files.values():
        folders = file.relative_to(ROOT).parts[:-1]
        package = "/".join(folders[: 4 if "_graph" in folders else 2])
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTIONS):
                types = [ast.unparse(argument.annotation) for argument in parameters(node)]
                total[package] += len(types)
                bare[package] += types.count("Any")
    return {package: (bare[package], total[package]) for package in sorted(total)}


def any_ceilings() -> dict[str, int]:
    """Return {package: how many of its parameters may have the type Any}; a new package may have none."""
    return json.loads(CEILINGS.read_text(encoding="utf-8"))


def record_ceilings(counts: dict[str, tuple[int, int]]) -> None:
    """Lower the ceilings to the counts. Packages without such parameters have no row."""
    earlier = (
        any_ceilings() if CEILINGS.exists() else {package: bare for package, (bare, _) in counts.items()}
    )
    ceilings = {package: min(bare, earlier.get(package, 0)) for package, (bare, _) in counts.items()}
    rows = {package: ceiling for package, ceiling in ceilings.items() if ceiling}
    CEILINGS.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


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
    parser.add_argument("--any", action="store_true", help="print the parameters of type Any, by package")
    parser.add_argument("--record", action="store_true", help="lower the ceilings of parameters of type Any")
    arguments = parser.parse_args()
    files = modules()
    typed = any_parameters(files)
    if arguments.record:
        record_ceilings(typed)
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
    bare, total = (sum(counts) for counts in zip(*typed.values()))
    print(f"{bare:7}  parameters of type Any, of {total}")
    for package, (count, of) in typed.items() if arguments.any else ():
        print(f"         {count:4} of {of:4} {package}")
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
