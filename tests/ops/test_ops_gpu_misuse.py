"""Custom operators on a GPU refuse arguments that do not fit, and obey torch's switch for deterministic
algorithms.
"""

import contextlib
import re
from pathlib import Path

import pytest
import torch
from gpu_cases import (
    DEVICE,
    EMULATED,
    _as_on_cuda,  # noqa: F401
    cuda,
    moved,
    operator,
)
from kernel_cases import run
from ops_table import OPS
from test_ops_registration import SAMPLES
from torch._subclasses.fake_tensor import FakeTensorMode

from oneflow._kernels import _ext, kernels, registration

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not EMULATED and not torch.cuda.is_available(), reason="no CUDA device"),
]


def is_tensors(argument):
    return (
        isinstance(argument, torch.Tensor)
        or isinstance(argument, list)
        and bool(argument)
        and isinstance(argument[0], torch.Tensor)
    )


CUDA_SOURCES = sorted((Path(__file__).parents[2] / "csrc" / "cuda").glob("*.cu"))

CUDA_NAMES = {name for path in CUDA_SOURCES for name in re.findall(r'm\.impl\("(\w+)"', path.read_text())}

ON_CUDA = [
    (op, [a.detach() if isinstance(a, torch.Tensor) else a for a in args])
    for op, args in SAMPLES
    if str(op).split(".")[-1] in CUDA_NAMES
]


@pytest.mark.parametrize(
    "op, args", ON_CUDA, ids=lambda s: str(s).split(".")[-1] if not isinstance(s, list) else ""
)
def test_a_tensor_on_another_device_is_refused(op, args):
    """Dispatched to the kernels of the first tensor's device: meta beside cpu, cpu beside cuda."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU if EMULATED else torch._C.DispatchKey.CUDA)
    args = [moved(a, DEVICE) if is_tensors(a) else a for a in args]
    tensors = [i for i, a in enumerate(args) if is_tensors(a)]
    op.default.redispatch(keys, *args)
    for i in tensors[1:]:
        strange = [moved(a, "meta" if EMULATED else "cpu") if k == i else a for k, a in enumerate(args)]
        with pytest.raises(RuntimeError, match="device"):
            op.default.redispatch(keys, *strange)


def misfits():
    x, one, half = torch.ones(4, 6), torch.ones(1), torch.ones(1, dtype=torch.float16)
    heads, table = torch.ones(2, 3, 2, 6), torch.ones(1, 3, 4)
    yield "pointwise", (kernels.POINT["iou"], [x, x], 1, [0.1]), "inputs must have 5 entries, found 2"
    yield "pointwise", (kernels.POINT["ciou"], [x] * 4, 1, [0.1]), "outputs must be 2 to 2, found 1"
    yield "fake_quantize", (x, half, half, -1.0, 1.0), "scale must have dtype float32, float64, found float16"
    yield "fake_quantize", (x, one, one.double(), -1.0, 1.0), "zero_point must have the dtype of scale"
    yield "fake_quantize", (x, one[:0], one, -1.0, 1.0), "scale must have 1 element, found 0"
    yield "bias_dropout", (x, x[0], 1, 0.5, torch.tensor(1.0)), "seed must have dtype int64, found float32"
    yield (
        "masked_softmax",
        (x, torch.ones(4, 5, dtype=torch.bool), 0, 1.0, 0.0, 0.0, None),
        r"mask must have the sizes of x, \(4, 6\), or 1, found \(4, 5\)",
    )
    yield (
        "masked_softmax_backward",
        (x, x[:3], x, None, 0, 1.0, 0.5, torch.tensor(1)),
        r"ddropped must have the shape of y, \(4, 6\), found \(3, 6\)",
    )
    yield "rotary", (heads, table, table, 0, False, [0, 1, 2, 3], False), "parts must be at least 1, found 0"
    yield "rotary", (heads, table, table, 4, False, [0, 1, 2, 3], False), "parts must part the 4 columns"
    yield (
        "rotary",
        (heads.half(), table.half(), table.half(), 1, False, [0, 1, 2, 3], False),
        "cos must have dtype float32, found float16",
    )
    yield (
        "rotary",
        (heads, table, table.double(), 1, False, [0, 1, 2, 3], False),
        "sin must have the dtype of cos",
    )
    yield "adam_", ([x], [x], [x.double()], [x], [0.0] * 8), r"m\[0\] must have the dtype of"
    yield "adam_", ([x], [x], [x], [x[:3]], [0.0] * 8), r"v\[0\] must have the shape of"
    yield "momentum_", ([x], [x], [], [0.0] * 6), "buffer must have 1 entry, found 0"
    yield (
        "ctc_greedy_decode",
        (torch.ones(3, 2, 4), torch.ones(2, dtype=torch.int32), True),
        "input_lengths must have dtype int64, found int32",
    )
    yield (
        "ctc_greedy_decode",
        (torch.ones(3, 2, 4), torch.ones(1, dtype=torch.int64), True),
        r"input_lengths must have shape \(2\), found \(1\)",
    )


@pytest.mark.parametrize(
    "name, args, message",
    list(misfits()),
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_arguments_that_do_not_fit_are_refused(name, args, message):
    with pytest.raises(RuntimeError, match=f"oneflow::{name}: {message}"):
        operator(name)(*(moved(a, DEVICE) if is_tensors(a) else a for a in args))


def test_a_mask_of_size_one_holds_for_every_row_and_column():
    x = torch.randn(2, 3, 4, 33)
    for shape in ((1, 1, 1, 33), (2, 1, 4, 1), (2, 3, 4, 1), (1, 3, 1, 33)):
        mask = torch.rand(shape) > 0.4
        actual = operator("masked_softmax")(*cuda([x, mask]), 0, 2.0, -9.0, 0.0, None)[0].cpu()
        torch.testing.assert_close(actual, torch.softmax(torch.where(mask, 2 * x, -9.0), -1))


# --------------------------------------------------------------------------- determinism
@pytest.fixture
def deterministic():
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def backward_calls(device):
    how = [3, 3], [1, 1], [1, 1], [1, 1], 1
    x, offset = torch.zeros(1, 2, 5, 5, device=device), torch.zeros(1, 18, 5, 5, device=device)
    yield (
        "roi_align_backward",
        (
            torch.zeros(1, 2, 2, 2, device=device),
            torch.zeros(1, 5, device=device),
            [1, 2, 5, 5],
            1.0,
            2,
            True,
        ),
    )
    yield "deform_columns_backward", (torch.zeros(1, 2, 9, 5, 5, device=device), x, offset, None, *how)


def on_cuda():
    """A mode in which tensors on cuda exist without a GPU."""
    return FakeTensorMode() if EMULATED else contextlib.nullcontext()


def test_atomics_raise_the_alert_of_deterministic_algorithms(deterministic):
    with on_cuda():
        for name, args in backward_calls("cuda"):
            with pytest.raises(
                RuntimeError, match=f"oneflow::{name} on CUDA does not have a deterministic implementation"
            ):
                operator(name)(*args)
            with (
                pytest.raises(RuntimeError, match="does not have a deterministic implementation"),
                torch._C._AutoDispatchBelowAutograd(),
            ):
                operator(name)(*args)
            torch.use_deterministic_algorithms(True, warn_only=True)
            with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
                operator(name)(*args)
            torch.use_deterministic_algorithms(False)
            operator(name)(*args)
            torch.use_deterministic_algorithms(True)


def test_the_cpu_kernels_raise_no_alert(deterministic):
    for name, args in backward_calls("cpu"):
        operator(name)(*args)


def test_two_kernels_add_by_atomics():
    """The operator of a third one belongs into registration.NOT_DETERMINISTIC_ON_CUDA too."""
    sources = [path.read_text() for path in CUDA_SOURCES]
    bodies = {
        name: body
        for text in sources
        for name, body in re.findall(r"__global__ void (\w+)\((.*?)\n\}", text, re.S)
    }
    assert {name for name, body in bodies.items() if "atomicAdd(" in body} == {
        "roi_kernel",
        "deform_backward_kernel",
    }
    assert registration.NOT_DETERMINISTIC_ON_CUDA == ("roi_align_backward", "deform_columns_backward")


def test_a_gradient_on_cuda_must_be_deterministic(deterministic):
    with on_cuda():
        x, offset = (
            torch.zeros(1, 2, 5, 5, device="cuda", requires_grad=True),
            torch.zeros(1, 18, 5, 5, device="cuda"),
        )
        assert _ext.needs_deterministic_gradient(x) and _ext.needs_deterministic_gradient(offset, None, x)
        assert not _ext.needs_deterministic_gradient(offset, None, offset)
        with torch.no_grad():
            assert not _ext.needs_deterministic_gradient(x)
        torch.use_deterministic_algorithms(False)
        assert not _ext.needs_deterministic_gradient(x)
    assert not _ext.needs_deterministic_gradient(torch.zeros(1, requires_grad=True))


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.name.startswith(("roi_align", "deform_conv2d"))], ids=lambda op: op.name
)
def test_public_functions_take_the_plain_one_where_the_gradient_must_be_deterministic(op, monkeypatch):
    _ext.status()
    monkeypatch.setattr(_ext, "needs_deterministic_gradient", lambda *tensors: True)
    monkeypatch.setattr(kernels.run, "roi_align", None)
    monkeypatch.setattr(kernels.run, "deform_columns", None)
    inputs = cuda(op.make(torch.float32, 7))
    for actual, plain in zip(run(op.call, op, inputs), run(op.plain, op, inputs)):
        torch.testing.assert_close(actual, plain)  # the plain gradients add in any order on a GPU, too
