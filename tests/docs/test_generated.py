"""The generated pages are current, and every link in the documentation has a target."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oneflow._upstream.versions import torch_is_before

ROOT = Path(__file__).parents[2]
# The pages describe every public name, deprecated names of torch included.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def load_generator():
    """Load docs/generate.py, which adds its folder to sys.path."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
import api_reference


@pytest.mark.parametrize("name", ["differences", "environment", "graph_options"])
def test_generated_page_is_current(name):
    page = ROOT / "docs" / f"{name.replace('_', '-')}.md"
    assert page.read_text(encoding="utf-8") == getattr(GENERATOR, name)(), "run: python docs/generate.py"


def names_of_page(markdown):
    return set(re.findall(r"^### `([^`]+)`$", markdown, re.M))


def test_differences_page_has_sections_with_a_table_of_contents():
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", page, re.M)
    assert titles[:2] == ["Tensor methods and operators", "Functions"] and len(titles) > 8
    linked = re.findall(r"^\| \[(.+)\]\(#([\w-]+)\) \| \d+ \|$", page, re.M)
    assert [title for title, _ in linked] == titles
    assert all(GENERATOR.anchor(title.replace("`", "")) == target for title, target in linked)
    rows = re.findall(r"^\| `([\w-]+)` \|.*\|.*\|.*\|.*\|$", page.partition("## Runtime knobs")[0], re.M)
    assert sorted(rows) == sorted(api_reference.DIFFERENCES)


def test_api_pages_have_every_name():
    """Signatures and identities belong to one version of torch; the names do not."""
    folder = ROOT / "docs" / "api"
    written = {
        page.stem: names_of_page(page.read_text(encoding="utf-8")) for page in folder.glob("oneflow*.md")
    }
    current = {module: names_of_page(text) for module, text in GENERATOR.api_pages().items()}
    assert written == current, "run: python docs/generate.py"
    names = {f"{module}.{name}" for module, page in written.items() for name in page}
    assert set((folder / "names.txt").read_text(encoding="utf-8").split()) <= names
    assert {
        "oneflow.optim.AdamW",
        "oneflow.one_embedding.MultiTableEmbedding",
        "oneflow.nn.Graph.build",
        "oneflow.Tensor.abs",
    } <= names


def test_every_api_entry_has_a_sentence_and_a_relation():
    for module, entries in api_reference.entries_by_module().items():
        for entry in entries:
            assert re.search(r"[.!?]$", entry.description) and entry.relation, (
                f"{module}.{entry.name}: {entry.description!r}"
            )


def test_api_sentence_comes_from_the_docstring():
    entries = {entry.name: entry for entry in api_reference.entries_by_module()["oneflow"]}
    assert entries["abs"].description.startswith("Computes the absolute value of each element in `input`")
    assert entries["abs"].relation == "Same as torch."
    assert entries["float32"].description == "Data type, `torch.float32`."


def test_names_that_are_torchs_link_to_its_documentation():
    pages = api_reference.entries_by_module()
    address = {f"{page}.{e.name}": e.torch_address for page, entries in pages.items() for e in entries}
    site = "https://docs.pytorch.org/docs/stable/"
    expected = {
        "oneflow.abs": "generated/torch.abs.html",
        "oneflow._C.abs": "generated/torch.abs.html",
        "oneflow.Tensor.clone": "generated/torch.Tensor.clone.html",
        "oneflow.nn.Linear": "generated/torch.nn.Linear.html",
        "oneflow.nn.Module.named_children": "generated/torch.nn.Module.html#torch.nn.Module.named_children",
        "oneflow.nn.init.orthogonal_": "nn.init.html#torch.nn.init.orthogonal_",
        "oneflow.float32": "tensor_attributes.html",
    }
    assert {name: address[name] for name in expected} == {n: site + path for n, path in expected.items()}
    same = [e for entries in pages.values() for e in entries if e.relation == api_reference.ALIAS]
    with_link = [e for e in same if e.torch_address]
    assert len(with_link) > 0.95 * len(same)
    own = [e for entries in pages.values() for e in entries if e.relation != api_reference.ALIAS]
    assert not any(e.torch_address for e in own)


@pytest.mark.skipif(torch_is_before("2.13"), reason="the pages describe the names of torch 2.13")
def test_every_name_of_the_api_pages_has_a_description_of_its_own():
    generic = r"(Class|Property|Function|Attribute) of `|Module `|Constant, a path"
    entries = [entry for page in api_reference.entries_by_module().values() for entry in page]
    assert len(entries) > 2000
    assert [entry.name for entry in entries if re.match(generic, entry.description)] == []


def test_links_lead_somewhere():
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "csrc" / "README.md",
    ]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken, broken


def test_readme_example_is_the_one_that_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = (ROOT / "docs" / "examples" / "first_graph.py").read_text(encoding="utf-8")
    block = re.search(r"<!-- docs/examples/first_graph.py -->\n```python\n(.*?)```", readme, re.S)[1]
    assert block == example.partition('"""\n')[2]


def test_readme_example_prints_falling_losses():
    out = subprocess.run(
        [sys.executable, ROOT / "docs" / "examples" / "first_graph.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    losses = [float(line.rpartition(" ")[2]) for line in out.splitlines()]
    assert len(losses) == 5 and losses[0] > 0.2 and losses[-1] < 0.06


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120
