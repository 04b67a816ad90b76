"""The documentation site builds without a warning, and its pages load nothing from other hosts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            ROOT / "mkdocs.yml",
            "--site-dir",
            folder,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert build.returncode == 0, build.stderr[-4000:]
    return folder


def test_pages_load_nothing_from_other_hosts(site):
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|"
        r"<link\b(?![^>]*canonical)[^>]*\bhref=\"?(?:https?:)?//"
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    assert [str(page) for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []


def test_site_leaves_out_sources_of_the_generator(site):
    assert (
        not list(site.rglob("*.j2"))
        and not (site / "generate.py").exists()
        and not (site / "api" / "names.txt").exists()
    )


def test_search_index_has_pages_and_names(site):
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for location in (
        "graph/values.html",
        "tutorials/first-graph.html",
        "api/oneflow.optim.html#oneflow.optim.AdamW",
    ):
        assert f'"location":"{location}"' in index


@pytest.mark.parametrize(
    "words",
    [
        "seed",
        "EMA",
        "two optimizers",
        "early stopping",
        "freeze layers",
        "mixed precision",
        "metrics",
        "generate",
    ],
)
def test_search_index_has_a_recipe_with_the_words_of_a_user_in_its_title(site, words):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = [
        doc["title"].lower() for doc in index["docs"] if doc["location"].startswith("how-to/recipes.html#")
    ]
    assert any(all(word in title for word in words.lower().split()) for title in titles)


def test_difference_rows_have_anchors(site):
    assert '<a id="adagrad-default-lr">' in (site / "differences.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation(site):
    """A page that no menu lists is found by search only."""
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "api"]
    assert [page for page in pages if page not in listed] == []
