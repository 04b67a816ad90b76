"""The table of differences: complete rows, tests that exist, ids that errors and tests may name."""
import re
from pathlib import Path

import oneflow
import pytest
from oneflow._tables.differences import DIFFERENCES
from oneflow._tables.dialect import DIALECT

HERE = Path(__file__).resolve().parents[2]
SOURCE = Path(oneflow.__file__).resolve().parent


# named by errors, rows still to be written by the pages they belong to
PENDING = {"graph-save-guards", "global-multi-rank", "legacy-time-shape", "legacy-bbox-flip", "legacy-assign-shape",
           "legacy-user-ops", "legacy-tensorrt", "legacy-one-device", "legacy-train-step-lbn", "legacy-custom-ops", "legacy-data-readers",
           "legacy-serving-batch", "legacy-serving-ops", "rdma", "knobs"}


@pytest.mark.parametrize("id", DIFFERENCES)
def test_row_is_complete_and_its_test_exists(id):
    row = DIFFERENCES[id]
    assert set(row) >= {"names", "oneflow", "here", "reason", "test"} and all(row.values()), row
    path, _, name = row["test"].partition("::")
    text = (HERE / path).read_text()
    assert not name or f"def {name.partition('[')[0]}(" in text, row["test"]


def test_every_id_an_error_names_is_a_row():
    named = {}
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        for match in re.finditer(r"docs/differences\.md: ([a-z0-9]+(?:-[a-z0-9]+)+)", text):
            named.setdefault(match[1], file.name)
        for match in re.finditer(r"unsupported\((?:[^()]|\([^()]*\))*?\"([a-z0-9]+(?:-[a-z0-9]+)+)\"", text):
            named.setdefault(match[1], file.name)
    missing = {i: f for i, f in named.items() if i not in DIFFERENCES and i not in PENDING}
    assert not missing, f"errors name differences without a row: {missing}"


def test_dialect_rows_are_differences():
    covered = {n for row in DIFFERENCES.values() for n in row["names"]}
    mine = {n for n in DIALECT if n.count(".") == 1} - {"oneflow.__version__"}
    assert mine <= covered, mine - covered
