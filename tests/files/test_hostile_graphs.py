"""Saved graphs that attack their reader, and damaged ones, loaded and called in a child process with limits
of memory and time.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_graphs import CALLED, hostile_graphs, legit_graphs, write_folder
from time_limits import seconds

import oneflow as flow
from oneflow._graph.saved.package import PackageError

RUNNER = Path(__file__).with_name("hostile_runner.py")
LARGEST_GROWTH = 300  # MiB, of a file of at most 3 MB


def outcomes(graphs, tmp_path):
    """{name: what became of it} of graphs loaded in one child process; a module `evil_module` is there to be
    imported.
    """
    modules, root = tmp_path / "modules", tmp_path / "graphs"
    modules.mkdir()
    (modules / "evil_module.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    for name, files in graphs:
        write_folder(root / name, files)
    path = os.pathsep.join([str(modules), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, RUNNER, str(root)],
        capture_output=True,
        text=True,
        timeout=seconds(500),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    outcome_of = {record["name"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (list(outcome_of)[-1:], done.stderr[-2000:])
    return outcome_of


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("hostile")
    legit = [(f"legit-{name}", files) for name, files in legit_graphs().items()]
    graphs = list(hostile_graphs(str(tmp_path / "marker")))
    assert len(graphs) == len(dict(graphs)) > 150
    return outcomes(legit + graphs, tmp_path), tmp_path


def test_the_graphs_they_are_made_from_run(hostile):
    outcome_of, _ = hostile
    legit = [record for name, record in outcome_of.items() if name.startswith("legit-")]
    assert len(legit) == 3 and all(record["stage"] == "done" for record in legit), legit


def test_a_hostile_graph_is_refused_with_its_path(hostile):
    outcome_of, tmp_path = hostile
    wrong = {}
    for name, record in outcome_of.items():
        if name.startswith("legit-") or name in CALLED:
            continue
        if (record["stage"], record["error"]) != ("load", "PackageError") or str(
            tmp_path / "graphs" / name
        ) not in record["text"]:
            wrong[name] = record["stage"], record["error"], record["text"][:300]
    assert not wrong, wrong


def test_a_call_of_a_hostile_graph_ends_in_an_ordinary_error(hostile):
    outcome_of, _ = hostile
    assert {outcome_of[name]["stage"] for name in CALLED} <= {"call", "done"}
    assert {outcome_of[name]["error"] for name in CALLED} <= {"", "RuntimeError"}


def test_a_hostile_graph_executes_and_imports_nothing(hostile):
    outcome_of, tmp_path = hostile
    assert not (tmp_path / "marker").exists()
    imported = {
        m for name, record in outcome_of.items() if not name.startswith("legit-") for m in record["imported"]
    }
    assert imported <= {"encodings.cp437"}, imported  # which zipfile reads the names of members with


def test_a_hostile_graph_takes_little_time_and_memory(hostile):
    outcome_of, _ = hostile
    assert not {
        name: (r["seconds"], r["grown"])
        for name, r in outcome_of.items()
        if r["seconds"] > 10 or r["grown"] > LARGEST_GROWTH
    }


def test_an_error_is_short_and_printable(hostile):
    outcome_of, tmp_path = hostile
    for name, record in outcome_of.items():
        text = record["text"].replace(str(tmp_path), "")
        assert len(text) < 3000, name
        if record["error"] == "PackageError":
            assert text.isprintable(), (name, text)


def damaged(files, count, seed):
    """(name, files) of copies that are cut off at each 1/16, or have one byte changed."""
    draw = random.Random(seed)
    for name, data in files.items():
        for part in range(16):
            yield f"{name}-cut-{part}", {**files, name: data[: len(data) * part // 16]}
        for number in range(count):
            at = draw.randrange(len(data))
            yield (
                f"{name}-byte-{number}",
                {**files, name: data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]},
            )


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_a_damaged_graph_is_refused_or_right(tmp_path, count):
    files = legit_graphs()["infer"]
    outcome_of = outcomes([("legit-infer", files), *damaged(files, count, seed=0)], tmp_path)
    right = outcome_of.pop("legit-infer")["text"]
    wrong = {
        name: record
        for name, record in outcome_of.items()
        if not (record["stage"] == "done" and record["text"] == right)
        and not (record["error"] == "PackageError" and str(tmp_path / "graphs" / name) in record["text"])
    }
    assert len(outcome_of) == 2 * (16 + count) and not wrong, wrong


def test_the_checksum_names_what_to_do_about_an_edit(tmp_path):
    write_folder(tmp_path / "g", legit_graphs()["infer"])
    path = tmp_path / "g" / "program.json"
    path.write_text(path.read_text().replace("two", "six"))
    with pytest.raises(PackageError, match="remove its key 'crc32'"):
        flow.load_graph(tmp_path / "g")
