"""Top-level functions that keep torch's meaning: rows of _tables/differences/eager.py."""

import pytest
import torch

import oneflow as flow

T = torch.tensor


def t():
    return T([1.0, 2.0, -3.0])


def m():
    return torch.arange(6.0).reshape(2, 3)


# ------------------------------------------------------------------ torch's meaning kept: rows of _tables/dif
def test_reductions_of_empty_tensors_are_torchs():
    empty = torch.ones(0)
    assert flow.mean(empty).isnan() and flow.prod(empty) == 1
    with pytest.raises(RuntimeError):
        flow.max(empty)


def test_shapes_of_0d_are_torchs():
    assert flow.flatten(T(1.0)).shape == (1,) and flow.index_select(m(), 0, T(1)).shape == (1, 3)
    assert (1,) + m().shape == (1, 2, 3)


def test_splits_are_views():
    x = m()
    for piece in (
        flow.tensor_split(x, 2, 1)[0],
        flow.hsplit(x, [1])[0],
        flow.vsplit(x, 2)[0],
        flow.split(x, 1)[0],
    ):
        assert piece.data_ptr() == x.data_ptr()
    assert x.repeat(1, 1).data_ptr() != x.data_ptr()


def test_changing_a_saved_tensor_raises():
    x = t().requires_grad_()
    y = x * 1
    z = y.exp() * y
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_texts_are_torchs():
    assert (
        str(flow.float32) == "torch.float32"
        and repr(t()) == "tensor([ 1.,  2., -3.])"
        and str(m().shape) == "torch.Size([2, 3])"
    )
    assert (t().requires_grad_() * 2).grad_fn.name() == "MulBackward0"
    with flow.no_grad() as c:
        assert c is None


def test_defects_are_not_reproduced():
    assert flow.roll(m(), 1, -1).tolist() == [[2.0, 0.0, 1.0], [5.0, 3.0, 4.0]]
    x = torch.zeros(2, 2)
    x.t()[0].fill_(1)
    assert x.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    with pytest.raises((RuntimeError, ValueError)):
        flow.cat([])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(1, 1),
        lambda x: flow.mean(x, 0, 1),
        lambda x: flow.prod(x, 1, 0),
        lambda x: flow.logsumexp(x, 0, 1),
        lambda x: flow.all(x, 0, 1),
        lambda x: flow.any(x, 0, 1),
        flow.vstack,
        flow.hstack,
        lambda x: x.requires_grad_(1),
    ],
)
def test_flags_are_bools_and_lists_are_lists(call):
    with pytest.raises(TypeError):
        call(flow.ones(2, 3))


def test_parts_of_complex_numbers_are_attributes():
    x = torch.tensor([1 + 2j])
    assert x.real.tolist() == flow.real(x).tolist() == [1] and x.imag.tolist() == flow.imag(x).tolist() == [2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: flow.nn.functional.glu(T([1, 2])),
        lambda: flow.nn.functional.adaptive_max_pool3d(torch.ones(1, 1, 4, 4, 4), (2,)),
        pytest.param(
            lambda: flow.nn.functional.grid_sample(
                torch.ones(1, 1, 2, 2, 2), torch.zeros(1, 1, 1, 1, 3), mode="bicubic", align_corners=True
            ),
            marks=pytest.mark.skipif(
                tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15),
                reason="torch 2.15 takes volumes",
            ),
        ),
        lambda: flow.fmod(T([True]), T([True])),
        lambda: T([True]) % T([True]),
        lambda: flow.nn.ConvTranspose1d(1, 1, 3, output_padding=1)(torch.ones(1, 1, 4)),
        lambda: flow.nn.functional.avg_pool1d(torch.ones(1, 1, 4), 3, 1, (1, 0)),
    ],
)
def test_inputs_that_torch_refuses(call):
    """Difference inputs-torch-refuses."""
    with pytest.raises(RuntimeError):
        call()
