"""`make upstream` reports each test that differs from plain torch, and each reason that no test needs."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import upstream_run as upstream
import upstream_verdict
from time_limits import seconds
from upstream_process import Outcome, Run, RunnerError, outcomes_of
from upstream_report import PAGE, README, RECORDS, page_text, readme_text, record_of, with_records
from upstream_suites import SUITES, Suite, Unit
from upstream_verdict import (
    REASON,
    differing,
    expected_without_baseline,
    judge,
    read_reasons,
    repeated_differences,
)

from oneflow._tables.differences import DIFFERENCES

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "ValueError"), Outcome("skipped")
UNIT = Unit("test_a.py")
SUITE = Suite("fake", "fake tests", "fake", (UNIT,))
DIFFERENCE = """
import torch

def test_same():
    assert torch.ones(2).sum() == 2

def test_planted_difference():
    assert torch.__name__ == "torch"

def test_failed_on_both_sides():
    raise ValueError
"""


def write_suite(folder, text):
    (folder / "fake").mkdir(parents=True, exist_ok=True)
    (folder / "fake" / "test_a.py").write_text(text)
    return upstream.Settings(folder, folder / "journals", folder)


def explain(folder, **reasons):
    lines = (f'"test_a.py::{test}" = "{reason}"\n' for test, reason in reasons.items())
    (folder / "fake.toml").write_text("".join(lines))


def test_planted_difference_is_found_and_a_reason_explains_it(tmp_path):
    settings = write_suite(tmp_path, DIFFERENCE)
    verdict = upstream.verdict_of(SUITE, UNIT, settings)
    assert verdict.unexplained == {
        "test_a.py::test_planted_difference": "torch: passed; here: failed (AssertionError)"
    }
    assert verdict.tests == 3 and verdict.failed_with_torch == 1 and not verdict.is_good
    explain(tmp_path, test_planted_difference="defect: planted")
    verdict = upstream.verdict_of(SUITE, UNIT, settings)
    assert verdict.is_good and verdict.explained == {"test_a.py::test_planted_difference": "defect: planted"}
    record = record_of(verdict, SUITE, UNIT, tmp_path)
    assert record["tests"] == 3 and record["explained"] == 1


def judged(torch, here, again=(), reasons=None, unit=UNIT):
    def outcomes(by_name):
        return {f"test_a.py::{name}": outcome for name, outcome in by_name.items()}

    reasons = {f"test_a.py::{name}": "defect: planted" for name in reasons or ()}
    again = tuple(f"test_a.py::{name}" for name in again)
    return judge(SUITE, unit, outcomes(torch), outcomes(here), again, reasons)


def test_reason_of_a_test_that_passes_is_stale():
    verdict = judged({"a": PASSED}, {"a": PASSED}, reasons=["a"])
    assert verdict.stale == ("test_a.py::a",) and not verdict.is_good


def test_reason_of_a_test_that_is_gone_is_stale_unless_only_a_sample_ran():
    outcomes = {"a": PASSED}
    assert judged(outcomes, outcomes, reasons=["b"]).stale == ("test_a.py::b",)
    assert judged(outcomes, outcomes, reasons=["b"], unit=replace(UNIT, sample=0.5)).is_good


def test_other_class_of_error_and_missing_test_differ():
    other = Outcome("failed", "TypeError")
    torch, here = {"a": FAILED, "b": PASSED, "c": FAILED}, {"a": other, "c": FAILED, "d": PASSED}
    assert differing(torch, here) == ("a", "b", "d")
    verdict = judged(torch, here, again=["a", "b", "d"], reasons=["a"])
    assert [*verdict.unexplained] == ["test_a.py::b", "test_a.py::d"] and not verdict.is_good


def test_subclass_of_torchs_error_agrees():
    subclass = Outcome("failed", "RefusedValue", ("ValueError", "Exception"))
    assert differing({"a": FAILED}, {"a": subclass}) == () and differing({"a": subclass}, {"a": FAILED}) == (
        "a",
    )


def test_difference_that_a_repetition_does_not_show_is_unstable():
    verdict = judged({"a": PASSED, "b": PASSED}, {"a": FAILED, "b": PASSED})
    assert verdict.unstable == ("test_a.py::a",) and verdict.is_good


def test_unit_without_a_test_is_not_good():
    assert not judged({}, {}).is_good


def test_skipped_tests_are_not_counted_as_run():
    verdict = judged({"a": PASSED, "b": SKIPPED}, {"a": PASSED, "b": SKIPPED})
    assert (verdict.tests, verdict.skipped) == (1, 1)


def test_suite_without_a_baseline_expects_every_test_to_pass():
    here = {"a": PASSED, "b": FAILED, "c": SKIPPED}
    assert differing(expected_without_baseline(here), here) == ("b",)


RECORDED = """
import torch

def test_planted_value(record_property):
    value = 1 if torch.__name__ == "torch" else 2
    record_property("outcome", f"digest {value}")
    record_property("details", ["sample 0: same", f"sample 1: {value}"])
"""


def test_recorded_outcome_that_differs_is_found(tmp_path):
    """A test that passes on both sides differs if its calls gave other values."""
    verdict = upstream.verdict_of(SUITE, UNIT, write_suite(tmp_path, RECORDED))
    assert verdict.unexplained == {"test_a.py::test_planted_value": "torch: sample 1: 1; here: 2"}


def test_verdict_counts_how_compiled_steps_ran():
    program = replace(PASSED, note="as one program")
    eager = replace(PASSED, note="in eager mode, with a warning")
    verdict = judged({"a": PASSED, "b": PASSED, "c": PASSED}, {"a": program, "b": program, "c": eager})
    assert verdict.notes == {"as one program": 2, "in eager mode, with a warning": 1} and verdict.is_good


def test_time_limit_runs_the_same_tests_on_both_sides(tmp_path):
    text = (
        "import pytest, time\n@pytest.mark.parametrize('n', range(50))\ndef test(n):\n    time.sleep(0.2)\n"
    )
    settings = replace(write_suite(tmp_path, text), seconds=1, seed=1)
    verdict = upstream.verdict_of(SUITE, UNIT, settings)
    assert 1 <= verdict.tests <= 6 and verdict.is_good


def test_seed_changes_the_tests_that_a_time_limit_runs(tmp_path):
    write_suite(tmp_path, "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test(n):\n    pass\n")
    runs = [Run(SUITE, UNIT, tmp_path, "torch", tmp_path / f"{n}.jsonl", None, n, 1e-9) for n in range(3)]
    assert len({next(iter(outcomes_of(run))) for run in runs}) > 1


def test_verdict_says_if_an_older_state_of_the_package_ran(tmp_path):
    settings = write_suite(tmp_path, DIFFERENCE)
    assert not upstream.verdict_of(SUITE, UNIT, settings).is_reused
    key = settings.journals / SUITE.name / "oneflow" / "test_a.py.key"
    key.write_text(key.read_text().rpartition("\n")[0] + "\nolder")
    assert upstream.verdict_of(SUITE, UNIT, replace(settings, reuse=True)).is_reused
    assert not upstream.verdict_of(SUITE, UNIT, settings).is_reused


HARD = """
import os, time

def test_ends_the_process():
    os._exit(3)

def test_sleeps():
    time.sleep(60)

def test_after():
    pass
"""


def test_run_continues_after_a_crash_and_a_time_limit(tmp_path):
    write_suite(tmp_path, HARD)
    suite = replace(SUITE, seconds=2)
    outcomes = outcomes_of(Run(suite, UNIT, tmp_path, "torch", tmp_path / "journal.jsonl"))
    results = {test.partition("::")[2]: outcome.result for test, outcome in outcomes.items()}
    assert results == {"test_ends_the_process": "crashed", "test_sleeps": "timeout", "test_after": "passed"}


@pytest.mark.parametrize(
    "line, result",
    [
        ("import torch.no_such_module", "error"),
        ("raise ValueError", "error"),
        ("import no_such_package", "skipped"),
    ],
)
def test_file_that_cannot_be_imported_is_one_error_or_lacks_a_package(tmp_path, line, result):
    write_suite(tmp_path, line)
    outcomes = outcomes_of(Run(SUITE, UNIT, tmp_path, "torch", tmp_path / "journal.jsonl"))
    assert outcomes == {"test_a.py": Outcome(result, "not collected")}


def test_usage_error_of_pytest_ends_the_run(tmp_path):
    write_suite(tmp_path, DIFFERENCE)
    suite = replace(SUITE, options=("--no-such-option",))
    with pytest.raises(RunnerError, match="could not run test_a.py"):
        outcomes_of(Run(suite, UNIT, tmp_path, "torch", tmp_path / "journal.jsonl"))


def test_test_that_no_side_repeats_differs():
    assert repeated_differences(("a", "b"), {"b": PASSED}, {"b": PASSED}) == ("a",)


def test_interrupted_run_continues_with_the_tests_that_are_left(tmp_path):
    write_suite(tmp_path, DIFFERENCE)
    run = Run(SUITE, UNIT, tmp_path, "torch", tmp_path / "journal.jsonl")
    lines = [
        {"id": "test_a.py::test_same", "started": True},
        {"id": "test_a.py::test_same", "result": "from the journal", "error": ""},
    ]
    run.journal.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "test_a.p')
    outcomes = outcomes_of(run)
    assert outcomes["test_a.py::test_same"] == Outcome("from the journal")
    assert outcomes["test_a.py::test_failed_on_both_sides"] == FAILED and len(outcomes) == 3


def test_journal_is_dropped_if_the_tests_or_the_package_change(tmp_path):
    settings = write_suite(tmp_path, DIFFERENCE)
    run = Run(SUITE, UNIT, tmp_path, "oneflow", tmp_path / "journal.jsonl")

    def is_kept(package, settings=settings):
        run.journal.write_text("{}")
        upstream.prepare(run, settings, package)
        return run.journal.exists()

    assert not is_kept("digest") and is_kept("digest") and not is_kept("other digest")
    write_suite(tmp_path, HARD)
    assert not is_kept("other digest") and is_kept("other digest")
    reusing = replace(settings, reuse=True)
    assert is_kept("third digest", reusing)


def test_sample_has_the_same_tests_on_both_sides(tmp_path):
    text = "import pytest\n@pytest.mark.parametrize('n', range(100))\ndef test(n):\n    pass\n"
    write_suite(tmp_path, text)
    unit = replace(UNIT, sample=0.2)
    sides = [
        outcomes_of(Run(SUITE, unit, tmp_path, side, tmp_path / f"{side}.jsonl"))
        for side in ("torch", "oneflow")
    ]
    assert sides[0] == sides[1] and 5 < len(sides[0]) < 40


def test_terminated_run_ends_the_processes_of_the_tests(tmp_path):
    """`timeout make upstream` leaves no process behind."""
    write_suite(
        tmp_path,
        (
            "import os, pathlib, time\ndef test():\n"
            "    pathlib.Path('pid').write_text(str(os.getpid()))\n    time.sleep(600)\n"
        ),
    )
    script = f"""
import sys
sys.path.insert(0, {str(upstream.HERE)!r})
import pathlib, upstream_run
upstream_run.SUITES = (upstream_run.Suite("fake", "fake tests", "fake", (upstream_run.Unit("test_a.py"),)),)
upstream_run.ROOT = pathlib.Path({str(tmp_path)!r})
sys.argv = ["upstream_run.py", {str(tmp_path)!r}]
sys.exit(upstream_run.main())
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = tmp_path / "fake" / "pid"
    limit = time.monotonic() + seconds(60)
    while not (pid.exists() and pid.read_text()) and time.monotonic() < limit:
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=seconds(60))
    assert "the same command continues" in output and process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# --------------------------------------------------------------------------- what is committed
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_reasons_name_tests_of_the_suite_and_rows_that_exist(suite):
    for test, reason in read_reasons(upstream.HERE, suite.name).items():
        assert any(upstream_verdict.belongs_to(test, unit) for unit in suite.units), test
        match = REASON.match(reason)
        assert match, (
            f"{test}: {reason!r} names no row of differences, version of torch, defect or environment"
        )
        assert match["row"] is None or match["row"] in DIFFERENCES, match["row"]


def test_each_file_of_reasons_belongs_to_a_suite():
    assert {file.stem for file in upstream.HERE.glob("*.toml")} <= {suite.name for suite in SUITES}


def test_page_and_readme_are_written_from_the_records():
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    assert page_text(records, text) == text, "run make upstream"
    readme = README.read_text(encoding="utf-8")
    assert readme_text(records, readme) == readme != readme_text(records[1:], readme), "run make upstream"
    assert page_text(records[1:], text) != text
    assert with_records(records, records) == records
    assert not any(record["unexplained"] for record in records)
