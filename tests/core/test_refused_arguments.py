"""Calls that OneFlow 0.9.0 refuses on a CPU raise OneFlow's error class, which often is torch's too."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch

import oneflow as flow
from oneflow import nn
from oneflow.nn import functional as F

ones = flow.ones
CPU, BROADCAST = flow.placement("cpu", [0]), flow.sbp.broadcast


def deform(**options):
    return F.deform_conv2d(
        ones(1, 2, 4, 4), flow.zeros(1, 18, 2, 2), options.pop("weight", ones(3, 2, 3, 3)), **options
    )


REFUSED = {
    "three_operands_of_two_sizes": (lambda: flow.add(ones(2), ones(1), ones(2)), RuntimeError),
    "three_operands_of_two_dtypes": (lambda: flow.add(ones(2), ones(2).double(), ones(2)), RuntimeError),
    "three_raw_operands_of_two_sizes": (lambda: flow._C.add(ones(2), ones(2), ones(3)), RuntimeError),
    "smooth_l1_of_two_dtypes": (lambda: nn.SmoothL1Loss()(ones(2), ones(2).double()), TypeError),
    "smooth_l1_function_of_two_dtypes": (lambda: F.smooth_l1_loss(ones(2), ones(2).long()), TypeError),
    "smooth_l1_of_two_sizes": (lambda: nn.SmoothL1Loss()(ones(2), ones(1)), RuntimeError),
    "softmax_cross_entropy_of_two_dtypes": (
        lambda: flow._C.softmax_cross_entropy(ones(2, 3), ones(2, 3).double()),
        TypeError,
    ),
    "float_labels": (lambda: flow._C.sparse_softmax_cross_entropy(ones(2, 3), ones(2)), TypeError),
    "bool_labels": (lambda: flow._C.sparse_cross_entropy(ones(2, 3), ones(2).bool(), 3), TypeError),
    "float_labels_of_the_function": (lambda: F.sparse_softmax_cross_entropy(ones(2), ones(2, 3)), TypeError),
    "labels_of_another_batch": (
        lambda: F.sparse_softmax_cross_entropy(ones(3).long(), ones(2, 3)),
        RuntimeError,
    ),
    "split_like_other_sizes": (
        lambda: flow._C.split_like(ones(4, 2), [ones(2, 2), ones(2, 3)], 0),
        RuntimeError,
    ),
    "split_like_other_dimensions": (lambda: flow._C.split_like(ones(4), [ones(2), ones(2)], 1), RuntimeError),
    "deform_conv2d_stride": (lambda: deform(stride=(0, 0)), RuntimeError),
    "deform_conv2d_weight": (lambda: deform(weight=ones(2, 3, 3)), RuntimeError),
    "straighten_mode": (lambda: nn.Graph().config.enable_straighten_algorithm(True), AssertionError),
    "reduction": (lambda: nn.MSELoss(reduction="x"), AssertionError),
    "device_type": (lambda: flow.device("xpu"), RuntimeError),
    "placement_type": (lambda: flow.placement("xpu", [0]), RuntimeError),
    "placement_of_a_number": (lambda: flow.placement(3, [0]), TypeError),
    "split_of_a_string": (lambda: flow.sbp.split("a"), AssertionError),
    "split_of_a_fraction": (lambda: flow.sbp.split(1.0), AssertionError),
    "to_global_without_placement": (lambda: ones(2).to_global(placement=None, sbp=BROADCAST), RuntimeError),
    "to_global_without_sbp": (lambda: ones(2).to_global(placement=3), RuntimeError),
    "to_global_function_without_placement": (
        lambda: flow.to_global(ones(2), placement=None, sbp=BROADCAST),
        ValueError,
    ),
    "to_global_of_a_list_without_placement": (lambda: flow.to_global([ones(2)]), AssertionError),
    "grad_sbp": (lambda: ones(2, placement=CPU, sbp=BROADCAST).to_global(grad_sbp=3), TypeError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_oneflows_class_of_error(name):
    call, error = REFUSED[name]
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("dialect", ["oneflow", "torch", "oneflow-0.9"])
def test_a_slice_with_a_step_of_0_is_pythons_error(dialect):
    """The error is raised where C reads the slice: a __getitem__ in Python would make tensors sequences for
    C.
    """
    before = flow.get_dialect()
    flow.set_dialect(dialect)
    try:
        for call in (lambda x: x[::0], lambda x: x.__setitem__(slice(None, None, 0), 1.0)):
            with pytest.raises(ValueError, match="slice step cannot be zero") as error:
                call(ones(3))
            assert error.type is ValueError
    finally:
        flow.set_dialect(before)


ACCEPTED = {
    "sums": lambda: (
        flow.add(ones(2), ones(2), ones(2)).tolist()
        == flow._C.add(ones(2), ones(2), ones(2)).tolist()
        == [3, 3]
    ),
    "two_operands_broadcast": lambda: flow.add(ones(2, 1), ones(2).double()).shape == (2, 2),
    "alpha_by_position": lambda: flow._C.add(ones(2), 1, 2).tolist() == [3, 3],
    "smooth_l1": lambda: F.smooth_l1_loss(ones(2), ones(2)).item() == 0,
    "int_labels": lambda: F.sparse_softmax_cross_entropy(ones(2).int(), ones(2, 3)).shape == (2,),
    "split_like": lambda: len(flow._C.split_like(ones(4, 2), [ones(2), ones(2)], 0)) == 2,
    "batchmean": lambda: nn.KLDivLoss(reduction="batchmean").reduction == "batchmean",
    "meta_device": lambda: flow.device("meta").type == "meta",
    "called_split": lambda: flow.sbp.split(0)() == flow.sbp.split(0),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_as_in_oneflow(name):
    assert ACCEPTED[name]()


def test_smooth_l1_under_autocast_takes_two_dtypes():
    with flow.autocast("cpu", dtype=flow.bfloat16):
        assert F.smooth_l1_loss(ones(2).bfloat16(), ones(2)).item() == 0


def test_a_mock_device_is_a_type_without_tensors():
    import subprocess
    import sys

    code = """
import oneflow as flow
assert flow.device("mock") == flow.device("mock:0") and flow.device("mock", 1).index == 1 and flow.device("mock").type == "mock"
assert str(flow.placement("mock", [0])) == 'oneflow.placement(type="mock", ranks=[0])'
try:
    flow.ones(2, device="mock")
except (RuntimeError, NotImplementedError):
    print("refused")
"""  # noqa: E501
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "refused"
    )


@pytest.mark.skipif(flow.cuda.is_available(), reason="is about a machine without CUDA")
def test_the_current_device_without_cuda_is_the_rank(monkeypatch):
    assert (
        flow.cuda.current_device() == 0
        and flow.cuda.set_device(0) is None
        and flow.cuda.synchronize() is None
    )
    with pytest.raises(ValueError, match="the only index is 0"):
        flow.cuda.set_device(5)
    with pytest.raises(ValueError, match="takes a CUDA device"):
        flow.cuda.set_device("cpu")
    with pytest.raises(RuntimeError, match="sees no CUDA device"):
        flow.placement.all("cuda")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert flow.cuda.current_device() == 3


def test_numbers_in_global_tensors_and_parameters_take_a_format():
    loss = ones(2, placement=CPU, sbp=BROADCAST).sum()
    assert (
        f"{loss:>7f}" == "2.000000"
        and f"{loss.long():5d}" == "    2"
        and f"{nn.Parameter(flow.tensor(1.5)):.2f}" == "1.50"
    )
    with pytest.raises(TypeError):
        format(ones(2, placement=CPU, sbp=BROADCAST), ">7f")


def test_as_tensor_shares_an_arrays_memory_as_oneflows_does():
    import numpy as np

    array = np.zeros(2, np.float32)
    shared = flow.as_tensor(array)
    array[0] = 5
    assert shared.tolist() == [5, 0]


CALLS = json.loads(
    (Path(__file__).resolve().parents[1] / "golden" / "refused_calls.json").read_text(encoding="utf-8")
)["calls"]


def outcomes(call):
    """ "ok", or the names of the error's class and its bases."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, {"flow": flow, "o": flow.ones})
    except Exception as error:
        return {cls.__name__ for cls in type(error).__mro__}
    return {"ok"}


# Before torch 2.13, torch reads text or None as the name of a dimension and raises RuntimeError.
HAS_NAMED_DIMENSIONS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
NAMED_DIMENSION = re.compile(r"\(o\(2,3\)\)\.(all|any|mean|sum|cumsum|index_add)\(('a'|None)")


def accepted(call, expected):
    return (
        {*expected, "RuntimeError"} if HAS_NAMED_DIMENSIONS and NAMED_DIMENSION.match(call) else set(expected)
    )


@pytest.mark.parametrize("part", range(8))
def test_misfit_arguments_are_refused_as_recorded(part):
    """A documented function with one invalid argument has OneFlow's outcome, or the recorded other outcome of
    this package.
    """
    wrong = {
        call: (expected, sorted(actual))
        for call, expected in list(CALLS.items())[part::8]
        if not (actual := outcomes(call)) & accepted(call, expected)
    }
    assert not wrong


def test_nine_in_ten_misfit_arguments_have_oneflows_outcome():
    assert len(CALLS) > 1000 and sum(len(expected) == 1 for expected in CALLS.values()) > 0.9 * len(CALLS)
