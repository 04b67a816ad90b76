"""`import oneflow` changes nothing in a process for code that does not use it."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oneflow._tables.tensor import TENSOR

PROBES = Path(__file__).with_name("drop_in_probes.py")
EXTENDED = [name for name, (row_type, *_) in TENSOR.items() if row_type == "replace"]
ADDED = {name for name, (row_type, *_) in TENSOR.items() if row_type != "replace"}
# NumPy reads a tensor with __array__(), which calls numpy(): of bfloat16, and of a leaf that requires grad.
BY_NUMPY = "__array__"


@pytest.fixture(scope="module")
def outcomes():
    """The outcomes of all probes with plain torch, and after `import oneflow`."""
    runs = [
        subprocess.Popen(
            [sys.executable, PROBES, name, " ".join(EXTENDED)], stdout=subprocess.PIPE, text=True
        )
        for name in ("torch", "oneflow")
    ]
    return [json.loads(run.communicate()[0]) for run in runs]


def method_of(probe):
    return probe.removeprefix("handled ").split()[0].split("(")[0]


def test_every_probe_gives_what_plain_torch_gives(outcomes):
    """An extended method may give a result where torch raises. Nothing else differs."""
    plain, ours = outcomes
    differences = {}
    for probe, outcome in plain.items():
        is_addition = outcome[0] == "raises" and (
            method_of(probe) == BY_NUMPY or method_of(probe) in EXTENDED and ours[probe][0] == "gives"
        )
        if ours[probe] != outcome and probe != "dir" and not is_addition:
            differences[probe] = outcome, ours[probe]
    assert len(plain) > 5000 and not differences


def test_only_the_names_of_the_table_are_new(outcomes):
    plain, ours = outcomes
    assert set(ours["dir"]) - set(plain["dir"]) == ADDED and set(plain["dir"]) <= set(ours["dir"])


@pytest.mark.parametrize("name", sorted(n for n, row in TENSOR.items() if row[0] in ("method", "builtin")))
def test_an_added_method_is_itself_after_pickling(name):
    method = getattr(torch.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) is method


@pytest.mark.parametrize(
    "probe", ["compile", "export", "lazy layer", "script", "grad", "vmap", "jvp", "save"]
)
def test_a_probe_runs(probe, outcomes):
    """A probe that raises with both would show no difference."""
    assert outcomes[0][probe][0] == "gives", outcomes[0][probe]


def test_a_table_made_before_the_import_handles_every_method(outcomes):
    handled, ours = (
        {probe for probe, outcome in run.items() if "'handled" in str(outcome[1])} for run in outcomes
    )
    assert len(handled) > 300 and handled - ours == set()
    assert {"view", "matmul", "sub", "requires_grad_", "numpy"} <= set(map(method_of, ours))


FAILURES_IN_TRACES = """
import sys
if sys.argv[1] == "oneflow":
    import oneflow
import torch
for step in (
    lambda t: (t.t() * 2).view(6),
    lambda t: t.matmul(t.double()),
    lambda t: t.mm(t.t().double()),
    lambda t: t.t().double().matmul(t),
    lambda t: t.softmax(dim=5),
    lambda t: t.long().softmax(0),
    lambda t: t.split([1, 5]),
    lambda t: t.gather(0, t),
    lambda t: t.long().std(),
):
    try:
        print("gives", torch.jit.trace(step, torch.ones(2, 3), check_trace=False)(torch.ones(2, 3)))
    except Exception as error:
        print("raises", type(error).__name__, str(error).splitlines()[0])
"""


def test_an_operator_that_fails_in_a_trace_fails_as_in_torch():
    plain, ours = (
        subprocess.run([sys.executable, "-W", "ignore", "-c", FAILURES_IN_TRACES, name], capture_output=True)
        for name in ("torch", "oneflow")
    )
    assert ours.returncode == 0 and ours.stdout == plain.stdout and ours.stdout.count(b"raises") == 9
