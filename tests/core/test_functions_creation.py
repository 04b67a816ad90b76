"""Creation functions: OneFlow's positions and keywords, global tensors, NumPy scalars, and torch's calls
unchanged.
"""

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.utils.global_view import global_mode

CPU = flow.placement("cpu", [0])
B = flow.sbp.broadcast


def same(a, b):
    assert a.dtype is b.dtype and a.shape == b.shape and torch.equal(a, b)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (lambda: flow.zeros(2, 3), lambda: torch.zeros(2, 3)),
        (lambda: flow.zeros((2, 3), dtype=flow.int32), lambda: torch.zeros(2, 3, dtype=torch.int32)),
        (lambda: flow.zeros(size=(2,)), lambda: torch.zeros(2)),
        (lambda: flow.ones(flow.Size([0, 2])), lambda: torch.ones(0, 2)),
        (lambda: flow.ones(()), lambda: torch.ones(())),
        (lambda: flow.full((2,), 1, flow.float64, "cpu"), lambda: torch.full((2,), 1, dtype=torch.float64)),
        (lambda: flow.full((2,), True), lambda: torch.full((2,), True)),
        (lambda: flow.arange(5), lambda: torch.arange(5)),
        (
            lambda: flow.arange(0, 5, 2, flow.float32, flow.device("cpu")),
            lambda: torch.arange(0, 5, 2, dtype=torch.float32),
        ),
        (lambda: flow.arange(5, None, 2), lambda: torch.arange(0, 5, 2)),
        (
            lambda: flow.arange(5, end=None, step=2, dtype=flow.float32),
            lambda: torch.arange(0, 5, 2, dtype=torch.float32),
        ),
        (lambda: flow.arange(-3, end=None, step=-1), lambda: torch.arange(0, -3, -1)),
        (lambda: flow.arange(start=5, step=2), lambda: torch.arange(0, 5, 2)),
        (lambda: flow.arange(start=1, end=3), lambda: torch.arange(1, 3)),
        (lambda: flow.arange(end=3), lambda: torch.arange(3)),
        (lambda: flow.linspace(0, 1, 3, flow.float64), lambda: torch.linspace(0, 1, 3, dtype=torch.float64)),
        (
            lambda: flow.logspace(0, 1, 3, 2.0, flow.float64),
            lambda: torch.logspace(0, 1, 3, 2.0, dtype=torch.float64),
        ),
        (lambda: flow.eye(2), lambda: torch.eye(2)),
        (lambda: flow.eye(2, None), lambda: torch.eye(2)),
        (lambda: flow.eye(2, 3, dtype=flow.int64), lambda: torch.eye(2, 3, dtype=torch.int64)),
        (lambda: flow.zeros_like(torch.ones(2), flow.int32), lambda: torch.zeros(2, dtype=torch.int32)),
        (lambda: flow.ones_like(input=torch.zeros(2, 1)), lambda: torch.ones(2, 1)),
        (lambda: flow.full_like(torch.ones(2), 3, flow.int64), lambda: torch.full((2,), 3)),
        (lambda: flow.hann_window(4, False), lambda: torch.hann_window(4, False)),
        (lambda: flow.new_zeros(torch.ones(2, dtype=torch.int32)), lambda: torch.zeros(2, dtype=torch.int32)),
        (
            lambda: flow.new_ones(torch.ones(2, dtype=torch.int32), (3,)),
            lambda: torch.ones(3, dtype=torch.int32),
        ),
        (lambda: flow.new_full(torch.ones(2), (2,), 7, flow.int64), lambda: torch.full((2,), 7)),
        (lambda: flow.from_numpy(obj=np.ones(2)), lambda: torch.ones(2, dtype=torch.float64)),
        (lambda: flow.from_numpy(ndarray=np.ones(2)), lambda: torch.ones(2, dtype=torch.float64)),
        (
            lambda: flow.frombuffer(b"\x01\x02", flow.uint8, 1, 1),
            lambda: torch.tensor([2], dtype=torch.uint8),
        ),
        (lambda: flow.zeros(2, out=torch.ones(2)), lambda: torch.zeros(2)),
    ],
)
def test_values_are_torchs(ours, theirs):
    same(ours(), theirs())


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (lambda: flow.rand(3), lambda: torch.rand(3)),
        (lambda: flow.randn(2, 2, dtype=flow.float64), lambda: torch.randn(2, 2, dtype=torch.float64)),
        (lambda: flow.randint(0, 9, (4,)), lambda: torch.randint(0, 9, (4,))),
        (lambda: flow.randint(9, (4,)), lambda: torch.randint(9, (4,))),
        (
            lambda: flow.randint(low=0, high=9, size=(4,), dtype=flow.int32),
            lambda: torch.randint(0, 9, (4,), dtype=torch.int32),
        ),
        (
            lambda: flow.randint_like(x=torch.ones(2), high=9, low=0),
            lambda: torch.randint_like(torch.ones(2), 0, 9),
        ),
        (lambda: flow.randn_like(torch.ones(2)), lambda: torch.randn_like(torch.ones(2))),
        (lambda: flow.randperm(5), lambda: torch.randperm(5)),
        (lambda: flow.normal(1.0, 2.0, 3), lambda: torch.normal(1.0, 2.0, (3,))),
        (lambda: flow.normal(mean=1.0, std=2.0, size=(3,)), lambda: torch.normal(1.0, 2.0, (3,))),
        (lambda: flow.normal(torch.ones(2)), lambda: torch.normal(torch.ones(2))),
        (lambda: flow.bernoulli(torch.full((8,), 0.5)), lambda: torch.bernoulli(torch.full((8,), 0.5))),
        (
            lambda: flow.multinomial(torch.ones(4), 2, False, None),
            lambda: torch.multinomial(torch.ones(4), 2),
        ),
    ],
)
def test_random_numbers_are_torchs_stream(ours, theirs):
    torch.manual_seed(3)
    a = ours()
    torch.manual_seed(3)
    same(a, theirs())


def test_a_generator_is_used():
    g = torch.Generator().manual_seed(5)
    a = flow.rand(2, generator=g)
    same(a, torch.rand(2, generator=torch.Generator().manual_seed(5)))


# ------------------------------------------------------------------ placement and sbp
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: flow.zeros(2, 3, **k),
        lambda **k: flow.full((2,), 1.0, **k),
        lambda **k: flow.arange(4, **k),
        lambda **k: flow.rand(2, **k),
        lambda **k: flow.randint(0, 4, (2,), **k),
        lambda **k: flow.randperm(4, **k),
        lambda **k: flow.eye(2, **k),
        lambda **k: flow.tensor([1.0, 2.0], **k),
        lambda **k: flow.as_tensor([1.0], **k),
        lambda **k: flow.zeros_like(torch.ones(2), **k),
        lambda **k: flow.normal(0.0, 1.0, (2,), **k),
        lambda **k: flow.linspace(0, 1, 3, **k),
        lambda **k: torch.ones(2).new_ones(2, **k),
        lambda **k: torch.ones(2).new_full((2,), 1, **k),
        lambda **k: torch.ones(2).new_tensor([1.0], **k),
        lambda **k: flow.new_zeros(torch.ones(2), **k),
        lambda **k: flow.hann_window(3, **k),
    ],
)
def test_placement_and_sbp_make_a_global_tensor_both_or_neither(make):
    t = make(placement=CPU, sbp=B)
    assert t.is_global and t.placement == CPU and t.sbp == (B,)
    assert make(placement=CPU, sbp=[flow.sbp.split(0)]).sbp == (flow.sbp.split(0),)
    assert make().is_local
    with pytest.raises(TypeError, match="without sbp"):
        make(placement=CPU)
    with pytest.raises(TypeError, match="without placement"):
        make(sbp=B)


def test_a_global_leaf_requires_grad():
    w = flow.ones(2, placement=CPU, sbp=B, requires_grad=True)
    (w * 3).sum().backward()
    assert w.is_leaf and w.grad.to_local().tolist() == [3.0, 3.0]


def test_bad_placements_are_refused():
    with pytest.raises(TypeError, match="oneflow.placement"):
        flow.zeros(2, placement="cpu", sbp=B)
    with pytest.raises(TypeError, match="device= and placement="):
        flow.zeros(2, placement=CPU, sbp=B, device="cpu")
    with pytest.raises(TypeError, match="7 positional"):
        flow.full((2,), 1, flow.int32, "cpu", None, None, False, 0)


def test_global_mode_reaches_creation():
    with global_mode(True, CPU, B):
        assert (
            flow.zeros(2).is_global
            and flow.tensor([1.0]).is_global
            and flow.randn(2).is_global
            and flow.normal(0.0, 1.0, (2,)).is_global
        )
        for make in (
            lambda **k: flow.randn(2, **k),
            lambda **k: flow.tensor([1.0], **k),
            lambda **k: flow.arange(3, **k),
            lambda **k: flow.as_tensor([1.0], **k),
        ):
            created = make(device=flow.zeros(2).device)  # as in a model written for one device
            assert created.is_global and created.placement == CPU and created.sbp == (B,)
        assert flow.zeros(2, device="meta").placement.type == "meta"
        with global_mode(False):
            assert flow.zeros(2, device="cpu").is_local
            assert flow.zeros(2).is_local
    assert flow.zeros(2).is_local


# ------------------------------------------------------------------ tensor and as_tensor
@pytest.mark.parametrize(
    "data, dtype",
    [
        (np.float64(1.5), torch.float32),
        (np.float16(1.5), torch.float32),
        ([np.float64(1.5)], torch.float32),
        ([1, np.float64(1.5)], torch.float32),
        ([[1, np.float64(1.5)]], torch.float32),
        ([np.ones(2), np.ones(2)], torch.float32),
        ([np.ones(2, "int32")], torch.int32),
        (np.int32(2), torch.int32),
        (np.array(1.5), torch.float64),
        (np.ones(2), torch.float64),
        (1.5, torch.float32),
        ([], torch.float32),
        ([[]], torch.float32),
        (True, torch.bool),
        ((1, 2), torch.int64),
        (np.bool_(True), torch.bool),
    ],
)
def test_numpy_scalars_get_the_default_dtype_arrays_keep_theirs(data, dtype):
    for make in (flow.tensor, flow.as_tensor):
        t = make(data)
        assert t.dtype is dtype and np.array_equal(t.numpy(), np.asarray(data, dtype=t.numpy().dtype))


@pytest.mark.parametrize("make", [flow.tensor, flow.as_tensor], ids=["tensor", "as_tensor"])
def test_a_list_of_tensors_is_stacked(make):
    a, b = flow.tensor([[1.0, 2.0]], requires_grad=True), flow.tensor([3, 4])
    assert (
        make([a, a]).shape == (2, 1, 2)
        and not make([a, a]).requires_grad
        and make((a, a), dtype=flow.int64).tolist() == [[[1, 2]], [[1, 2]]]
    )
    assert (
        make([[b, b], [b, b]]).tolist() == [[[3, 4]] * 2] * 2
        and make([b, b]).dtype is flow.int64
        and make([b.sum(), b.sum()]).tolist() == [7, 7]
    )
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        make([a, flow.ones(3)])


def test_the_torch_dialect_keeps_the_scalars_dtype():
    flow.set_dialect("torch")
    try:
        assert flow.tensor is torch.tensor and flow.tensor(np.float64(1.5)).dtype is torch.float64
    finally:
        flow.set_dialect("oneflow")
    assert flow.tensor(np.float64(1.5)).dtype is torch.float32


def test_tensor_takes_what_torch_refuses():
    assert flow.tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert flow.tensor([300, -1], dtype=flow.uint8).tolist() == [44, 255]
    with pytest.raises(ValueError):
        flow.tensor([[1], [1, 2]])
    with pytest.raises(RuntimeError):
        flow.tensor(object())


def test_tensor_copies_and_as_tensor_shares():
    a = np.zeros(2, dtype=np.float32)
    assert flow.tensor(a).data_ptr() != a.ctypes.data and flow.as_tensor(a).data_ptr() == a.ctypes.data
    t = flow.tensor([1.0], requires_grad=True)
    assert t.is_leaf and t.requires_grad


def test_type_constructors():
    assert flow.FloatTensor(torch.ones(2, dtype=torch.int32)).dtype is torch.float32
    assert flow.FloatTensor([1, 2]).tolist() == [1.0, 2.0] and flow.FloatTensor(2, 3).shape == (2, 3)
    assert (
        flow.DoubleTensor(1.5).tolist() == 1.5
        and flow.LongTensor(np.array([1, 2], "int32")).dtype is torch.int64
    )
    assert flow.ComplexFloatTensor([1j]).dtype is torch.complex64 and flow.ComplexDoubleTensor(2).shape == (
        2,
    )
    assert isinstance(torch.ones(1), flow.FloatTensor) and not isinstance(torch.ones(1), flow.LongTensor)
    here = {"placement": flow.placement("cpu", [0]), "sbp": flow.sbp.split(0)}
    assert (
        flow.IntTensor([1, 2], **here).sbp == (flow.sbp.split(0),)
        and flow.IntTensor([1, 2], **here).dtype is torch.int32
    )
    assert flow.FloatTensor(2, 3, **here).is_global and flow.FloatTensor(2, 3, **here).shape == (2, 3)
    with pytest.raises(TypeError, match="sbp"):
        flow.FloatTensor(2, placement=here["placement"])
    with pytest.raises(TypeError, match="device"):
        flow.FloatTensor(2, device="cpu", **here)


def test_sizes_of_normal_one_by_one():
    assert flow.normal(0, 1, 2, 3).shape == (2, 3) and flow.normal(0.0, 1.0, 4).shape == (4,)


def test_cuda_is_torchs_with_the_complex_constructors():
    import oneflow.cuda.amp
    from oneflow.cuda.type_tensor import FloatTensor

    assert (
        flow.cuda.is_available is torch.cuda.is_available
        and FloatTensor is torch.cuda.FloatTensor
        and flow.cuda.amp is oneflow.cuda.amp
    )
    assert repr(flow.cuda.ComplexFloatTensor) == "<class 'oneflow.cuda.ComplexFloatTensor'>"
    assert not isinstance(torch.ones(1, dtype=torch.complex64), flow.cuda.ComplexFloatTensor)


def test_default_tensor_type_in_oneflows_spelling():
    try:
        flow.set_default_tensor_type("oneflow.DoubleTensor")
        assert flow.zeros(1).dtype is torch.float64 and flow.tensor(np.float32(1)).dtype is torch.float64
        flow.set_default_tensor_type(flow.FloatTensor)
        assert flow.zeros(1).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_generators_of_the_device_named_auto_and_the_default_ones():
    g = flow.Generator(device="auto")
    assert isinstance(g, flow.Generator) and type(g) is torch.Generator and g.device == flow.device("cpu")
    assert g.initial_seed() == flow.Generator("cpu").initial_seed()
    with pytest.raises(RuntimeError):
        flow.Generator(device="invalid")
    internal = flow._oneflow_internal
    assert (
        flow.framework.generator.default_generator
        is flow.default_generator
        is internal.default_generator()
        is internal.default_generator("cpu")
    )
    assert internal.create_generator("auto").manual_seed(3).initial_seed() == 3


def test_rand_like_makes_global_tensors_and_takes_a_generator():
    x = flow.rand_like(flow.ones(2, 3), placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast)
    assert x.is_global and x.shape == (2, 3)
    a, b = (
        flow.rand_like(x.to_local(), dtype=flow.float64, generator=flow.Generator().manual_seed(1))
        for _ in range(2)
    )
    assert a.dtype == flow.float64 and torch.equal(a, b)
