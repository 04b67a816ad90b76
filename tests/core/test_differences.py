"""The table of differences: complete rows, tests that exist, ids that errors and tests may name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import oneflow
from oneflow._tables.dialect import DIALECT
from oneflow._tables.differences import DIFFERENCES

HERE = Path(__file__).resolve().parents[2]
SOURCE = Path(oneflow.__file__).resolve().parent


# named by errors, rows still to be written by the pages they belong to
PENDING: set = set()

# every difference measured between OneFlow 0.9.0 and torch 2.13
MEASURED = """
    loss-ctor-positional F-loss-positional mod-sign int-floordiv int-0d-float bitwise-logical where-scalar
    adamw-default-wd rmsprop adagrad-default-lr lr-polynomial lr-sequential np-float64-scalar sgd-dampening
    norm-matrix isclose-positional int-neg-sign-square int-pow gumbel-order rmsnorm-eps autocast-cpu
    rng-streams sgd-maximize int-clamp bool-arith nan-minmax empty-reduce instancenorm-running trunc-normal
    normalize-eps set-grad-enabled-call std-false reduce-dtypes linspace-int shape-0d interp-edge
    lgamma-prod-grad dtype-float-creation aliasing numpy-requires-grad zero-grad-default int32-targets
    int-masks leaf-inplace copy-numpy softmax-dim save-layout sampler-init lr-last-step lamb-note
    adam-bias-flag clip-grad-groups tensor-where lr-cawr sgd-args param-group kw-x kw-F extra-args
    scalar-first mixed-matmul version-counter inplace-activations ctor-extras np-interop deepcopy-grad
    inference-mode device-index type-strings bn-batch1 gradscaler hooks ddp int-inputs int-inplace-float
    aug-rebinding function-instance tensor-ctor stft-default orthogonal-init autograd-args nonleaf-rg-false
    jit-noop state-dict-params index-int32 tie-order str-dtype exceptions module-repr module-attrs no-check
    autograd-names set-of-size packed-lengths no-grad-misc of-bugs
""".split()


@pytest.mark.parametrize("id", DIFFERENCES)
def test_row_is_complete_and_its_test_exists(id):
    row = DIFFERENCES[id]
    assert set(row) >= {"names", "oneflow", "here", "reason", "test"} and all(row.values()), row
    path, _, name = row["test"].partition("::")
    text = (HERE / path).read_text()
    assert not name or f"def {name.partition('[')[0]}(" in text, row["test"]


@pytest.mark.parametrize("id", DIFFERENCES)
def test_row_has_a_severity_for_programs_of_both_libraries(id):
    severity = DIFFERENCES[id]["severity"]
    assert set(severity) == {"oneflow", "torch"}
    assert set(severity.values()) <= {"breaks", "changes numbers", "cosmetic", "superset"}


def test_no_id_is_in_two_tables():
    from oneflow._tables.differences import custom_operators, data, eager, legacy, nn, optim, runtime

    tables = (
        custom_operators.OPS,
        data.DATA,
        eager.EAGER,
        legacy.LEGACY,
        nn.NN,
        optim.OPTIM,
        runtime.RUNTIME,
    )
    ids = [id for table in tables for id in table]
    assert len(ids) == len(set(ids))


def test_every_id_an_error_names_is_a_row():
    named = {}
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        for match in re.finditer(
            r"(?:difference_hint\(['\"]|difference row )([a-z0-9]+(?:-[a-z0-9]+)*)", text
        ):
            named.setdefault(match[1], file.name)
        assert "differences.md" not in text, (
            f"{file.name} names a file that an installed package does not have"
        )
        for match in re.finditer(r"unsupported\((?:[^()]|\([^()]*\))*?\"([a-z0-9]+(?:-[a-z0-9]+)+)\"", text):
            named.setdefault(match[1], file.name)
    missing = {i: f for i, f in named.items() if i not in DIFFERENCES and i not in PENDING}
    assert not missing, f"errors name differences without a row: {missing}"


def test_dialect_rows_are_differences():
    covered = {n for row in DIFFERENCES.values() for n in row["names"]}
    mine = {n for n in DIALECT if n.count(".") == 1} - {"oneflow.__version__"}
    assert mine <= covered, mine - covered


def test_every_measured_difference_has_a_row():
    assert len(MEASURED) == 96 and not [i for i in MEASURED if i not in DIFFERENCES]


def test_error_names_the_command_that_prints_its_row():
    import shlex

    from oneflow import __main__ as command
    from oneflow._errors import unsupported

    text = str(unsupported("embeddings over ranks", "one-embedding-shuffle", "Use one rank."))
    words = shlex.split(re.search(r"`(.*?)`", text)[1])
    assert words[:3] == ["python", "-m", "oneflow"]
    assert command.main(words[3:]) == 0


def test_a_reader_that_ends_first_gets_no_traceback():
    command = [sys.executable, "-m", "oneflow", "--difference", "oneflow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 1
