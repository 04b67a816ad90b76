"""Settings of torch are guarded: a call under another setting equals eager, and the former setting reuses the
first program.
"""

import contextlib

import pytest
import torch
from graph_cases import graph_of


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic(**options):
    torch.use_deterministic_algorithms(True, **options)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def matmul_precision(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def slow_attention_layers():
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


SETTINGS = {
    "default dtype": (lambda: default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (lambda: torch.device("meta"), torch.get_default_device),
    "grad mode": (torch.no_grad, torch.is_grad_enabled),
    "deterministic": (deterministic, torch.are_deterministic_algorithms_enabled),
    "warn only": (
        lambda: deterministic(warn_only=True),
        torch.is_deterministic_algorithms_warn_only_enabled,
    ),
    "matmul precision": (lambda: matmul_precision("medium"), torch.get_float32_matmul_precision),
    "attention kernel": (
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        torch.backends.cuda.flash_sdp_enabled,
    ),
    "mkldnn": (lambda: torch.backends.mkldnn.flags(enabled=False), lambda: torch._C._get_mkldnn_enabled()),
    "fast attention layers": (slow_attention_layers, torch.backends.mha.get_fastpath_enabled),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_setting_is_followed(name):
    context, read = SETTINGS[name]
    step = graph_of(lambda x: (x * 2, str(read())))
    x = torch.ones(3)
    first = step(x)[1]
    with context():
        assert step(x)[1] == str(read()) != first
        programs = len(step._engine.programs)
    assert step(x)[1] == first and len(step._engine.programs) == programs == 2


def test_a_factory_follows_the_default_dtype():
    step = graph_of(lambda x: torch.full((2,), 0.1) + x.new_zeros(2))
    x = torch.ones(1)
    assert step(x).dtype is torch.float32
    with default_dtype(torch.float64):
        assert step(x).dtype is torch.float64
    assert any(
        "default_dtype" in str(e) and "float64" in str(e) for e in step._engine.assumptions.explanations
    )


def test_a_default_dtype_set_in_build_holds_for_its_operators():
    def build(x):
        with default_dtype(torch.float64):
            inside = torch.ones(2), torch.full((2,), 0.1), torch.rand_like(x), torch.arange(0.0, 2.0)
        return *inside, torch.ones(2)

    step, x = graph_of(build), torch.ones(2)
    for _ in range(3):
        assert [y.dtype for y in step(x)] == [y.dtype for y in build(x)]


def test_a_default_dtype_set_in_build_is_refused_for_quotients_of_integers():
    def build(x):
        with default_dtype(torch.float64):
            return x / 2

    with pytest.raises(RuntimeError, match="(?s)makes torch.float64 of integers.*Convert the integers first"):
        graph_of(build)(torch.arange(3))


def test_training_ignores_the_grad_mode():
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    step = graph_of(lambda x: layer(x).sum().backward(), optimizer, layer=layer)
    step(torch.ones(1, 2))
    with torch.no_grad():
        step(torch.ones(1, 2))
    assert len(step._engine.programs) == 1


def test_a_setting_that_torch_refuses_to_tell_is_no_error():
    """torch raises if its older and its newer settings of matrix products contradict each other."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with pytest.raises(RuntimeError, match="matmul precision"):
            torch.get_float32_matmul_precision()
        step = graph_of(lambda x: x * 2)
        for _ in range(2):
            assert torch.equal(step(torch.ones(3)), torch.full((3,), 2.0))
        assert len(step._engine.programs) == 1
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
