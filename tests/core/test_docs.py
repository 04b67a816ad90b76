"""The generated pages are current, and every link in the documentation leads somewhere."""
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["differences", "environment", "graph_options"])
def test_generated_page_is_current(name):
    page = ROOT / "docs" / f"{name.replace('_', '-')}.md"
    assert page.read_text(encoding="utf-8") == getattr(generator(), name)(), "run: python docs/generate.py"


def test_api_pages_have_every_name():
    """Signatures and identities belong to one version of torch; the names do not."""
    folder = ROOT / "docs" / "api"
    written = {page.stem: set(re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.M)) for page in folder.glob("oneflow*.md")}
    made = {page: set(re.findall(r"^\| `([^`]+)`", text, re.M)) for page, text in generator().api_pages().items()}
    assert written == made, "run: python docs/generate.py"
    found = {f"{page}.{name}" for page, names in written.items() for name in names}
    assert set((folder / "names.txt").read_text(encoding="utf-8").split()) <= found
    assert {"oneflow.optim.AdamW", "oneflow.one_embedding.MultiTableEmbedding", "oneflow.optim.Ftrl", "oneflow.nn.Graph.build", "oneflow.Tensor.abs"} <= found


def test_links_lead_somewhere():
    gone = []
    for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "csrc" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8")):
            if "://" not in target and not (file.parent / target).exists():
                gone.append(f"{file.relative_to(ROOT)}: {target}")
    assert not gone, gone
