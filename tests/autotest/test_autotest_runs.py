"""How cases are sampled and rerun: counting, refusals, seeds, shrinking, replay from the database, the
printed script.
"""

import os
import random as python_random
import subprocess
import sys
import unittest

import numpy as np
import pytest
import torch
from planted import Library, failure, graph_class, harness, passes

import oneflow_autotest
from oneflow_autotest import Mismatch
from oneflow_autotest.generators import random


@pytest.fixture
def api():
    return harness()


def drawn_cases(api, n=6, **options):
    seen = []

    @api.autotest(n=n, check_graph=False, **options)
    def run(case):
        x = api.random_tensor(ndim=2, dim0=random(1, 4))
        seen.append(
            (tuple(x.shape), x.pytorch.detach().numpy().tobytes(), python_random.random(), np.random.rand())
        )
        return x * 2

    run(None)
    return seen


def test_n_counts_valid_cases(api):
    seen = []

    @api.autotest(n=7, check_graph=False)
    def run(case):
        x = api.random_tensor(ndim=2, dim0=random(1, 5), dim1=2)
        seen.append(x.shape[0].pytorch)
        y = api.torch.cat([x, api.random_tensor(ndim=2, dim0=2, dim1=2)], dim=1)
        seen[-1] = "valid"
        return y

    run(None)
    assert seen.count("valid") == 7 and len(seen) > 7


def test_nothing_accepted_is_an_error_and_bounded(api):
    calls = []

    @api.autotest(n=2, check_graph=False)
    def run(case):
        calls.append(1)
        return api.torch.cat([api.random_tensor(1, 2), api.random_tensor(2, 2)])

    with pytest.raises(ValueError, match="refused all .* cases .* nothing was tested; last refusal"):
        run(None)
    assert len(calls) <= 2 * 20 + 21


def test_the_first_case_is_not_the_simplest_one(api, monkeypatch):
    for seed in range(5):
        monkeypatch.setenv("ONEFLOW_TEST_SEED", str(seed))
        ((shape, content, _, _),) = drawn_cases(api, n=1)
        assert any(content), "a test with n=1 would only ever see zeros"


def test_a_seed_repeats_the_cases_and_another_does_not(api, monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "5")
    first = drawn_cases(api)
    assert drawn_cases(api) == first
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "6")
    assert drawn_cases(api) != first


def test_ci_repeats_the_cases_without_a_seed(api, monkeypatch):
    monkeypatch.delenv("ONEFLOW_TEST_SEED")
    monkeypatch.setenv("CI", "1")
    assert drawn_cases(api) == drawn_cases(api)
    monkeypatch.delenv("CI")
    assert drawn_cases(api) != drawn_cases(api)


def test_a_failure_is_shrunk(api):
    bug = harness(matmul=lambda a, b: a @ b + (a.shape[1] >= 3))

    def program(api):
        n, m, k = (random(1, 7).to(int) for _ in range(3))
        return api.torch.matmul(api.random_tensor(2, n, m), api.random_tensor(2, m, k))

    e = failure(bug, program)
    assert "x0 = lib.tensor([[0, 0, 0]]" in str(e) and "x1 = lib.tensor([[0], [0], [0]]" in str(e)


def test_values_are_shrunk(api):
    e = failure(
        harness(relu=lambda x: x.relu() - (x < -0.5).float()),
        lambda api: api.torch.relu(api.random_tensor(3, low=-1, high=1)),
    )
    assert "x0 = lib.tensor([[[-0.8]]]" in str(e)


def test_a_failing_example_is_replayed_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_DATABASE", str(tmp_path))
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "1")
    sizes = []

    def relu(x):
        sizes.append(x.numel())
        return x.relu() + 1 if x.numel() >= 40 else x.relu()

    api = harness(relu=relu)

    @api.autotest(n=50, check_graph=False)
    def run(case):
        return api.torch.relu(api.random_tensor(2, random(1, 8), random(1, 8)))

    with pytest.raises(Mismatch):
        run(None)
    smallest = sizes[-1]
    assert smallest in (40, 42) and any(tmp_path.rglob("*"))
    sizes.clear()
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "2")
    with pytest.raises(Mismatch):
        run(None)
    assert sizes[0] == smallest, "the stored example was not the first one tried"


BUGGY = """
import torch
from torch import *

nn, autograd, Tensor, float32 = torch.nn, torch.autograd, torch.Tensor, torch.float32


def relu(x):
    return torch.relu(x) + (x > 0.5)
"""


def test_the_printed_script_stands_alone_and_fails(tmp_path, monkeypatch):
    (tmp_path / "buggylib.py").write_text(BUGGY)
    monkeypatch.syspath_prepend(tmp_path)
    import buggylib

    api = oneflow_autotest.bind(torch, buggylib, names=("torch", "buggylib"))
    with pytest.raises(Mismatch) as caught:
        passes(
            api,
            lambda api: api.torch.relu(api.torch.nn.Linear(3, 2)(api.random_tensor(2, 2, 3))) * 2,
            check_graph=False,
        )
    report = str(caught.value)
    lines = report.split("-" * 78)
    script = tmp_path / "repeat.py"
    script.write_text(lines[1].lstrip("\n"))
    assert "oneflow_autotest" not in lines[1]
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ran.returncode == 1 and "AssertionError: v3 differs" in ran.stderr, ran.stderr
    script.write_text(lines[1].lstrip("\n").replace("import buggylib as flow", "import torch as flow"))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.endswith("no difference\n"), ran.stderr


def test_the_graph_script_stands_alone(tmp_path):
    e = failure(
        harness(nn__Graph=graph_class(outputs=lambda t: t + 1)),
        lambda api: api.torch.nn.Linear(2, 2)(api.random_tensor(2, 2, 2)),
        check_graph=True,
    )
    script = tmp_path / "repeat.py"
    script.write_text(
        str(e).split("-" * 78)[1].lstrip("\n").replace("import buggy as flow", "import oneflow as flow")
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.endswith("no difference\n"), ran.stderr + str(e)


def test_the_command_repeats_the_failure():
    e = failure(harness(relu=lambda x: x.relu() + 1), lambda api: api.torch.relu(api.random_tensor(1)))
    assert 'ONEFLOW_TEST_SEED=20 python -m pytest "' in str(
        e
    ) and "::test_the_command_repeats_the_failure" in str(e)


def test_an_assertion_of_the_test_itself_is_shrunk_and_keeps_its_class(api):
    class Own(unittest.TestCase):
        @api.autotest(n=20, check_graph=False)
        def program(self):
            x = api.random_tensor(1, dim0=random(1, 30))
            self.assertLess(x.shape[0].pytorch, 7)

    with pytest.raises(AssertionError, match="7 not less than 7") as caught:
        Own("program").program()
    assert "as a script" in str(caught.value)


def test_other_exceptions_of_the_test_pass_through(api):
    @api.autotest(n=3, check_graph=False)
    def run(case):
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        run(None)
    # Python 3.10 prints it
    notes = "".join(getattr(caught.value, "__notes__", ["before it used either library"]))
    assert (
        caught.value.args == ("mine",)
        and "before it used either library" in notes
        and "as a script" not in notes
    )
    with pytest.raises(KeyError):
        run(None)


def test_settings_and_bounds_that_mean_nothing_are_refused(api, monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SEED", "1")
    with pytest.raises(ValueError, match="values are low <= x < high, found low=3 and high=1"):
        api.autotest(n=1, check_graph=False)(lambda case: api.random_tensor(2, low=3, high=1).pytorch)(None)
    monkeypatch.setenv("ONEFLOW_TEST_GRAPH", "sometimes")
    with pytest.raises(ValueError, match="ONEFLOW_TEST_GRAPH must be one of on, off, all, found 'sometimes'"):
        api.autotest(n=1)(lambda case: api.random_tensor(2))(None)


def test_a_skip_is_a_skip(api):
    @api.autotest(n=3)
    def run(case):
        raise unittest.SkipTest("not here")

    with pytest.raises(unittest.SkipTest, match="not here"):
        run(None)


def test_verbose_prints_the_program_and_the_graph(api, monkeypatch, capsys):
    monkeypatch.setenv("ONEFLOW_TEST_VERBOSE", "1")
    passes(api, lambda api: api.torch.relu(api.random_tensor(2) + 1), n=1)
    out = capsys.readouterr().out
    assert "v1 = x0 + 1" in out and "v2 = lib.relu(v1)" in out and "aten" in out


@pytest.mark.parametrize("mode, accepted", [("class", False), ("any", True), ("no", True)])
def test_how_errors_are_compared_can_be_chosen(monkeypatch, mode, accepted):
    monkeypatch.setenv("ONEFLOW_TEST_ERRORS", mode)

    def cat(tensors):
        raise KeyError

    api = harness(cat=cat)

    def program(api):
        n = random(1, 3).to(int).value()
        x = api.random_tensor(1, 2)
        return x if n == 1 else api.torch.cat([x, api.random_tensor(2, 2)])

    if accepted:
        passes(api, program, check_graph=False)
    else:
        assert failure(api, program).check == "class of error"


def test_a_library_that_accepts_more_than_the_reference():
    cat = lambda tensors: tensors[0] if len({t.dim() for t in tensors}) > 1 else torch.cat(tensors)
    api = oneflow_autotest.bind(torch, Library(cat=cat), accepts_more=True)
    passes(
        api,
        lambda api: api.torch.cat([api.random_tensor(1, 2), api.random_tensor(random(1, 3).to(int), 2, 1)]),
        check_graph=False,
    )
    with pytest.raises(unittest.SkipTest, match="reference refuses every case.*number of dimensions"):
        passes(api, lambda api: api.torch.cat([api.random_tensor(1, 2), api.random_tensor(2)]))
    with pytest.raises(unittest.SkipTest, match="reference refuses every case"):  # Hypothesis gives up first
        passes(api, lambda api: api.torch.cat([api.random_tensor(1, 2), api.random_tensor(2)]), n=60)
    wrong = oneflow_autotest.bind(torch, Library(relu=lambda x: x.relu() + 1), accepts_more=True)
    assert failure(wrong, lambda api: api.torch.relu(api.random_tensor(2, low=-1))).check == "values"


def test_backward_of_one_side_by_hand_is_the_tests_own_affair(api):
    def program(api):
        x = api.random_tensor(2)
        (x.buggy * 3).sum().backward()
        return x * 2

    passes(api, program, check_graph=False)
    both = failure(
        harness(mul=lambda a, b: (a * b).detach().requires_grad_()),
        lambda api: api.torch.mul(api.random_tensor(2), 2).sum().backward(),
    )
    assert both.check == "gradient"


def test_the_length_of_a_dual_object_has_two_sides(api):
    def program(api):
        n = api.torch.nn.functional.max_pool1d(
            api.random_tensor(3, 1, 1, 4), 2, return_indices=True
        ).__len__()
        assert n == 2 and n.pytorch == 2 and n.buggy == 2
        return api.random_tensor(1)

    passes(api, program)


def test_environment_chooses_n_and_the_graph(monkeypatch):
    api = harness(nn__Graph=graph_class(outputs=lambda t: t + 1))
    count = []
    monkeypatch.setenv("ONEFLOW_TEST_N", "3")
    monkeypatch.setenv("ONEFLOW_TEST_GRAPH", "off")
    passes(api, lambda api: count.append(1) or api.random_tensor(1) * 2, n=50, check_graph=True)
    assert len(count) == 3
    monkeypatch.setenv("ONEFLOW_TEST_GRAPH", "all")
    assert failure(api, lambda api: api.random_tensor(1) * 2, check_graph=False).check == "graph: values"


def test_a_failure_that_does_not_come_again_is_reported_as_such(api):
    calls = []

    @api.autotest(n=20, check_graph=False)
    def run(case):
        calls.append(1)
        assert len(calls) != 7, "the seventh"
        return api.random_tensor(2) * 2

    with pytest.raises(AssertionError, match="the seventh(.|\n)*did not fail again when it was repeated"):
        run(None)


def test_a_failure_that_is_not_shrunk_for_lack_of_time_is_deterministic(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_SHRINK_SECONDS", "0")
    e = failure(harness(relu=lambda x: x.relu() + 1), lambda api: api.torch.relu(api.random_tensor(2)))
    assert "smallest failing case found" in str(e) and "did not fail again" not in str(e)


def test_the_command_names_every_setting_that_chooses_the_cases(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TEST_N", "30")
    monkeypatch.setenv("ONEFLOW_TEST_LIKE", "oneflow")
    e = failure(harness(relu=lambda x: x.relu() + 1), lambda api: api.torch.relu(api.random_tensor(2)))
    assert "ONEFLOW_TEST_SEED=20 ONEFLOW_TEST_N=30 ONEFLOW_TEST_LIKE=oneflow python -m pytest" in str(e)


def test_without_hypothesis_cases_are_drawn_but_not_shrunk(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    seen = []
    api = harness()

    def program(api):
        x = api.random_tensor(ndim=2, dim0=random(1, 4), dim1=2)
        y = api.torch.cat([x, api.random_tensor(ndim=2, dim0=2, dim1=2)], dim=1)
        seen.append(1)
        return y

    passes(api, program, n=6)
    assert len(seen) == 6
    e = failure(
        harness(relu=lambda x: x.relu() + (x > 0.5)), lambda api: api.torch.relu(api.random_tensor(2))
    )
    assert e.check == "values" and "as a script" in str(e)


def test_the_graph_check_reports_nothing_about_the_harness(api, recwarn):
    """Its build() replays the record: iterators of the harness and results that the record keeps."""

    @api.autotest(n=2, check_graph=True)
    def run(case):
        x = api.random_tensor(ndim=2, dim0=2, dim1=3)
        return api.torch.nn.functional.silu(api.torch.nn.Linear(3, 2)(x))

    run(None)
    assert [str(warning.message) for warning in recwarn] == []
