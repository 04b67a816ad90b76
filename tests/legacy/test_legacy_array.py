"""Top-level array functions of job functions against NumPy and torch."""

import numpy as np
import pytest
import torch
from legacy_jobs import gradient, result_of_job

import oneflow.compatible.single_client as flow

rng = np.random.default_rng(1)
X = rng.normal(size=(4, 6)).astype(np.float32)
Y = rng.normal(size=(4, 6)).astype(np.float32)
I4 = np.array([3, 0, 2, 2], np.int32)
IMG = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)


def tf_gather(params, indices, axis, batch_dims=0):
    if batch_dims == 0:
        return np.take(params, indices, axis)
    return np.stack([tf_gather(p, i, axis - 1, batch_dims - 1) for p, i in zip(params, indices)])


def onehot(i, n, axis=-1, on=1, off=0):
    return np.moveaxis(np.where(np.arange(n) == i[..., None], on, off), -1, axis)


def scatter(indices, updates, base, add):
    out = base.copy()
    for i, u in zip(indices, updates):
        out[tuple(i)] = out[tuple(i)] + u if add else u
    return out


ND = np.array([[0, 1], [3, 5], [2, 2]], np.int32)
U3 = np.array([1.0, 2.0, 3.0], np.float32)

# id: (function of blobs, arrays, numpy reference)
CASES = {
    "reshape": (lambda x: flow.reshape(x, shape=[2, -1], name="r"), [X], lambda x: x.reshape(2, -1)),
    "reshape_like": (
        lambda x, y: flow.reshape_like(x, like=y),
        [X, Y.reshape(3, 8)],
        lambda x, y: x.reshape(3, 8),
    ),
    "dynamic_reshape": (lambda x: flow.dynamic_reshape(x, (6, -1)), [X], lambda x: x.reshape(6, -1)),
    "transpose": (
        lambda x: flow.transpose(x, perm=[0, 2, 3, 1], name="t"),
        [IMG],
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "transpose-reversed": (lambda x: flow.transpose(x), [IMG], lambda x: x.transpose()),
    "flatten": (lambda x: flow.flatten(x, start_dim=1, end_dim=2), [IMG], lambda x: x.reshape(2, 12, 5)),
    "squeeze": (lambda x: flow.squeeze(x, [-1, 0]), [X[None, :, :, None]], lambda x: x[0, :, :, 0]),
    "expand_dims": (lambda x: flow.expand_dims(x, axis=1), [X], lambda x: x[:, None]),
    "expand": (lambda x: flow.expand(x, [4, 3]), [X[:, :1]], lambda x: np.broadcast_to(x, (4, 3))),
    "broadcast_like": (
        lambda x, y: flow.broadcast_like(x, like=y, broadcast_axes=(0,)),
        [X[0], Y],
        lambda x, y: np.broadcast_to(x, y.shape),
    ),
    "broadcast_like-one": (
        lambda x, y: flow.broadcast_like(x, y, broadcast_axes=(0, 1)),
        [X[0, :1], Y],
        lambda x, y: np.broadcast_to(x, y.shape),
    ),
    "broadcast_to_compatible_with": (
        lambda x, y: flow.broadcast_to_compatible_with(x, [y]),
        [X[:1], Y],
        lambda x, y: np.broadcast_to(x, y.shape),
    ),
    "identity": (lambda x: flow.identity(x), [X], lambda x: x),
    "identity_n": (lambda x, y: flow.identity_n([x, y])[1], [X, Y], lambda x, y: y),
    "amp_white_identity": (lambda x: flow.amp_white_identity(x), [X], lambda x: x),
    "cast_to_static_shape": (lambda x: flow.cast_to_static_shape(x), [X], lambda x: x),
    "cast_to_current_logical_view": (lambda x: flow.cast_to_current_logical_view(x), [X], lambda x: x),
    "parallel_cast": (
        lambda x: flow.parallel_cast(
            x, distribute=flow.distribute.split(0), gradient_distribute=flow.distribute.broadcast()
        ),
        [X],
        lambda x: x,
    ),
    "hierarchical_parallel_cast": (
        lambda x: flow.hierarchical_parallel_cast(
            x, nd_sbp=["S(0)", "B"], grad_mode="manual", grad_nd_sbp=["P"]
        ),
        [X],
        lambda x: x,
    ),
    "cast": (lambda x: flow.cast(x, dtype=flow.int8), [X * 10], lambda x: x.astype(np.int8)),
    "concat": (
        lambda x, y: flow.concat([x, y], axis=1, name="c"),
        [X, Y],
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "concat-values": (
        lambda x, y: flow.concat(axis=0, values=[x, y]),
        [X, Y],
        lambda x, y: np.concatenate([x, y]),
    ),
    "stack": (lambda x, y: flow.stack([x, y], axis=1), [X, Y], lambda x, y: np.stack([x, y], 1)),
    "reverse": (lambda x: flow.reverse(x, [0, 1]), [X], lambda x: x[::-1, ::-1]),
    "sort": (lambda x: flow.sort(x, axis=0, direction="DESCENDING"), [X], lambda x: -np.sort(-x, 0)),
    "argsort": (lambda x: flow.argsort(x), [X], lambda x: x.argsort(-1).astype(np.int32)),
    "elem_cnt": (lambda x: flow.elem_cnt(x), [X], lambda x: np.array(24, np.int32)),
    "clip_by_value": (
        lambda x: flow.clip_by_value(x, min_value=-0.5, max_value=0.2),
        [X],
        lambda x: np.clip(x, -0.5, 0.2),
    ),
    "clip_by_value-int": (
        lambda x: flow.clip_by_value(x, min_value=1.5),
        [I4],
        lambda x: np.maximum(x, np.int32(1)),
    ),
    "clip": (lambda x: flow.clip(x, max_value=0.1), [X], lambda x: np.minimum(x, 0.1)),
    "clip_by_scalar": (lambda x: flow.clip_by_scalar(x, 0.0), [X], lambda x: np.maximum(x, 0)),
    "clamp": (lambda x: flow.clamp(x, -1, 1), [X], lambda x: np.clip(x, -1, 1)),
    "matmul": (
        lambda x, y: flow.matmul(x, y, transpose_b=True, alpha=0.5),
        [X, Y],
        lambda x, y: 0.5 * x @ y.T,
    ),
    "matmul-ta": (lambda x, y: flow.matmul(a=x, b=y, transpose_a=True), [X, Y], lambda x, y: x.T @ y),
    "linalg.matmul": (lambda x, y: flow.linalg.matmul(x, y, transpose_b=True), [X, Y], lambda x, y: x @ y.T),
    "diag": (lambda x: flow.diag(x, 1), [X], lambda x: np.diag(x, 1)),
    "pad": (
        lambda x: flow.pad(x, paddings=[(1, 0), (0, 2)], constant_value=3),
        [X],
        lambda x: np.pad(x, [(1, 0), (0, 2)], constant_values=3),
    ),
    "pad_grad": (lambda x: flow.pad_grad(x, [(1, 0), (0, 2)]), [X], lambda x: x[1:, :-2]),
    "constant_pad2d": (
        lambda x: flow.constant_pad2d(x, [1, 2, 0, 1], 1.5),
        [IMG],
        lambda x: np.pad(x, [(0, 0), (0, 0), (0, 1), (1, 2)], constant_values=1.5),
    ),
    "zero_pad2d": (
        lambda x: flow.zero_pad2d(x, 2),
        [IMG],
        lambda x: np.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)]),
    ),
    "reflection_pad2d": (
        lambda x: flow.reflection_pad2d(x, [1, 2, 2, 1]),
        [IMG],
        lambda x: np.pad(x, [(0, 0), (0, 0), (2, 1), (1, 2)], mode="reflect"),
    ),
    "replication_pad2d": (
        lambda x: flow.replication_pad2d(x, [1, 2, 2, 1]),
        [IMG],
        lambda x: np.pad(x, [(0, 0), (0, 0), (2, 1), (1, 2)], mode="edge"),
    ),
    "same_padding": (
        lambda x: flow.same_padding(x, "same_upper", "NCHW", [2, 2], [1, 1], [1, 1]),
        [IMG],
        lambda x: np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)]),
    ),
    "count_not_finite": (
        lambda x: flow.count_not_finite(x),
        [np.array([1, np.inf, np.nan], np.float32)],
        lambda x: np.array([2]),
    ),
    "multi_count_not_finite": (
        lambda x, y: flow.multi_count_not_finite([x, y]),
        [np.array([1, np.inf], np.float32)] * 2,
        lambda x, y: np.array([2]),
    ),
    "smooth_l1_loss": (
        lambda x, y: flow.smooth_l1_loss(x, y, beta=0.5),
        [X, Y],
        lambda x, y: np.where(abs(x - y) < 0.5, (x - y) ** 2, abs(x - y) - 0.25),
    ),
    "masked_fill": (
        lambda x, m: flow.masked_fill(x, m, 9.0),
        [X, (X > 0).astype(np.int8)],
        lambda x, m: np.where(m, 9.0, x),
    ),
    "constant": (
        lambda: flow.constant(value=3, dtype=flow.float, shape=(2, 3)),
        [],
        lambda: np.full((2, 3), 3.0, np.float32),
    ),
    "constant_scalar": (lambda: flow.constant_scalar(2.5), [], lambda: np.array([2.5], np.float32)),
    "constant_like": (
        lambda x: flow.constant_like(x, 4, dtype=flow.int32),
        [X],
        lambda x: np.full(x.shape, 4, np.int32),
    ),
    "zeros": (lambda: flow.zeros(shape=(2, 2), dtype=flow.int32), [], lambda: np.zeros((2, 2), np.int32)),
    "ones": (lambda: flow.ones(shape=[3]), [], lambda: np.ones(3, np.float32)),
    "zeros_like": (lambda x: flow.zeros_like(x), [X], np.zeros_like),
    "ones_like": (
        lambda x: flow.ones_like(like=x, dtype=flow.int8),
        [X],
        lambda x: np.ones(x.shape, np.int8),
    ),
    "range": (
        lambda: flow.range(2, 10, 3, dtype=flow.float, name="r"),
        [],
        lambda: np.arange(2, 10, 3, dtype=np.float32),
    ),
    "range-one": (lambda: flow.range(4), [], lambda: np.arange(4)),
    "gather": (lambda x, i: flow.gather(params=x, indices=i), [X, I4], lambda x, i: x[i]),
    "gather-axis": (
        lambda x, i: flow.gather(x, i, axis=1),
        [X, I4.reshape(2, 2)],
        lambda x, i: np.take(x, i, 1),
    ),
    "gather-batch": (
        lambda x, i: flow.gather(x, i, batch_dims=2),
        [IMG, np.array([[[1, 0]] * 3] * 2, np.int32)],
        lambda x, i: tf_gather(x, i, 2, 2),
    ),
    "gather-batch-axis": (
        lambda x, i: flow.gather(x, i, batch_dims=1, axis=2),
        [IMG, np.array([[1, 0, 3], [2, 2, 0]], np.int32)],
        lambda x, i: tf_gather(x, i, 2, 1),
    ),
    "dim_gather": (
        lambda x, i: flow.dim_gather(x, 1, i),
        [X, np.array([[1], [0], [5], [2]], np.int32)],
        lambda x, i: np.take_along_axis(x, i.astype(np.int64), 1),
    ),
    "gather_nd": (lambda x, i: flow.gather_nd(params=x, indices=i), [X, ND], lambda x, i: x[tuple(i.T)]),
    "gather_nd-rows": (lambda x, i: flow.gather_nd(x, i), [X, ND[:, :1]], lambda x, i: x[i[:, 0]]),
    "scatter_nd": (
        lambda i, u: flow.scatter_nd(i, u, (4, 6)),
        [np.array([[0, 1], [0, 1], [2, 2]], np.int32), U3],
        lambda i, u: scatter(i, u, np.zeros((4, 6), np.float32), True),
    ),
    "tensor_scatter_nd_update": (
        lambda x, i, u: flow.tensor_scatter_nd_update(params=x, indices=i, updates=u),
        [X, ND, U3],
        lambda x, i, u: scatter(i, u, x, False),
    ),
    "tensor_scatter_nd_add": (
        lambda x, i, u: flow.tensor_scatter_nd_add(x, i, u),
        [X, ND, U3],
        lambda x, i, u: scatter(i, u, x, True),
    ),
    "one_hot": (
        lambda i: flow.one_hot(i, depth=5, dtype=flow.float),
        [I4],
        lambda i: onehot(i, 5).astype(np.float32),
    ),
    "one_hot-axis": (
        lambda i: flow.one_hot(i, 5, on_value=2, off_value=-1, axis=0),
        [I4],
        lambda i: onehot(i, 5, 0, 2, -1).astype(np.int32),
    ),
    "where": (
        lambda c, x, y: flow.where(c, x, y),
        [(X > 0).astype(np.int32), X, Y],
        lambda c, x, y: np.where(c, x, y),
    ),
    "argwhere": (
        lambda x: flow.argwhere(x, dtype=flow.int64),
        [np.array([[0, 1], [2, 0]], np.float32)],
        np.argwhere,
    ),
    "where-positions": (
        lambda x: flow.where(x),
        [np.array([[0, 1], [2, 0]], np.float32)],
        lambda x: np.argwhere(x).astype(np.int32),
    ),
    "nonzero": (
        lambda x: flow.nonzero(x),
        [np.array([[0, 1], [2, 0]], np.float32)],
        lambda x: np.stack(np.nonzero(x)).astype(np.int32),
    ),
    "slice": (lambda x: flow.slice(x, begin=[1, None], size=[2, -1]), [X], lambda x: x[1:3]),
    "slice-negative": (lambda x: flow.slice(x, [-2, 1], [2, 3]), [X], lambda x: x[-2:, 1:4]),
    "slice_v2": (lambda x: flow.slice_v2(x, [(None, None, -1), (1, 5, 2)]), [X], lambda x: x[::-1, 1:5:2]),
    "slice_update": (
        lambda x, u: flow.slice_update(x, u, [(1, 3, 1), (0, 6, 2)]),
        [X, np.ones((2, 3), np.float32)],
        lambda x, u: np.concatenate([x[:1], np.where(np.arange(6) % 2 == 0, 1, x[1:3]), x[3:]]),
    ),
    "experimental.logical_slice": (
        lambda x: flow.experimental.logical_slice(x, [(1, 3, 1)]),
        [X],
        lambda x: x[1:3],
    ),
    "experimental.square_sum": (
        lambda x: flow.experimental.square_sum(x),
        [X],
        lambda x: np.array([(x * x).sum()]),
    ),
    "in_top_k": (
        lambda t, p: flow.in_top_k(t, p, 1),
        [np.array([1, 0, 4, 2], np.int32), X],
        lambda t, p: (p.argmax(1) == t).astype(np.int8),
    ),
    "unsorted_segment_sum": (
        lambda x, i: flow.unsorted_segment_sum(data=x, segment_ids=i, num_segments=4, axis=0),
        [X, I4],
        lambda x, i: np.stack([x[i == k].sum(0) for k in range(4)]),
    ),
    "unsorted_segment_sum_like": (
        lambda x, i, y: flow.unsorted_segment_sum_like(data=x, segment_ids=i, like=y, axis=0),
        [X, I4, Y],
        lambda x, i, y: np.stack([x[i == k].sum(0) for k in range(4)]),
    ),
    "unsorted_batch_segment_sum": (
        lambda x, i: flow.unsorted_batch_segment_sum(x, i, 2),
        [X, np.array([[0, 1] * 3] * 4, np.int32)],
        lambda x, i: np.stack([x[:, ::2].sum(1), x[:, 1::2].sum(1)], 1),
    ),
    "sync_dynamic_resize": (
        lambda x, s: flow.sync_dynamic_resize(x, s),
        [X, np.array([3], np.int32)],
        lambda x, s: x[:3],
    ),
    "advanced": (
        lambda x: flow.advanced.distribute_concat(flow.advanced.distribute_split(x)),
        [X],
        lambda x: x,
    ),
    "advanced.map": (lambda x: flow.advanced.distribute_map(x, lambda p: p * 2), [X], lambda x: x * 2),
    "advanced.add": (
        lambda x: flow.advanced.distribute_add(flow.advanced.distribute_clone(x) * 3),
        [X],
        lambda x: x * 3,
    ),
    "pack-unpack": (lambda x: flow.pack(flow.unpack(x, 2), 2), [X], lambda x: x),
    "pack-repeat": (lambda x: flow.pack(flow.repeat(x, 3), 3), [X], lambda x: np.concatenate([x] * 3)),
    "acc-repeat": (lambda x: flow.acc(flow.repeat(x, 3), 3), [X], lambda x: 3 * x),
    "acc-unpack": (lambda x: flow.acc(flow.unpack(x, 2), 2), [X], lambda x: x[:2] + x[2:]),
    "eager_nccl_all_reduce": (lambda x: flow.eager_nccl_all_reduce(x, ""), [X], lambda x: x),
    "profiler.nvtx": (
        lambda x: flow.profiler.nvtx_end(flow.profiler.nvtx_start(x, "a"), "a"),
        [X],
        lambda x: x,
    ),
    "user_op_builder": (
        lambda x: (
            flow.user_op_builder("r")
            .Op("relu")
            .Input("in", [x])
            .Output("out")
            .Build()
            .InferAndTryRun()
            .SoleOutputBlob()
        ),
        [X],
        lambda x: np.maximum(x, 0),
    ),
    "user_op_builder-split_like": (
        lambda x: flow.concat(
            flow.user_op_builder("s")
            .Op("split_like")
            .Input("in", [x])
            .Input("like", [flow.slice(x, [1, 0], [3, 6]), flow.slice(x, [0, 0], [1, 6])])
            .Output("out", 2)
            .Attr("axis", 0)
            .Build()
            .InferAndTryRun()
            .RemoteBlobList()[::-1],
            0,
        ),
        [X],
        lambda x: np.concatenate([x[3:], x[:3]]),
    ),
    "user_op_builder-fused_scale_tril": (
        lambda x: (
            flow.user_op_builder("f")
            .Op("fused_scale_tril")
            .Input("in", [x])
            .Output("out")
            .Attr("diagonal", 1)
            .Attr("is_floating_fill_value", True)
            .Attr("floating_fill_value", -1.0)
            .Attr("integer_fill_value", 0)
            .Attr("is_floating_scale_value", True)
            .Attr("floating_scale_value", 2.0)
            .Attr("integer_scale_value", 0)
            .Build()
            .InferAndTryRun()
            .SoleOutputBlob()
        ),
        [X],
        lambda x: np.where(np.tri(*x.shape, 1), x * 2, np.float32(-1)),
    ),
    "user_op_module_builder-sizes": (
        lambda x: flow.user_op_module_builder("add_n").InputSize("in", 2).Output("out").Build()(x, x),
        [X],
        lambda x: x + x,
    ),
    "user_op_builder-attr": (
        lambda x: (
            flow.consistent_user_op_builder("t")
            .Op("transpose")
            .Input("input", [x])
            .Attr("perm", [1, 0])
            .Output("output")
            .Build()
            .InferAndTryRun()
            .RemoteBlobList()[0]
        ),
        [X],
        lambda x: x.T,
    ),
    "user_op_module_builder": (
        lambda x: (
            flow.consistent_user_op_module_builder("tanh")
            .Input("x", [x])
            .Output("y")
            .Build()
            .InferAndTryRun()
            .SoleOutputBlob()
        ),
        [X],
        np.tanh,
    ),
    "builtin_op": (
        lambda x, y: flow.builtin_op("add_n").Input("in", 2).Output("out").Build()(x, y)[0],
        [X, Y],
        lambda x, y: x + y,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name):
    function, arrays, reference = CASES[name]
    got = result_of_job(function, *arrays)
    expected = np.asarray(reference(*arrays))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    if expected.dtype != np.float64 and not (expected.dtype == np.int64 and got.dtype == np.int32):
        assert got.dtype == expected.dtype


def test_combined_margin_loss():
    label = np.array([0, 3, 1, 5], np.int32)
    x = np.clip(X, -0.9, 0.9)
    got = result_of_job(lambda a, i: flow.combined_margin_loss(a, i, m1=0.9, m2=0.3, m3=0.2), x, label)
    hot = onehot(label, 6).astype(bool)
    np.testing.assert_allclose(
        got, np.where(hot, np.cos(np.arccos(x) * 0.9 + 0.3) - 0.2, x), rtol=1e-5, atol=1e-6
    )


def test_ctc_loss_against_torch():
    lp = torch.log_softmax(torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0)), -1)
    targets = np.array([[1, 2], [3, 3]], np.int32)
    lengths, sizes = np.array([5, 5], np.int32), np.array([2, 1], np.int32)
    got = result_of_job(lambda *b: flow.ctc_loss(*b, reduction="sum"), lp.numpy(), targets, lengths, sizes)
    expected = torch.nn.functional.ctc_loss(
        lp, torch.tensor(targets), torch.tensor(lengths), torch.tensor(sizes), reduction="sum"
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("case", ["gather-axis", "slice_v2", "tensor_scatter_nd_update", "where"])
def test_gradients_reach_the_input(case):
    function, arrays, _ = CASES[case]
    position = 1 if case == "where" else 0
    _, got = gradient(function, *arrays, wrt=position)
    base = torch.tensor(arrays[position], requires_grad=True)
    tensors = [torch.tensor(a) for a in arrays]
    tensors[position] = base
    function(*tensors).sum().backward()
    np.testing.assert_allclose(got, base.grad, rtol=1e-6)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match=r"dimension 0 has size 4"):
        result_of_job(lambda x: flow.squeeze(x, 0), X)
    with pytest.raises(ValueError, match="leave the shape"):
        result_of_job(lambda x: flow.slice(x, [3, 0], [2, 6]), X)
    with pytest.raises(NotImplementedError, match="legacy-time-shape"):
        result_of_job(lambda x: flow.pack(flow.unpack(x, 2) * 2, 2), X)
    with pytest.raises(NotImplementedError, match="legacy-user-ops"):
        result_of_job(
            lambda x: (
                flow.user_op_builder("u")
                .Op("no_such_op")
                .Input("in", [x])
                .Output("out")
                .Build()
                .InferAndTryRun()
                .SoleOutputBlob()
            ),
            X,
        )
    with pytest.raises(ValueError, match="a rule is"):
        result_of_job(lambda x: flow.hierarchical_parallel_cast(x, nd_sbp=["S0"]), X)


def test_value_dependent_operators():
    x = np.array([3, 1, 3, 7], np.int32)
    values, index, counts, n = result_of_job(lambda b: flow.experimental.unique_with_counts(b), x)
    assert (
        values[: n[0]].tolist() == [3, 1, 7]
        and index.tolist() == [0, 1, 0, 2]
        and counts[: n[0]].tolist() == [2, 1, 1]
    )
    ids, sums, n = result_of_job(lambda i, v: flow.experimental.indexed_slices_reduce_sum(i, v), x, X)
    assert ids[: n[0]].tolist() == [1, 3, 7]
    np.testing.assert_allclose(sums[: n[0]], np.stack([X[1], X[0] + X[2], X[3]]), rtol=1e-6)
    label = np.array([5, 2, 5], np.int32)
    weight = rng.normal(size=(8, 3)).astype(np.float32)
    mapped, sampled, rows = result_of_job(
        lambda w, i: flow.distributed_partial_fc_sample(weight=w, label=i, num_sample=4), weight, label
    )
    assert len(sampled) == 4 and sampled[mapped].tolist() == label.tolist()
    np.testing.assert_array_equal(rows, weight[sampled])


def test_tensor_buffers():
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)
    got = result_of_job(
        lambda b: flow.tensor_buffer_to_tensor(
            flow.tensor_to_tensor_buffer(b, instance_dims=2), dtype=flow.float, instance_shape=(3, 4)
        ),
        x,
    )
    np.testing.assert_array_equal(got, x)
    got = result_of_job(
        lambda b: flow.tensor_buffer_to_tensor(
            flow.tensor_to_tensor_buffer(b, instance_dims=1), dtype=flow.float, instance_shape=(4,)
        ),
        x,
    )
    np.testing.assert_array_equal(got, x)
    parts = result_of_job(
        lambda: flow.tensor_buffer_to_list_of_tensors(
            flow.gen_tensor_buffer((2,), [(2, 1), (2, 1)], [0.0, 1.0]), (2, 1), flow.float
        )
    )
    assert [p.tolist() for p in parts] == [[[0.0], [0.0]], [[1.0], [1.0]]]


def by_name(kind, inputs, **attrs):
    op = flow.user_op_builder(kind).Op(kind).Output("out")
    for name, blobs in inputs.items():
        op = op.Input(name, blobs)
    for name, value in attrs.items():
        op = op.Attr(name, value)
    return op.Build().InferAndTryRun().SoleOutputBlob()


def test_operators_by_type_name():
    def job(x, y):
        return dict(
            leaky=by_name("leaky_relu", {"x": [x]}, alpha=0.5),
            dims=by_name("expand_dims", {"in": [x]}, axis=1),
            top=by_name("top_k", {"in": [x]}, k=2, sorted=True),
            clip=by_name("clip_by_scalar_min", {"x": [x]}, floating_min=0.5, integral_min=0),
            less=by_name("broadcast_less", {"x": [x], "y": [y]}),
            part=by_name("slice", {"x": [x]}, start=[1, 0], stop=[3, 6], step=[1, 2]),
            norm=by_name("multi_square_sum", {"x": [x, y]}),
            most=by_name("reduce_max", {"input_tensor": [x]}, axis=[1], keepdims=True),
            bias=by_name("bias_add", {"a": [x], "b": [y[0]]}, axis=1),
        )

    got = result_of_job(job, X, Y)
    expected = dict(
        leaky=np.where(X > 0, X, X / 2),
        dims=X[:, None],
        top=np.argsort(-X, 1)[:, :2],
        clip=np.maximum(X, 0.5),
        less=X < Y,
        part=X[1:3, ::2],
        norm=[(X * X).sum() + (Y * Y).sum()],
        most=X.max(1, keepdims=True),
        bias=X + Y[0],
    )
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match="no input or attribute 'alpha'"):
        result_of_job(lambda x: by_name("leaky_relu", {"x": [x]}), X)
    with pytest.raises(NotImplementedError, match="legacy-user-ops"):  # not without its attribute
        result_of_job(lambda x: by_name("l2_normalize", {"x": [x]}, axis=1), X)
