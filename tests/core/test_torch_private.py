"""The ledger of private names of torch is complete: each name exists in this torch, and the sources use no
other.
"""

import ast
import functools
import importlib
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from oneflow._upstream.hooks import HOOKS
from oneflow._upstream.versions import torch_is_before

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for folder in ("oneflow_compat", "autotest")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "_tables" not in file.parts and "_upstream" not in file.parts
]


def is_private(path: str) -> bool:
    return any(name.startswith("_") and not name.startswith("__") for name in path.split("."))


def step(owner, path: str):
    """The attribute at the end of a path, or the module of that path."""
    value = getattr(owner, path.rpartition(".")[2], None)
    if value is None and isinstance(owner, ModuleType):
        try:
            value = importlib.import_module(path)
        except ImportError:
            return None
    return value


@functools.cache
def symbol(path: str) -> tuple[str, bool]:
    """The symbol that a dotted path of a source file names, and whether it is a module.

    It ends at the first object that is no module, or below that at a private attribute of a class.
    """
    value, symbol_path = torch, "torch"
    for name in path.split(".")[1:]:
        if not isinstance(value, ModuleType) and (not isinstance(value, type) or is_private(symbol_path)):
            break
        symbol_path = f"{symbol_path}.{name}"
        value = step(value, symbol_path)
    return symbol_path, isinstance(value, ModuleType)


def chains(tree: ast.AST, names: dict):
    """Dotted paths of attributes in a file, through the names that its imports bind.

    An owner and a name that a call receives side by side are such a path, too: getattr(torch._C, "_nn").
    """
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            yield from path_of(node, names)
        elif isinstance(node, ast.Call):
            for owner, name in itertools.pairwise(node.args):
                if isinstance(name, ast.Constant) and str(name.value).isidentifier():
                    yield from (f"{path}.{name.value}" for path in path_of(owner, names))


def path_of(node: ast.AST, names: dict):
    """The dotted path of an expression, if its first name is one of `names`."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in names:
        yield ".".join((names[node.id], *reversed(attributes)))


def private_symbols(source: str) -> set[str]:
    tree = ast.parse(source)
    names, paths = {"torch": "torch"}, set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "torch"
        ):
            paths |= {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if alias.name.split(".")[0] == "torch"]
            paths |= {alias.name for alias in aliases}
            names |= {alias.asname: alias.name for alias in aliases if alias.asname}
    symbols = {symbol(path) for path in {*paths, *chains(tree, names)} if is_private(path)}
    private_paths = {path for path, _ in symbols if is_private(path) and path != "torch._C"}
    modules = {path for path, is_module in symbols if is_module}
    return {
        path
        for path in private_paths
        if not (path in modules and any(other.startswith(f"{path}.") for other in private_paths))
    }


def test_the_search_finds_private_names_through_imports_and_attributes():
    source = (
        "import torch\nfrom torch.utils import _pytree as tree\ntree.tree_map\ntorch.nn.Linear\n"
        "x._version\ntorch._C._nn.linear.__name__\ntorch.Tensor._nnz(x)\n"
        "getattr(torch._C._autograd, '_profiler_enabled', None)\n"
    )
    assert private_symbols(source) == {
        "torch._C._autograd._profiler_enabled",
        "torch.utils._pytree.tree_map",
        "torch._C._nn.linear",
        "torch.Tensor._nnz",
    }


def test_the_sources_use_no_private_name_without_a_row():
    used = {path: file for file in SOURCES for path in private_symbols(file.read_text(encoding="utf-8"))}
    stray = {path: str(file.relative_to(ROOT)) for path, file in used.items() if path not in HOOKS}
    assert not stray, "add rows to oneflow_compat/_upstream/hooks.py for " + ", ".join(
        f"{path} ({file})" for path, file in sorted(stray.items())
    )


def test_each_row_is_used():
    words = {word for file in SOURCES for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    assert not [path for path in HOOKS if path.rpartition(".")[2] not in words]


@pytest.mark.parametrize("path", [path for path in HOOKS if not path.startswith("torch.testing")])
def test_each_name_exists_in_this_torch(path):
    if HOOKS[path].since and torch_is_before(HOOKS[path].since):
        pytest.skip(f"torch has it since {HOOKS[path].since}")
    owner, _, name = path.rpartition(".")
    home, home_path = torch, "torch"
    for part in owner.split(".")[1:]:
        home_path = f"{home_path}.{part}"
        home = step(home, home_path)
    assert hasattr(home, name) or importlib.import_module(path)


@pytest.mark.parametrize("guard", sorted({hook.guard for hook in HOOKS.values()}))
def test_the_guard_of_a_row_exists(guard):
    assert (ROOT / guard).exists()
