"""A fixed subset of `make fuzz-ops`, and self-tests that check its reports."""

import ctypes
import os
import random
import signal
import time

import fuzz_ops
import operator_calls
import pytest
import torch
from fuzz_ops import Outcome, refusal, run_in_children
from guarded import Arena
from operator_calls import BUILDERS, Call, draw
from time_limits import seconds

from oneflow._kernels import _ext

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")


def test_random_calls_are_accepted_or_refused_by_name():
    outcomes = list(fuzz_ops.fuzz(range(1500)))
    failures = [
        f"seed {seed}: {outcome.kind}: {outcome.detail}\n    {call}"
        for seed, call, outcome in outcomes
        if outcome.failed
    ]
    assert len(outcomes) == 1500 and not failures, "\n".join(failures)
    assert {call.operator for _, call, outcome in outcomes if outcome.kind == "accepted"} == set(
        fuzz_ops.operators("cpu")
    )


def test_every_operator_has_a_builder():
    registered = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("oneflow::")
    }
    # they make and call runs of operators, whose handles no random number is (test_operator_runs.py)
    of_runs = {"add_argument", "add_call", "new_run", "remove_run", "run_of_operators", "set_outputs"}
    assert registered - of_runs == set(BUILDERS)


def test_a_seed_is_a_call():
    names = fuzz_ops.operators("cpu")
    assert str(draw(7, names)) == str(draw(7, names)) != str(draw(8, names))


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_opcheck_of_empty_tensors(name, monkeypatch):
    monkeypatch.setattr(operator_calls, "SIZES", (0,))
    arguments = fuzz_ops.Caller("cpu").arguments(Call(name, tuple(BUILDERS[name](random.Random(0)))), 0)
    torch.library.opcheck(
        getattr(torch.ops.oneflow, name).default,
        tuple(arguments),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.parametrize("at_end", [True, False])
def test_a_read_beyond_a_tensor_is_a_crash(at_end):
    tensor = Arena(1).tensor(torch.arange(5.0), at_end)
    outside = tensor.data_ptr() + 20 if at_end else tensor.data_ptr() - 1

    def run(seed):
        if seed == 1:
            ctypes.string_at(outside, 1)
        return Outcome("accepted", str(tensor.sum().item()))

    outcomes = dict(run_in_children(run, range(3), 30.0))
    assert {seed: outcome.kind for seed, outcome in outcomes.items()} == {
        0: "accepted",
        1: "crash",
        2: "accepted",
    }
    assert outcomes[0].detail == "10.0" and outcomes[1].detail == "SIGSEGV"


def test_a_call_that_does_not_end_is_slow():
    outcomes = dict(
        run_in_children(lambda seed: time.sleep(600) if seed else Outcome("accepted"), range(2), seconds(5))
    )
    assert [outcomes[0].kind, outcomes[1].kind] == ["accepted", "slow"]


def test_a_child_that_ends_itself_is_a_crash():
    outcomes = dict(run_in_children(lambda seed: os.kill(os.getpid(), signal.SIGFPE), range(1), 30.0))
    assert outcomes[0] == Outcome("crash", "SIGFPE")


@pytest.mark.parametrize("message, kind", [
    ("oneflow::mm: a must have 2 dimensions, found 3: shape (1, 2, 3)", "refused"),
    ("oneflow::mm: weight must have 2 dimensions, found 3", "unnamed error"),
    ("a must have 2 dimensions, found 3", "unnamed error"),
    ("oneflow::mm: a must have 2 dimensions", "unnamed error"),
    ("oneflow: can't allocate memory for a tensor of shape (4)", "too large"),
])  # fmt: skip
def test_an_error_names_its_argument(message, kind):
    assert refusal(torch.ops.oneflow.mm.default, RuntimeError(message)).kind == kind
