"""tests/tools/record_results.py: a record is what pytest counted, and the package and its page follow the
records.
"""

import json

import record_results
from record_results import PAGE, RECORDS, VERSIONS, counts, page_text, versions_text, with_record

RECORD = {
    "torch": "2.20.0",
    "python": "3.14",
    "scope": "tests/core",
    "passed": 3,
    "failed": 0,
    "skipped": 1,
    "date": "2026-11-28",
}


def test_counts_are_those_of_pytest(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
    assert counts(report) == {"passed": 5, "failed": 2, "skipped": 2}


def test_record_replaces_the_older_one_of_the_same_run():
    newer = {**RECORD, "passed": 4}
    records = with_record(with_record([], RECORD), newer)
    assert records == [newer]
    assert [r["torch"] for r in with_record(records, {**RECORD, "torch": "2.9.1"})] == ["2.9.1", "2.20.0"]


def test_a_scope_with_a_failed_test_is_not_checked():
    text = VERSIONS.read_text(encoding="utf-8")
    assert '"2.20.0": "tests/core"' in versions_text([RECORD], text)
    assert "2.20.0" not in versions_text([{**RECORD, "failed": 1}], text)


def test_the_package_and_the_page_are_written_from_the_records():
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    for file, text_of in ((VERSIONS, versions_text), (PAGE, page_text)):
        text = file.read_text(encoding="utf-8")
        assert text_of(records, text) == text, "run python tests/tools/record_results.py"
        assert text_of([*records, RECORD], text) != text
    assert record_results.ROOT.exists()
