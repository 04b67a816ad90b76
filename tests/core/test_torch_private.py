"""The list of private torch hooks is true: each exists, and nothing else is used."""
import importlib
import re
from pathlib import Path

import pytest
from oneflow._upstream.hooks import HOOKS

ROOT = Path(__file__).parents[2]
NOT_HOOKS = ("torch._foreach_", "torch.__")  # a family listed once; version and file


def resolve(path):
    parts, obj = path.split("."), importlib.import_module("torch")
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(obj, part):
            importlib.import_module(".".join(parts[:i]))
        obj = getattr(obj, part)
    return obj


@pytest.mark.parametrize("path", [p for p in HOOKS if not p.startswith("torch.testing")])
def test_exists_in_this_torch(path):
    assert resolve(path) is not None


@pytest.mark.parametrize("path", sorted({guard for _, _, guard in HOOKS.values()}))
def test_its_guard_exists(path):
    assert (ROOT / path).exists()


def test_the_sources_use_no_other_private_name():
    names = re.compile(r"(?:from\s+)?\b(torch(?:\.[A-Za-z]\w*)*\._[A-Za-z]\w*(?:\.\w+)*)")
    stray = []
    for folder in ("oneflow_compat", "autotest"):
        for file in (ROOT / folder).rglob("*.py"):
            if "_tables" in file.parts or file.name == "_upstream/hooks.py":
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for name in names.findall(line.partition("#")[0]):
                    if name == "torch._C" or name.startswith(NOT_HOOKS):
                        continue
                    if not any(name == h or name.startswith(h + ".") for h in HOOKS):
                        stray.append(f"{file.relative_to(ROOT)}:{number}: {name}")
    assert not stray, "\n".join(stray)


@pytest.mark.parametrize("path", HOOKS)
def test_it_is_used_where_the_row_says(path):
    word = re.compile(rf"\b{path.rpartition('.')[2]}\b")
    for place in HOOKS[path][0].split(", "):
        home, _, rest = place.partition(".")
        here = ROOT / "autotest" / rest if home == "autotest" else ROOT / "oneflow_compat" / place.replace(".", "/")
        files = [*here.rglob("*.py"), here.with_suffix(".py")]
        assert any(word.search(file.read_text(encoding="utf-8")) for file in files if file.exists()), place
