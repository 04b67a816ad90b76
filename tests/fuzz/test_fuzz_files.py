"""A fixed subset of the files of fuzz_files.py: hostile, truncated and damaged files."""

import sys

import pytest

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import file_formats
import file_structures
import fuzz_files


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return fuzz_files.warm_up(tmp_path_factory.mktemp("references"))


def _bad(cases):
    tally = fuzz_files.Tally()
    fuzz_files._load_all(cases, tally)
    assert sum(tally.counts.values()) > 0
    return [f"{family}, {name}: {outcome.kind}: {outcome.detail}" for family, name, outcome in tally.bad]


def test_hostile_files_are_refused(references, tmp_path):
    """Nothing runs, nothing crashes, memory and time stay bounded, every error names its file."""
    assert not _bad(fuzz_files.hostile_cases(tmp_path, every=4))


def test_files_cut_short_are_refused(references, tmp_path):
    assert not _bad(fuzz_files.cut_cases(references, tmp_path, every=5))


def test_damaged_files_give_the_right_content_or_an_error(references, tmp_path):
    assert not _bad(fuzz_files.seed_cases(references, tmp_path, range(10_000, 10_100)))


@pytest.mark.parametrize("reader", file_structures.STRUCTURES)
def test_files_of_changed_content_are_read_or_refused(references, tmp_path, reader):
    assert not _bad(fuzz_files.structured_cases(tmp_path, range(40), [reader]))


class _Runs:
    """Pickles as the call of a function."""

    def __reduce__(self):
        import os

        return os.system, (f"touch {fuzz_files.hostile_files.MARKER}",)


def _outcome(read, path):
    path.write_bytes(b"x")
    return fuzz_files.load_in_child(file_formats.Format(None, read, True), path, {"a": 1}).kind


def test_the_tool_sees_each_kind_of_failure(tmp_path, monkeypatch):
    """A reader that fails in a known way gives the outcome of that name."""
    import ctypes
    import os

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    assert _outcome(lambda p: {"a": 1}, path) == "loaded"
    assert _outcome(lambda p: {"a": 2}, path) == "wrong"
    assert _outcome(lambda p: {}["key"], path) == "raw"
    assert _outcome(lambda p: ctypes.string_at(0), path) == "crashed"
    assert _outcome(lambda p: os.system("true"), path) == "executed"
    assert _outcome(lambda p: __import__("antigravity"), path) == "executed"
    assert _outcome(lambda p: bytearray(b"x") * (400 << 20) and {"a": 1}, path) == "memory"
    assert _outcome(lambda p: bytearray(8 << 30), path) == "raw"
