"""The operators against formulas in this file, because many have no CPU kernel in OneFlow to record."""

import math

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import rand, with_and_without_kernels  # noqa: F401

import oneflow

C = oneflow._C


def test_broadcast_dim_like():
    like = rand(2, 3, 4, 5)
    assert C.broadcast_dim_like(torch.tensor([3]), like, dim=0).tolist() == [3, 3]
    assert C.broadcast_dim_like(rand(1, 7), like.flatten(2, 3), dim=0, like_dim=2).shape == (20, 7)


# --------------------------------------------------------------------------- matrices, norms, interactions
@pytest.mark.parametrize(
    "activation,function",
    [
        ("none", lambda g: g),
        ("sigmoid", torch.sigmoid),
        ("relu", torch.relu),
        ("gelu", F.gelu),
        ("fast_gelu", lambda g: F.gelu(g, approximate="tanh")),
        ("silu", F.silu),
    ],
)
def test_fused_glu_equals_its_formula(activation, function):
    x, w, b, v, c = rand(5, 6), rand(4, 6), rand(4), rand(4, 6), rand(4)
    torch.testing.assert_close(C.fused_glu(x, w, b, v, c, activation), (x @ w.T + b) * function(x @ v.T + c))
    torch.testing.assert_close(
        C.fused_glu(x, torch.cat((w, v)), torch.cat((b, c)), activation=activation),
        (x @ w.T + b) * function(x @ v.T + c),
    )


def test_fused_matmul_bias_scales():
    x, w, b, more = rand(2, 5, 6), rand(4, 6), rand(4), rand(2, 5, 4)
    torch.testing.assert_close(
        C.fused_matmul_bias(x, w, b, more, alpha=0.5, beta=2.0), 0.5 * (x @ w.T) + b + 2 * more
    )
    with pytest.raises(RuntimeError, match=r"\(out, 6\).*found \(4, 5\)"):
        C.fused_matmul_bias(x, w[:, :5], b)


def test_grouped_matmul_equals_single_products():
    xs, ws, bs = [rand(2, 3), rand(4, 5)], [rand(6, 3), rand(7, 5)], [rand(6), rand(7)]
    for actual, x, w, b in zip(C.grouped_matmul_bias(xs, ws, bs), xs, ws, bs):
        torch.testing.assert_close(actual, x @ w.T + b)
    torch.testing.assert_close(C.grouped_matmul(xs, ws)[1], xs[1] @ ws[1].T)


def test_mlp_dropout_follows_every_layer():
    torch.manual_seed(0)
    x, w = torch.ones(1, 1), [torch.ones(4000, 1)]
    y = C.fused_matmul_bias_add_relu_dropout(x, w, [torch.ones(4000)], True, [0.25])
    torch.testing.assert_close(y.unique(), torch.tensor([0.0, 2 / 0.75]))
    assert abs((y == 0).double().mean() - 0.25) < 0.03


def test_skip_norms_add_before_they_normalize():
    x, skip, bias, g, b = rand(3, 8), rand(3, 8), rand(8), rand(8), rand(8)
    torch.testing.assert_close(
        C.skip_layer_norm(x, gamma=g, beta=b, bias=bias, skip=skip, alpha=0.5),
        F.layer_norm(x + bias + 0.5 * skip, (8,), g, b),
    )
    whole = x + bias + 0.5 * skip
    torch.testing.assert_close(
        C.skip_rms_norm(x, weight=g, bias=bias, skip=skip, alpha=0.5),
        whole / (whole.square().mean(-1, keepdim=True) + 1e-5).sqrt() * g,
    )
    torch.testing.assert_close(
        C.rms_norm(x, g, (8,), 1e-3), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * g
    )


def test_group_norm_layout_and_activation():
    x, g, b = rand(2, 6, 5), rand(6), rand(6)
    expected = F.silu(F.group_norm(x, 3, g, b, 1e-3))
    torch.testing.assert_close(C.group_norm(x, g, b, True, 3, 1e-3, "channels_first", "silu"), expected)
    torch.testing.assert_close(
        C.group_norm(x.movedim(1, -1), g, b, True, 3, 1e-3, "channels_last", "silu"), expected.movedim(1, -1)
    )


def test_dot_feature_interaction_parts():
    a, b, dense = rand(3, 4), rand(3, 2, 4), rand(3, 5)
    rows = torch.cat((a[:, None], b), 1)
    pairs = torch.stack([(rows[:, i] * rows[:, j]).sum(1) for i in range(3) for j in range(i)], 1)
    actual = C.fused_dot_feature_interaction([a, b], output_concat=dense, output_padding=2)
    torch.testing.assert_close(actual, torch.cat((dense, pairs, torch.zeros(3, 2, dtype=torch.float64)), 1))
    total = sum(rows[:, i] * rows[:, j] for i in range(3) for j in range(i))
    torch.testing.assert_close(C.fused_dot_feature_interaction([a, b], pooling="sum"), total)


def test_cross_feature_interaction():
    x, x0, bias = rand(3, 4), rand(3, 4), rand(4)
    w = rand(1, 4)
    torch.testing.assert_close(
        C.fused_cross_feature_interaction(x, w, x0, bias, "vector"), x0 * (x @ w.T) + bias + x
    )
    w = rand(4, 4)
    torch.testing.assert_close(
        C.fused_cross_feature_interaction(x, w, x0, bias, "matrix"), x0 * (x @ w.T + bias) + x
    )


# --------------------------------------------------------------------------- detection
def test_ciou_steps_make_the_ciou_of_two_boxes():
    # x1 y1 x2 y2
    a, b = (
        torch.tensor([[0.0, 0, 2, 4]], dtype=torch.float64),
        torch.tensor([[1.0, 1, 4, 3]], dtype=torch.float64),
    )
    x1, y1, w1, h1 = (a[:, 0] + a[:, 2]) / 2, (a[:, 1] + a[:, 3]) / 2, a[:, 2] - a[:, 0], a[:, 3] - a[:, 1]
    x2, y2, w2, h2 = (b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]
    l1, r1, t1, b1, l2, r2, t2, b2 = C.fused_get_boundding_boxes_coord(x1, y1, w1, h1, x2, y2, w2, h2)
    assert [float(v) for v in (l1, r1, t1, b1, l2, r2, t2, b2)] == [0, 2, 0, 4, 1, 4, 1, 3]
    corners = (l1, r1, l2, r2, t1, b1, t2, b2)
    inter = C.fused_get_intersection_area(*corners)
    assert float(inter) == 2
    iou = C.fused_get_iou(w1, h1, w2, h2, inter, 0.0)
    assert float(iou) == pytest.approx(2 / 12)
    c2, rho2 = C.fused_get_convex_diagonal_squared(*corners, 0.0), C.fused_get_center_dist(*corners)
    assert float(c2) == 32 and float(rho2) == pytest.approx(1.5**2)
    v = C.fused_get_ciou_diagonal_angle(w1, h1, w2, h2, 0.0)
    assert float(v) == pytest.approx(4 / math.pi**2 * (math.atan(3 / 2) - math.atan(2 / 4)) ** 2)
    actual, alpha = C.fused_get_ciou_result(v, iou, rho2, c2, 0.0)
    assert float(alpha) == pytest.approx(float(v / (v - iou + 1))) and not alpha.requires_grad
    assert float(actual) == pytest.approx(float(iou - rho2 / c2 - v * alpha))


def test_nms_keeps_the_best_first():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 9.9]])
    scores = torch.tensor([0.5, 0.9, 0.1, 0.4])
    assert oneflow.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert oneflow.nms(boxes, scores, 0.99).tolist() == [1, 0, 3, 2]
    assert C.nms(boxes, 0.5, 1).tolist() == [1, 0, 0, 0] and C.nms(boxes, 0.5).dtype == torch.int8
    assert oneflow.nms(boxes[:0], scores[:0], 0.5).tolist() == []


def test_roi_align_of_a_plane_reads_the_plane():
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(9.0), indexing="ij")
    image = (2 * y + 3 * x)[None, None]
    actual = oneflow.roi_align(image, torch.tensor([[0.0, 1, 1, 5, 5]]), 1.0, 2, 2, 2, True)
    # aligned: the region is [0.5, 4.5]^2, bins of 2, centres at 1.5 and 3.5
    torch.testing.assert_close(actual[0, 0], torch.tensor([[7.5, 13.5], [11.5, 17.5]]))


def test_deform_conv2d_without_offsets_is_a_convolution():
    x, w, b = rand(2, 4, 6, 7), rand(6, 2, 3, 3), rand(6)
    offset = torch.zeros(2, 18, 3, 4, dtype=torch.float64)
    actual = oneflow.nn.functional.deform_conv2d(x, offset, w, b, stride=2, padding=1)
    torch.testing.assert_close(actual, F.conv2d(x, w, b, 2, 1, groups=2))
    moved = oneflow.nn.functional.deform_conv2d(x, offset + 1.0, w, b, stride=2, padding=1)
    torch.testing.assert_close(
        moved[..., 1:-1, 1:-1],
        F.conv2d(F.pad(x, (0, 1, 0, 1))[..., 1:, 1:], w, b, 2, 1, groups=2)[..., 1:-1, 1:-1],
    )
    with pytest.raises(RuntimeError, match=r"offset must be \(2, 18, 3, 4\), found \(2, 18, 3, 3\)"):
        oneflow.nn.functional.deform_conv2d(x, offset[..., :3], w, b, stride=2, padding=1)


def test_deform_conv2d_of_an_empty_batch():
    x, offset, w, b = (rand(*s).requires_grad_() for s in ((0, 4, 6, 7), (0, 18, 4, 5), (6, 2, 3, 3), (6,)))
    y = oneflow.nn.functional.deform_conv2d(x, offset, w, b)
    y.sum().backward()
    assert y.shape == (0, 6, 4, 5) and x.grad.shape == x.shape and not w.grad.any() and not b.grad.any()


# --------------------------------------------------------------------------- quantization
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("signed", [False, True])
def test_groupwise_dequantize_restores_within_half_a_step(bits, symmetric, signed):
    if signed and not symmetric:
        pytest.skip("zero points are used with uint8")
    torch.manual_seed(0)
    x = torch.randn(6, 16)
    groups = x.reshape(6, 4, 4)
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale, zero = groups.abs().amax(2) / top, None
        q = torch.round(groups / scale[..., None]) + (0 if signed else top)
    else:
        low = groups.amin(2)
        scale, zero = (groups.amax(2) - low) / (2**bits - 1), low
        q = torch.round((groups - low[..., None]) / scale[..., None])
    q = q.reshape(6, 16).to(torch.int8 if signed else torch.uint8)
    if bits == 4:
        q = (q[:, ::2] << 4) | (q[:, 1::2] & 15)
    actual = C.groupwise_dequantize(
        q, scale, zero=zero, num_bits=bits, symmetric=symmetric, group_dim=-1, group_size=4
    )
    assert ((actual - x).abs().reshape(6, 4, 4) <= scale[..., None] * 0.5001).all()
    b = torch.randn(6)
    linear = C.fused_linear_with_groupwise_quantized_weight(
        x, q, scale, w_zero=zero, b=b, num_bits=bits, symmetric=symmetric, group_dim=-1, group_size=4
    )
    torch.testing.assert_close(linear, x @ actual.T + b)


def test_negative_zero_points_are_kept():
    x = torch.tensor([[0.25, 1.0], [0.5, 2.0]])
    scale, zero = C.min_max_observer(x, "google", 8, "affine", False)
    assert (zero < 0).all()
    assert (C.fake_quantization(x, scale, zero, "google", 8, "affine") - x).abs().max() <= scale.max() / 2


def test_cambricon_formula_is_symmetric_for_every_scheme():
    x = torch.linspace(-0.95, 0.05, 12).reshape(3, 4)
    for f in (
        lambda s: C.min_max_observer(x, "cambricon", 8, s, True),
        lambda s: (C.quantization(x, torch.tensor([-7.0]), torch.tensor([0.0]), "cambricon", 8, s),),
    ):
        assert all(torch.equal(a, b) for a, b in zip(f("symmetric"), f("affine")))
    assert float(C.min_max_observer(x, "cambricon", 8, "affine", True)[0]) == -7


def test_roc_auc_counts_pairs():
    label = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1, 0])
    score = torch.tensor([0.2, 0.4, 0.2, 0.4, 0.8, 0.0, 0.2, 0.0, 0.4, 0.8])
    pairs = [(float(a > b) + 0.5 * float(a == b)) for a in score[label == 1] for b in score[label == 0]]
    assert float(C.roc_auc_score(label, score)) == pytest.approx(sum(pairs) / len(pairs))


def test_softmax_cross_entropy_gradient_is_the_derivative():
    # label rows that do not sum to 1
    logits, label = (
        rand(3, 4).requires_grad_(),
        torch.rand(3, 4, dtype=torch.float64),
    )
    assert torch.autograd.gradcheck(lambda x: C.softmax_cross_entropy(x, label), logits)


def test_fake_quantization_gradient_passes_straight():
    x = torch.tensor([-5.0, 0.3, 5.0], requires_grad=True)
    y = C.fake_quantization(x, torch.tensor([0.01]), torch.tensor([0.0]), "google", 8, "symmetric")
    torch.testing.assert_close(y.detach(), torch.tensor([-1.28, 0.3, 1.27]))
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


# --------------------------------------------------------------------------- optimizer updates
def test_adam_update_is_torchs_adam():
    torch.manual_seed(0)
    ours, theirs = [torch.randn(5), torch.randn(2, 3)], []
    theirs = [torch.nn.Parameter(p.clone()) for p in ours]
    m, v = [torch.zeros_like(p) for p in ours], [torch.zeros_like(p) for p in ours]
    optimizer = torch.optim.AdamW(theirs, lr=0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.02)
    for t in (1, 2, 3):
        grads = [torch.randn_like(p) for p in ours]
        for p, g in zip(theirs, grads):
            p.grad = g.clone()
        optimizer.step()
        C.multi_tensor_adam_update(
            ours,
            [4 * g for g in grads],
            m,
            v,
            0.1,
            0.0,
            0.9,
            0.99,
            1 - 0.9**t,
            1 - 0.99**t,
            True,
            0.25,
            0.02,
            1e-6,
        )
        for p, q in zip(ours, theirs):
            torch.testing.assert_close(p, q.detach())


def test_other_multi_tensor_updates():
    model, diff = [torch.tensor([1.0, 2.0])], [torch.tensor([0.5, -1.0])]
    C.multi_tensor_sgd_update(model, diff, 2.0, 0.1, 0.5)
    torch.testing.assert_close(model[0], torch.tensor([1 - 0.5 * (1 + 0.1), 2 - 0.5 * (-2 + 0.2)]))
    model, buffer = [torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 1.0])]
    C.multi_tensor_momentum_update(model, diff, buffer, 1.0, 0.0, 0.1, 0.9, 0.5, True, False)
    torch.testing.assert_close(buffer[0], torch.tensor([0.9 + 0.25, 0.9 - 0.5]))
    torch.testing.assert_close(
        model[0], torch.tensor([1 - 0.1 * (0.5 + 0.9 * 1.15), 2 - 0.1 * (-1 + 0.9 * 0.4)])
    )
    model = [torch.tensor([1.0, 2.0])]
    C.multi_tensor_yolov5_weight_update(model, [torch.tensor([3.0, 0.0])], 0.75)
    torch.testing.assert_close(model[0], torch.tensor([1.5, 1.5]))
    grads = [torch.tensor([3.0]), torch.tensor([4.0])]
    assert float(C.fused_clip_grad(grads, 1.0, 2.0)) == 5.0
    torch.testing.assert_close(torch.cat(grads), torch.tensor([0.6, 0.8]))
    with pytest.raises(RuntimeError, match=r"model of 1, model_diff of 2"):
        C.multi_tensor_sgd_update(model, grads, 1.0, 0.0, 0.1)


def test_embedding_updates_touch_live_rows_only():
    torch.manual_seed(0)
    rows, grad, n = torch.rand(4, 6), torch.randn(4, 2), torch.tensor([3])
    common = dict(learning_rate_val=0.1, scale=0.5, weight_decay=0.0, embedding_size=2, embedding_name="t")
    actual = C.one_embedding_adam_update(
        n,
        rows,
        grad,
        beta1=0.9,
        beta2=0.99,
        bias_correction1_val=0.1,
        bias_correction2_val=0.01,
        epsilon=1e-6,
        do_bias_correction=True,
        line_size=6,
        **common,
    )
    model, m, v = ([t] for t in rows.clone()[:3].split(2, 1))
    model, m, v = ([t[0].contiguous()] for t in (model, m, v))
    C.multi_tensor_adam_update(model, [grad[:3]], m, v, 0.1, 0.0, 0.9, 0.99, 0.1, 0.01, True, 0.5, 0.0, 1e-6)
    torch.testing.assert_close(actual[:3], torch.cat((model[0], m[0], v[0]), 1))
    assert torch.equal(actual[3], rows[3])
    plain = C.one_embedding_sgd_update(n, rows[:, :2].contiguous(), grad, momentum=0.0, line_size=2, **common)
    torch.testing.assert_close(plain[:3], rows[:3, :2] - 0.05 * grad[:3])
    skipped = C.one_embedding_sgd_update(
        n, rows[:, :2].contiguous(), grad, skip_if=torch.tensor([1]), momentum=0.0, line_size=2, **common
    )
    assert torch.equal(skipped, rows[:, :2])
    total = C.one_embedding_adagrad_update(
        n, rows[:, :4].contiguous(), grad, train_step_val=3, lr_decay=0.5, epsilon=1e-6, line_size=4, **common
    )
    squares = rows[:3, 2:4] + (grad[:3] / 2).square()
    torch.testing.assert_close(
        total[:3], torch.cat((rows[:3, :2] - 0.1 / 2 * (grad[:3] / 2) / (squares.sqrt() + 1e-6), squares), 1)
    )
    ftrl = C.one_embedding_ftrl_update(
        n, rows, grad, lr_power=-0.5, lambda1=10.0, lambda2=0.0, beta=0.0, line_size=6, **common
    )
    assert not ftrl[:3, :2].any()  # lambda1 above every |z| clears the weights


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_id_shuffle_in_a_graph(dtype):
    class Shuffle(oneflow.nn.Graph):
        def build(self, ids):
            return C.one_embedding_id_shuffle(ids, None, 2, "t")

    ids = torch.tensor([[5, 7], [7, 5], [5, 5]], dtype=dtype)
    for bad_ids in (ids, ids + 1, ids[:1].repeat(3, 1)):
        for got, want in zip(Shuffle()(bad_ids), C.one_embedding_id_shuffle(bad_ids, None, 2, "t")):
            assert torch.equal(got, want) and got.dtype is want.dtype
    count, keys, tables, inverse = C.one_embedding_unique_key_value_pair(
        torch.zeros(0, dtype=dtype), None, 1, "e"
    )
    assert count.tolist() == [0] and keys.shape == tables.shape == inverse.shape == (0,)


def test_shuffles_gather_and_scatter_back():
    ids = torch.tensor([[5, 3], [5, 9]])
    matrix, partition, count, unique, tables, inverse = C.one_embedding_id_shuffle(ids, None, 2, "t")
    n = int(count)
    assert n == 3 and int(matrix.sum()) == 3
    embeddings = unique[:, None].double() * torch.tensor([1.0, 10.0])
    spread = C.one_embedding_embedding_shuffle(embeddings, matrix, inverse, partition, "t")
    assert torch.equal(spread, ids[..., None].double() * torch.tensor([1.0, 10.0]))
    grad = C.one_embedding_embedding_gradient_shuffle(torch.ones(2, 2, 2), matrix, inverse, partition, "t")
    assert {int(k): g for k, g in zip(unique[:n], grad[:n, 0])} == {5: 2, 3: 1, 9: 1} and not grad[n:].any()


# --------------------------------------------------------------------------- when the plain way is taken
def test_functorch_forward_mode_and_compile_work():
    x, b = rand(4, 6), rand(6)
    call = lambda x: C.fused_bias_add_gelu(x, b, axis=1)
    plain = lambda x: F.gelu(x + b)
    torch.testing.assert_close(
        torch.func.vmap(lambda row: C.quick_gelu(row))(x), x * torch.sigmoid(1.702 * x)
    )
    torch.testing.assert_close(torch.func.jvp(call, (x,), (x,))[1], torch.func.jvp(plain, (x,), (x,))[1])
    torch.testing.assert_close(torch.compile(call, backend="eager", fullgraph=True)(x), plain(x))


def test_autocast_keeps_torchs_rules():
    x, mask = torch.randn(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        assert C.fused_scale_mask_softmax(x.bfloat16(), mask).dtype == torch.softmax(x.bfloat16(), -1).dtype


@pytest.mark.parametrize(
    "call,text",
    [
        (
            lambda: C.fused_bias_add_gelu(torch.ones(2, 3), torch.ones(4), axis=1),
            r"dimension 1 of the input \(2, 3\), found shape \(4,\)",
        ),
        (
            lambda: C.fused_bias_add_dropout(torch.ones(2, 3), torch.ones(3), p=1.5, axis=1),
            r"must be in \[0, 1\], found 1.5",
        ),
        (
            lambda: C.fused_scale_mask_softmax(torch.ones(2, 3), torch.ones(4, 3)),
            r"\(4, 3\) does not broadcast to the input \(2, 3\)",
        ),
        (lambda: C.fused_glu(torch.ones(2, 3), torch.ones(3, 3)), r"even number of rows, found \(3, 3\)"),
        (
            lambda: C.roi_align(torch.ones(2, 3), torch.ones(1, 5), 1.0, 1, 1, 1, True),
            r"found \(2, 3\) and \(1, 5\)",
        ),
        (lambda: C.min_max_observer(torch.ones(2), "google", 9), "from 2 to 8, found 9"),
        (lambda: C.no_such_operator, "no_such_operator"),
    ],
)
def test_errors_print_the_value_found(call, text):
    with pytest.raises((RuntimeError, ValueError, AttributeError), match=text):
        call()


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("quantization", {}, "scale"),
        ("fake_quantization", {"scale": torch.ones(1)}, "zero_point"),
        ("moving_average_min_max_observer", {"moving_max": torch.ones(1)}, "moving_min"),
        ("groupwise_dequantize", {}, "scale"),
    ],
)
def test_a_missing_argument_is_named(name, arguments, missing):
    packed = torch.zeros(2, 4, dtype=torch.uint8) if name == "groupwise_dequantize" else torch.ones(2, 4)
    with pytest.raises(TypeError, match=f"{name}\\(\\) needs the argument `{missing}`"):
        getattr(oneflow._C, name)(packed, **arguments)


def test_a_sum_without_weights_names_them():
    with pytest.raises(TypeError, match="fused_weighted_sum\\(\\) needs the argument `weights`"):
        oneflow._C.fused_weighted_sum([torch.ones(2)])
