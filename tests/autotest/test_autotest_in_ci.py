"""What a CI service reads of a run: properties, scripts, lines, annotations, history, known failures."""

import json
import re
import subprocess
import sys
import traceback
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from planted import failure, harness
from run_pytest import run_pytest

from oneflow_autotest import Mismatch, history, known_failure, source, summary

TESTS = """
import torch as reference
from oneflow_autotest import bind, known_failure


class Library:
    def __getattr__(self, name):
        return getattr(reference, name)

    def relu(self, x):
        return x * (x > 0) + 1

    def tanh(self, x):
        raise RuntimeError("no kernel")


Library.__module__ = "mylib"
api = bind(reference, Library(), names=("torch", "mylib"))
torch, autotest, random_tensor = api.torch, api.autotest, api.random_tensor


@autotest(n=5, check_graph=False)
def test_good(test_case):
    return torch.exp(random_tensor(2))


@autotest(n=5, check_graph=False)
def test_wrong(test_case):
    x = random_tensor(2)
    y = torch.relu(x)  # the wrong line
    return y * 2


@autotest(n=5, check_graph=False)
def test_raises(test_case):
    x = random_tensor(2)
    return torch.tanh(x)  # the line that raises


@autotest(n=5, check_graph=False, known=known_failure("relu adds one", until="2999-01-01", check="values"))
def test_known(test_case):
    return torch.relu(random_tensor(2))
"""
WRONG_LINE = 1 + TESTS[: TESTS.index("# the wrong line")].count("\n")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(output, folder) of one run with everything that CI asks for, on two workers."""
    folder = tmp_path_factory.mktemp("ci")
    options = ["-n", "2", "--junitxml", "junit.xml", "--autotest-history", "history.jsonl"]
    (folder / "test_mine.py").write_text(TESTS)
    ran = run_pytest(folder, *options, "test_mine.py", GITHUB_ACTIONS="true", ONEFLOW_TEST_SEED="3")
    return ran.stdout + ran.stderr, folder


def properties(folder):
    cases = ElementTree.parse(folder / "junit.xml").iter("testcase")
    return {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")} for case in cases
    }


def test_the_totals_count_the_tests_of_all_workers(ran):
    output, _ = ran
    assert "2 failed, 1 passed, 1 xfailed" in output
    assert re.search(r"autotest: \d+ cases of 4 tests agree", output)


def test_junit_has_the_outcome_of_each_test(ran):
    found = properties(ran[1])
    assert found["test_good"] == {
        "autotest_seed": "3",
        "autotest_cases": "5",
        "autotest_attempts": found["test_good"]["autotest_attempts"],
        "autotest_refused": "0",
        "autotest_graphs": "0",
        "autotest_seconds": found["test_good"]["autotest_seconds"],
    }
    wrong = found["test_wrong"]
    assert wrong["autotest_check"] == "values" and wrong["autotest_step"] == "v1 = lib.relu(x0)"
    assert (wrong["autotest_file"], wrong["autotest_line"]) == ("test_mine.py", str(WRONG_LINE))
    assert found["test_raises"]["autotest_check"] == "one side raised"


def test_the_script_of_a_failure_is_a_file_that_the_message_names(ran):
    output, folder = ran
    name = "autotest_failures/test_mine.test_wrong.py"
    assert name in output and properties(folder)["test_wrong"]["autotest_script"] == name
    script = (folder / name).read_text()
    assert "def program(lib):" in script and "lib.relu(x0)" in script
    assert not (folder / "autotest_failures" / "test_mine.test_good.py").exists()


def test_the_traceback_shows_the_line_of_the_test_and_none_of_the_harness(ran):
    output, _ = ran
    for function, line in (("test_wrong", "# the wrong line"), ("test_raises", "# the line that raises")):
        shown = output[output.index(f" {function} _") :].partition("smallest failing case")[0]
        assert re.search(rf"^> .*{line}$", shown, re.M), shown
    assert not re.search(r"^\S*(autotest/\w+|hypothesis/\S+)\.py:\d+: ", output, re.M)


def test_github_gets_an_annotation_at_the_line_of_the_test(ran):
    output, _ = ran
    (annotation,) = re.findall(r"^::error .*test_wrong::.*$", output, re.M)
    assert annotation.startswith(
        f"::error file=test_mine.py,line={WRONG_LINE},title=test_mine.py.test_wrong::"
    )
    assert "values: v1 differs" in annotation and "%0A" in annotation


def test_the_history_counts_the_runs_of_each_test(ran):
    _, folder = ran
    lines = history.read(str(folder / "history.jsonl"))
    assert {line["test"]: line["result"] for line in lines} == {
        "test_mine.py::test_good": "passed",
        "test_mine.py::test_wrong": "failed",
        "test_mine.py::test_raises": "failed",
        "test_mine.py::test_known": "skipped",
    }
    better = [line | {"result": "passed"} for line in lines if line["test"] == "test_mine.py::test_wrong"]
    rows = history.table(lines + better)
    assert [(r["test"], r["failures"], r["runs"], r["checks"]) for r in rows] == [
        ("test_mine.py::test_wrong", 1, 2, "values"),
        ("test_mine.py::test_raises", 1, 1, "one side raised"),
    ]
    assert history.table(lines + better, runs=1) == rows[1:]


def test_the_history_program_prints_flaky_tests_first(tmp_path):
    line = {"date": "2026-11-29T00:00:00+00:00", "test": "a", "result": "failed", "autotest_check": "strides"}
    lines = [line, line | {"result": "passed"}, line | {"test": "b"}]
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    command = [sys.executable, "-m", "oneflow_autotest.history", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    assert "1/2" in printed[1] and printed[1].endswith("a: strides  flaky") and "1/1" in printed[2]
    assert printed[3] == "1 flaky, 1 always fail"
    file.write_text("{}\nnothing")
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (
        refused.returncode == 2 and "line 2: a line of JSON was expected, found 'nothing'" in refused.stderr
    )


def test_the_time_of_a_test_ends_it_between_two_cases(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SECONDS", "0.2")
    api, begun, ended = harness(), [], []

    @api.autotest(n=100_000, check_graph=False)
    def run(case):
        begun.append(1)
        result = api.torch.relu(api.random_tensor(2))
        ended.append(1)
        return result

    run(None)
    assert 0 < len(begun) < 100_000 and begun == ended
    assert 0 < summary.outcomes[-1].cases <= len(begun) and summary.outcomes[-1].seconds < 30


def test_a_time_that_is_too_short_still_runs_one_case(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SECONDS", "1e-9")
    assert (
        failure(harness(relu=lambda x: x.relu() + 1), lambda api: api.torch.relu(api.random_tensor(2))).check
        == "values"
    )


def test_a_time_that_is_no_number_is_an_error(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SECONDS", "soon")
    api = harness()
    with pytest.raises(ValueError, match="ONEFLOW_TEST_SECONDS must be a number, found 'soon'"):
        api.autotest(n=1)(lambda case: None)(None)


def test_the_seed_of_a_date_is_the_same_for_all_tests(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "date")
    assert source.seed_of("a") == source.seed_of("b") and re.fullmatch(r"20\d{6}", str(source.seed_of("a")))


# ---------------------------------------------------------------------- known failures
def run_known(known, **bugs):
    api = harness(**bugs)

    @api.autotest(n=5, check_graph=False, known=known)
    def run(case):
        return api.torch.relu(api.random_tensor(2))

    run(None)


def test_a_known_failure_is_a_skip_under_unittest(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    known = known_failure("relu adds one", until="2999-01-01")
    with pytest.raises(
        unittest.SkipTest, match="known failure: relu adds one .known until 2999-01-01; values: v1"
    ):
        run_known(known, relu=lambda x: x.relu() + 1)


def test_a_known_failure_that_does_not_occur_is_an_error():
    with pytest.raises(AssertionError, match="the known failure does not occur: relu adds one"):
        run_known(known_failure("relu adds one", until="2999-01-01"))


def test_a_failure_of_another_check_is_not_the_known_one():
    known = known_failure("relu adds one", until="2999-01-01", check="values")
    with pytest.raises(Mismatch) as caught:
        run_known(known, relu=lambda x: x.relu().t())
    assert caught.value.check == "shape"


def test_a_known_failure_expires():
    known = known_failure("relu adds one", until="2020-01-01")
    with pytest.raises(Mismatch, match="a known failure expired on 2020-01-01 .relu adds one"):
        run_known(known, relu=lambda x: x.relu() + 1)


@pytest.mark.parametrize(
    "reason, until, message",
    [(" ", "2999-01-01", "needs a reason"), ("x", "next week", "must be a date such as '2027-01-31'")],
)
def test_a_known_failure_needs_a_reason_and_a_date(reason, until, message):
    with pytest.raises(ValueError, match=message):
        known_failure(reason, until)


# ---------------------------------------------------------------------- tracebacks
def test_an_error_of_the_test_itself_keeps_its_own_frames():
    def program(api):
        api.torch.relu(api.random_tensor(2))
        raise KeyError("of the test")

    api = harness()
    with pytest.raises(KeyError) as caught:
        api.autotest(n=2, check_graph=False)(lambda case: program(api))(None)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [f.name for f in frames if Path(f.filename) == Path(__file__)][-2:] == ["<lambda>", "program"]
    assert frames[-1].line == 'raise KeyError("of the test")'


def test_an_error_of_the_harness_itself_keeps_its_frames(monkeypatch):
    monkeypatch.setattr("oneflow_autotest.harness.tensors.with_strides", None)
    monkeypatch.setattr("oneflow_autotest.harness._Samplers._sampled_strides", lambda *_: ((1,), 0))
    api = harness()
    with pytest.raises(TypeError, match="not callable") as caught:
        api.autotest(n=2, check_graph=False)(lambda case: api.random_tensor(1, 3))(None)
    assert "_on_both_sides" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]


def test_a_script_that_cannot_be_written_does_not_hide_the_failure(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONEFLOW_TEST_FAILURES", str(tmp_path / "file" / "folder"))
    e = failure(harness(relu=lambda x: x.relu() + 1), lambda api: api.torch.relu(api.random_tensor(2)))
    assert "as a script:\n" in str(e) and e.check == "values"
