"""What a run writes: its header, the changes since a baseline or another run, JUnit, and counts."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rows import row_of

from oneflow_autotest.parity import diff, header, junit, page, table

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def good():
    return row_of("exp")


@pytest.fixture(scope="module")
def bad():
    return row_of("exp", exp=lambda x: x.exp() * 1.01)


def left_out(name="oneflow.hub.load"):
    return {**table.new_row(name, "oneflow.hub"), "left_out": "needs the network"}


def changes(before, after):
    return diff.changes(diff.cells_of_rows(before), diff.cells_of_rows(after))


def test_a_header_says_what_was_run(good):
    head = header.run_header([good, left_out()], HERE, "1.2.3", 0.0)
    assert head["package"] == "1.2.3" and head["date"] == "1970-01-01T00:00:00+00:00"
    assert head["python"] == sys.version.split()[0] and head["processor"] and head["threads"] >= 1
    assert head["seconds"] > 0 and (head["names"], head["executed"]) == (2, 1)
    assert head["counts"]["eager"] == {"pass": 1} and head["counts"]["golden"] == {}


def test_the_header_is_stored_before_the_rows(good, tmp_path):
    table.save([good], tmp_path / "p.json", {"commit": None})
    assert json.loads((tmp_path / "p.json").read_text())["run"] == {"commit": None}
    assert table.load_header(tmp_path / "p.json") == {"commit": None}
    assert table.load(tmp_path / "p.json")[0]["name"] == "oneflow.exp"


def test_the_commit_is_null_outside_of_a_checkout(tmp_path):
    assert header.commit_of(tmp_path) is None


def test_the_commit_of_a_checkout_tells_changed_files(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    commit = header.commit_of(tmp_path)
    assert len(commit) == 40
    (tmp_path / "file").write_text("two")
    assert header.commit_of(tmp_path) == commit + "+"


def test_a_cell_that_got_worse_is_a_regression_with_both_details(good, bad):
    worse = [c for c in changes([good], [bad]) if c.is_regression]
    eager = next(c for c in worse if c.column == "eager")
    assert str(eager) == "oneflow.exp, eager: pass -> fail" and "differs" in eager.detail_after
    better = changes([bad], [good])
    assert not any(c.is_regression for c in better)
    eager = next(c for c in better if c.column == "eager")
    assert (eager.kind, eager.detail_after) == ("better", "") and "differs" in eager.detail_before


def test_cells_and_names_appear_and_disappear(good):
    less = {**good, "cells": {c: cell for c, cell in good["cells"].items() if c != "graph"}}

    def kinds(all_changes):
        return [(str(c), c.kind, c.is_regression) for c in all_changes]

    assert kinds(changes([less], [good])) == [("oneflow.exp, graph: none -> pass", "appeared", False)]
    assert kinds(changes([good], [less])) == [("oneflow.exp, graph: pass -> none", "disappeared", True)]
    assert kinds(changes([], [good])) == [("oneflow.exp: new", "appeared", False)]
    assert kinds(changes([good], [])) == [("oneflow.exp: no longer in the matrix", "disappeared", True)]


def test_a_new_cell_or_name_that_fails_is_a_regression(bad):
    less = {**bad, "cells": {c: cell for c, cell in bad["cells"].items() if c != "eager"}}
    assert [c.kind for c in changes([less], [bad])] == ["worse"]
    assert "worse" in [c.kind for c in changes([], [bad])]


def test_a_baseline_equals_its_own_run(good, bad):
    rows = [good, left_out()]
    before = diff.cells_of_baseline(table.baseline_of(rows))
    assert diff.changes(before, diff.cells_of_rows(rows)) == []
    assert diff.changes(before, diff.cells_of_rows([bad, left_out()]))


def test_the_page_of_changes_shows_and_escapes_details(good, bad, tmp_path):
    graph = {"status": "fail", "detail": "<b>wrong</b>"}
    bad = {**bad, "cells": bad["cells"] | {"graph": graph, "identity": {"status": "same"}}}
    diff.write(changes([good], [bad]), tmp_path / "diff.html", "the baseline", "torch 2", "t")
    text = (tmp_path / "diff.html").read_text()
    assert "Cells that got worse: " in text and "Cells that got better: 0" in text
    assert "&lt;b&gt;wrong&lt;/b&gt;" in text and "<b>wrong" not in text
    assert "parity.html#oneflow.exp%7Cgraph" in text and "Before: the baseline" in text


def test_an_alias_is_counted_apart(good, bad, tmp_path):
    alias = {**row_of("addcmul"), "name": "oneflow.alias"}
    alias["cells"] = alias["cells"] | {"identity": {"status": "same"}}
    alias["cells"].pop("reference", None)
    rows = [good, bad, alias, left_out()]
    assert table.alias_counts(rows) == {
        "compared": 1,
        "aliases": 2,
        "aliases_judged": 1,
        "aliases_not_judged": 1,
    }
    assert table.headline(rows) == (
        "1 names compared, 2 are torch's own object"
        " (1 of these judged by NumPy or recorded numbers, 1 by neither)"
    )
    by_column, _ = table.counts(rows, own_only=True)
    assert by_column["eager"] == {"fail": 1, "none": 1}
    assert by_column["graph"]["pass"] == 3  # a graph is compared with eager mode
    page.write(rows, tmp_path / "p.html", "t")
    assert "1 names compared, 2 are torch" in (tmp_path / "p.html").read_text()


def test_a_junit_file_has_a_case_for_each_cell(good, bad, tmp_path):
    refused = row_of("equal")
    differing = {**good, "name": "oneflow.differing"}
    differing["cells"] = {"eager": {"status": "differs", "detail": "row: by 1"}}
    rows = [good, {**bad, "name": "oneflow.bad"}, refused, differing, left_out()]
    head = header.run_header(rows, HERE, "1.2.3", 0.0)
    junit.write(rows, tmp_path / "j.xml", head)
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
    cases = {(c.get("classname"), c.get("name")): c for c in suite.iter("testcase")}
    assert len(cases) == int(suite.get("tests")) and len(list(suite.iter("testcase"))) == len(cases)
    assert len(cases[("gradient", "oneflow.exp")]) == 0
    failure = cases[("eager", "oneflow.bad")].find("failure")
    assert "differs" in failure.get("message") and "agree(actual, expected)" in failure.text
    assert "needs the values" in cases[("graph", "oneflow.equal")].find("skipped").get("message")
    assert cases[("eager", "oneflow.differing")].find("system-out").text == "row: by 1"
    assert cases[("left out", "oneflow.hub.load")].find("skipped").get("message") == "needs the network"
    assert not [key for key in cases if key[0] in ("identity", "cpu")]
    assert int(suite.get("failures")) >= 2 and int(suite.get("skipped")) == 2
    properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert properties["package"] == "1.2.3" and "counts" not in properties


def test_a_junit_file_has_no_control_characters(bad, tmp_path):
    table_row = {**bad, "cells": {"eager": {"status": "fail", "detail": "a\x00b\x1b"}}}
    junit.write([table_row], tmp_path / "j.xml", header.run_header([table_row], HERE, "1", 0.0))
    failure = next(ElementTree.parse(tmp_path / "j.xml").getroot().iter("failure"))
    assert failure.get("message") == "a?b?"
