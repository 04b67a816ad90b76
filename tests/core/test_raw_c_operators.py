"""Argument lists of `oneflow._C` that OneFlow's own tests and clients use."""

import pytest
import torch

import oneflow as flow

C = flow._C


# --------------------------------------------------------------------------- oneflow._C
def test_pooling_operators_always_give_the_indices():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    for got in (
        C.max_pool2d(x, [2, 2]),
        C.max_pool2d(x, [2, 2], return_indices=False),
        C.adaptive_max_pool2d(x, [2, 2]),
    ):
        out, index = got
        assert (
            out.tolist() == [[[[5, 7], [13, 15]]]]
            and index.tolist() == [[[[5, 7], [13, 15]]]]
            and index.dtype == torch.int64
        )
    assert C.max_pool1d(x[0], [2], data_format="channels_first")[0].shape == (1, 4, 2)
    out = C.adaptive_avg_pool2d(x=x.movedim(1, -1), output_size=[2, 2], data_format="channels_last")
    assert out.flatten().tolist() == [2.5, 4.5, 10.5, 12.5] and out.shape == (1, 2, 2, 1)


def test_shapes_come_as_one_list():
    assert C.broadcast_shapes([(2,), (3, 1)]) == C.broadcast_shapes(shapes=[(2,), (3, 1)]) == (3, 2)


def test_argwhere_is_padded_and_counted():
    index, count = C.argwhere(torch.tensor([[1, 0], [1, 1]]))
    assert index.shape == (4, 2) and index.dtype == count.dtype == torch.int32 and count.tolist() == [3]
    assert index[:3].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert C.argwhere(x=torch.ones(1), dtype=torch.int64)[0].dtype == torch.int64


def test_unique_has_small_counts_and_two_orders_of_arguments():
    x = torch.tensor([3, 1, 3, 2])
    assert C.unique(x, True, torch.int64).tolist() == [1, 2, 3]
    values, inverse, counts = C.unique(x=x, sorted=True, return_inverse=True, return_counts=True)
    assert (
        inverse.tolist() == [2, 0, 2, 1]
        and counts.tolist() == [1, 1, 2]
        and inverse.dtype == counts.dtype == torch.int32
    )


def test_norms_are_those_of_linalg():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (
        C.norm(x, 1).item() == 6
        and C.norm(x, ord=1, dim=1).tolist() == [3, 7]
        and C.norm(x).item() == pytest.approx(30**0.5)
    )
    assert (
        C.vector_norm(input=x, ord=1).item() == 10
        and C.matrix_norm(x, "fro", [0, 1], False, dtype=torch.float64).dtype == torch.float64
    )


def test_arguments_that_have_other_names_in_oneflow():
    x = torch.arange(24.0).reshape(2, 3, 4)
    same = [
        (C.cosine_similarity(x=x, y=x), torch.cosine_similarity(x, x)),
        (C.prelu(x=-x, alpha=torch.full((3,), 0.5)), -x / 2),
        (C.margin_ranking_loss(x, x, x, 0.5, "mean"), torch.tensor(0.5)),
        (C.tensordot(x, x, dims_a=[0, 1], dims_b=[0, 1]), torch.tensordot(x, x, ([0, 1], [0, 1]))),
        (C.tensordot(a=x, b=torch.ones(4, 5), dims=1), x.sum(-1, keepdim=True).expand(2, 3, 5)),
        (C.reduce_nansum(input=x, dim=[1], keepdim=False), x.sum(1)),
        (C.expand(x=x[:1], shape=[2, 3, 4]), x[:1].expand(2, 3, 4)),
        (C.view(x=x, shape=[6, 4]), x.reshape(6, 4)),
        (C.fill_(**{"in": x.clone(), "value": 3.0}), torch.full_like(x, 3)),
        (C.bernoulli_(input=x.clone(), p=1.0), torch.ones_like(x)),
        (C.add(inputs=[x, x, x]), 3 * x),
        (C.fft(x, -1), torch.fft.fft(x)),
        (C.rfft(input=x, n=2, dim=0), torch.fft.rfft(x, 2, 0)),
        (C.embedding(x[0], torch.tensor([1, 2]), None), x[0, 1:3]),
        (C.depend(input=x, depends=[x]), x),
        (C.celu(x=-x, alpha=2.0, inplace=True), torch.celu(-x, 2.0)),
        (C.hardshrink(x=x, lambd=3.0, inplace=True), torch.nn.functional.hardshrink(x, 3.0)),
        (C.threshold(x=x, threshold=3.0, value=7.0), torch.threshold(x, 3.0, 7.0)),
        (C.less(5, x), x > 5),
        (C.transpose(x, 0, dim1=-1), x.transpose(0, -1)),
        (C.transpose(x, perm=[2, 0, 1]), x.permute(2, 0, 1)),
        (C.transpose(x, (2, 0, 1)), x.permute(2, 0, 1)),
        (C.to(x, other=x.double(), copy=False), x.double()),
        (C.einsum(equation="ijk,ijk->i", operands=[x, x]), (x * x).sum((1, 2))),
        (C.broadcast_tensors(tensors=[x[:1], x])[0], x[:1].expand(2, 3, 4)),
        (C.less_equal(5, x), x >= 5),
    ]
    for i, (got, want) in enumerate(same):
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=f"row {i}")
    rows = C.meshgrid([torch.arange(2), torch.arange(3)], "ij")
    assert rows[1].tolist() == [[0, 1, 2], [0, 1, 2]] and C.meshgrid(tensors=[torch.arange(2)])[
        0
    ].tolist() == [0, 1]
    assert (C.exponential_(x=x.clone(), lambd=1e6) < 1e-3).all()
    with pytest.raises(TypeError, match="dims_a"):
        C.tensordot(x, x)
    with pytest.raises(TypeError, match="embedding_renorm_"):
        C.embedding_renorm_(x[0], torch.tensor([0]))


def test_images_and_buffers_under_their_raw_names():
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    got = C.grid_sample(
        x, torch.zeros(1, 2, 2, 2), interpolation_mode="nearest", padding_mode="zeros", align_corners=False
    )
    assert got.flatten().tolist() == [10] * 4 + [26] * 4
    assert C.upsample(x, 2.0, 1.0, False, "nearest", "channels_first").shape == (1, 2, 8, 4)
    buffer = C.tensor_to_tensor_buffer(input=x, instance_dims=2)
    assert torch.equal(C.tensor_buffer_to_tensor(input=buffer, instance_shape=(4, 4), dtype=torch.float32), x)


def test_scatter_in_place_and_embedding_renorm():
    x, index = torch.zeros(2, 2), torch.zeros(1, 2, dtype=torch.int64)
    assert C.scatter(x, 0, index, 9.0, inplace=True) is x and x.tolist() == [[9, 9], [0, 0]]
    assert (
        C.scatter(x, 0, index, torch.ones(1, 2), reduce="add").tolist() == [[10, 10], [0, 0]] and x[0, 0] == 9
    )
    w = torch.tensor([[3.0, 4.0], [6.0, 8.0]], requires_grad=True)
    C.embedding_renorm_(w, torch.tensor([1]), 5.0, 2.0)
    torch.testing.assert_close(w.detach(), torch.tensor([[3.0, 4.0], [3.0, 4.0]]))


def test_batch_norm_in_steps_is_batch_norm():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    want = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, eps=1e-5)
    dy = torch.randn_like(want)
    (dx,) = torch.autograd.grad(want, x, dy)
    with torch.no_grad():
        mean, invstd = C.batch_norm_stats(x, 1, 1e-5)
        torch.testing.assert_close(C.batch_norm_elemt(x, weight, bias, mean, invstd, 1, 1e-5), want)
        sum_dy, sum_dy_xmu, dw, db = C.batch_norm_backward_reduce(dy, x, mean, invstd, 1)
        count = torch.tensor([20])
        torch.testing.assert_close(
            C.batch_norm_backward_elemt(dy, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count, 1), dx
        )
    torch.testing.assert_close(db, dy.sum((0, 2)))
    torch.testing.assert_close(dw, (dy * (want.detach() - bias[:, None]) / weight[:, None]).sum((0, 2)))


def test_attention_with_a_seed_repeats_its_mask_and_leaves_the_generator():
    q = torch.randn(1, 1, 4, 8)
    before = torch.get_rng_state()
    a, b = (C.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=7) for _ in range(2))
    assert torch.equal(a, b) and torch.equal(before, torch.get_rng_state())
    assert not torch.equal(a, C.scaled_dot_product_attention(q, q, q, dropout_p=0.5, seed=8))


@pytest.mark.parametrize("name", ["ccrelu", "TestReshape", "TestSource", "cpu_only_relu_test"])
def test_operators_of_oneflows_own_tests_are_no_names(name):
    with pytest.raises(AttributeError, match=f"'oneflow._C' has no attribute {name!r}"):
        getattr(C, name)
