"""Calls of oneflow._C whose results are recorded from real OneFlow 0.9.0 in ops_c.json; run by record_ops.py
and test_ops_golden.py.

A case is (name, code); the code sees `flow`, `C` (oneflow._C), `nn`, `np` and the helpers T, I and grad
below.
"""

import numpy as np


def helpers(flow):
    def T(*shape, seed=0, low=0.0):
        return flow.tensor((np.random.RandomState(seed).rand(*shape) + low).astype("float32"))

    def I(*values, dtype=None):  # noqa: E743
        return flow.tensor(list(values), dtype=dtype or flow.int64)

    def grad(f, *inputs):
        """[f(*inputs), gradient of sum(f * W) for each input], W fixed random numbers."""
        inputs = [x.clone().detach() for x in inputs]
        for x in inputs:
            x.requires_grad = True
        y = f(*inputs)
        (y * T(*y.shape, seed=9) if y.ndim else y).sum().backward()
        return [y] + [x.grad for x in inputs]

    def fill(module):
        """The module with fixed random parameters."""
        for i, p in enumerate(module.parameters()):
            p.data.copy_(T(*p.shape, seed=i, low=-0.4))
        return module

    return {"fill": fill, "flow": flow, "C": flow._C, "nn": flow.nn, "np": np, "T": T, "I": I, "grad": grad}


def flatten(result):
    """The result as a list of (dtype name, shape, values)."""
    if isinstance(result, (tuple, list)):
        return [item for r in result for item in flatten(r)]
    return [
        [str(result.dtype).split(".")[-1], list(result.shape), result.detach().numpy().reshape(-1).tolist()]
    ]


CASES = []


def case(name, code):
    CASES.append((name, code))


case("quick_gelu", "grad(C.quick_gelu, T(3, 4, low=-.5))")
case("fast_gelu", "grad(C.fast_gelu, T(3, 4, low=-.5))")
case("gelu_tanh", "C.gelu_with_approximate(T(5, low=-.5), 'tanh')")
case("bias_add", "[C.bias_add(T(2, 3), T(3)), C.bias_add(T(2, 3), T(2), 0), C.bias_add(T(2, 3), T(3), -1)]")
case("bias_add grad", "grad(lambda x, b: C.bias_add(x, b, 1), T(2, 3, 2), T(3))")
case("matmul", "[C.matmul(T(2, 3), T(4, 3), False, True, 2.), C.matmul(T(3, 2), T(3, 4), transpose_a=True)]")
case("matmul grad", "grad(lambda a, b: C.matmul(a, b, True, True, .5), T(3, 2), T(4, 3))")
case("batch_matmul", "C.batch_matmul(T(2, 3, 4), T(2, 5, 4), False, True, .5)")
case(
    "fused_matmul_bias",
    "grad(lambda x, w, b: C.fused_matmul_bias(x, w, b), T(2, 3), T(4, 3, seed=1), T(4, seed=2))",
)
case("fused_matmul_bias add", "C.fused_matmul_bias(T(2, 3), T(4, 3), T(4), T(2, 4))")
case(
    "fused_mlp",
    "grad(lambda x, w, v: C.fused_mlp(x, [w, v], [T(4) - 1, T(2) - 1], False), T(2, 3), T(4, 3, "
    "seed=1), T(2, 4, seed=2))",
)
case("fused_mlp skip", "C.fused_mlp(T(2, 3), [T(4, 3), T(2, 4)], [T(4) - 1, T(2) - 3], True)")
case(
    "mlp dropout 0",
    "[C.fused_matmul_bias_add_relu_dropout(T(2, 3), [T(4, 3), T(2, 4)], [T(4) - 1, T(2) - 3], skip, "
    "[0., 0.]) for skip in (True, False)]",
)
case(
    "fused_weighted_sum",
    "grad(lambda a, b: C.fused_weighted_sum([a, b], [.5, .25], alpha=2.), T(3), T(3, seed=1))",
)
case("rms_layer_norm", "grad(lambda x, w: C.rms_layer_norm(x, w, 1e-2), T(2, 3), T(3, seed=1))")
case(
    "normalization train",
    "(lambda m, v: [C.normalization(T(2, 3, 2), m, v, T(3), T(3), 1, 1e-5, .9, True), m, "
    "v])(flow.zeros(3), flow.ones(3))",
)
case(
    "normalization eval",
    "grad(lambda x: C.normalization(x, T(3), T(3), T(3), T(3), 1, 1e-3, .9, False), T(2, 3, 2))",
)
case("normalization bare", "C.normalization(T(2, 3, 2), None, None, T(3), T(3), 1, 1e-5, .9, True)")
case(
    "normalization_add_relu",
    "(lambda m, v: [C.normalization_add_relu(T(2, 3, 2), T(2, 3, 2) - .5, m, v, T(3), T(3), 1, 1e-5, "
    ".9, True), m, v])(flow.zeros(3), flow.ones(3))",
)
case(
    "normalization_add_relu grad",
    "grad(lambda x, a: C.normalization_add_relu(x, a, flow.zeros(3), flow.ones(3), T(3), T(3), 1, "
    "1e-5, .9, True), T(2, 3, 2), T(2, 3, 2, seed=3, low=-.5))",
)
case("normalize", "grad(lambda x: C.normalize(x, 2., 1, 1e-12), T(2, 3))")
case("sqrt_square_sum", "C.sqrt_square_sum(T(3, 4))")
for scheme in ("symmetric", "affine"):
    case(
        f"observer {scheme}",
        f"[C.min_max_observer(T(3, 4, low=-.4), 'google', 8, '{scheme}', whole) for whole in (True, False)]",
    )
    case(f"observer 4 bit {scheme}", f"C.min_max_observer(T(3, 4, low=-.4), 'google', 4, '{scheme}', True)")
    case(
        f"moving {scheme}",
        f"(lambda a, b: [[list(C.moving_average_min_max_observer(T(3, 4, low=-.4) * (s + 1), I(s), a, "
        f"b, True, 1, 'google', 8, '{scheme}', .9)) + [a.clone(), b.clone()]] for s in "
        f"range(4)])(flow.zeros(1), flow.zeros(1))",
    )
    case(
        f"moving eval {scheme}",
        f"(lambda a, b: [C.moving_average_min_max_observer(T(3, 4), I(0), a, b, False, 1, 'google', 8, "
        f"'{scheme}', .9), a, b])(flow.ones(1), flow.zeros(1) - 1)",
    )
    case(
        f"quantization {scheme}",
        f"(lambda o: [C.quantization(T(3, 4, low=-.4), o[0], o[1], 'google', 8, '{scheme}'), "
        f"grad(lambda x: C.fake_quantization(x, o[0], o[1], 'google', 8, '{scheme}'), T(3, 4, "
        f"low=-.4))])(C.min_max_observer(T(3, 4, low=-.4), 'google', 8, '{scheme}', "
        f"{scheme == 'affine'}))",
    )
    case(
        f"fake clamp {scheme}",
        f"(lambda o: grad(lambda x: C.fake_quantization(x * 3, o[0], o[1], 'google', 8, '{scheme}'), "
        f"T(3, 4, low=-.4)))(C.min_max_observer(T(3, 4, low=-.4), 'google', 8, '{scheme}', True))",
    )
case(
    "cambricon",
    "(lambda o: [o, C.quantization(T(3, 4, low=-.4), o[0], o[1], 'cambricon', 8, 'symmetric'), "
    "C.fake_quantization(T(3, 4, low=-.4), o[0], o[1], 'cambricon', 8, "
    "'symmetric')])(C.min_max_observer(T(3, 4, low=-.4), 'cambricon', 8, 'symmetric', True))",
)
for m in ((1.0, 0.5, 0.0), (1.0, 0.0, 0.35), (1.3, 0.2, 0.1), (0.9, 0.4, 0.15)):
    case(
        f"combined_margin_loss {m}",
        f"grad(lambda x: C.combined_margin_loss(x, I(0, 3, 1), *{m}), T(3, 4, seed=3, low=-.5))",
    )
case(
    "roc_auc_score",
    "[C.roc_auc_score(I(0, 1, 1, 0, 1), flow.tensor([.1, .4, .35, .8, .35])), C.roc_auc_score(I(1, 0, "
    "1, 0, 1), flow.tensor([.4, .4, .4, .8, .35]))]",
)
case(
    "ctc_greedy_decoder",
    "[C.ctc_greedy_decoder(T(7, 3, 3) - 1, I(7, 6, 3), merge) for merge in (True, False)]",
)
case(
    "ctc_loss",
    "[C.ctc_loss(flow.log_softmax(T(5, 2, 4), 2), flow.tensor([[1, 2], [3, 1]]), I(5, 5), I(2, 1), 2, "
    "0, False, r) for r in ('mean', 'sum', 'none')]",
)
case("sparse_cross_entropy", "grad(lambda p: C.sparse_cross_entropy(p, I(0, 2), 3), T(2, 3))")
case("sparse_softmax_cross_entropy", "grad(lambda x: C.sparse_softmax_cross_entropy(x, I(0, 2)), T(2, 3))")
case(
    "softmax_cross_entropy",
    "grad(lambda x: C.softmax_cross_entropy(x, flow.softmax(T(2, 3, seed=1), -1)), T(2, 3))",
)
case("softmax_cross_entropy_grad", "C.softmax_cross_entropy_grad(T(2), T(2, 3, seed=1), T(2, 3, seed=2))")
case(
    "bce",
    "[C.binary_cross_entropy_loss(T(2, 3), T(2, 3, seed=1), None, 'mean'), "
    "C.binary_cross_entropy_with_logits_loss(T(2, 3), T(2, 3, seed=1), None, None, 'sum')]",
)
case("smooth_l1_loss", "C.smooth_l1_loss(T(2, 3), T(2, 3, seed=1), .3, 'mean')")
case("kl_div_loss", "C.kl_div_loss(T(2, 3), T(2, 3, seed=1), False, 'mean')")
# Forward only: OneFlow 0.9.0's CPU gradient of the input is not the derivative (ours is checked by
# gradcheck).
case(
    "deform_conv2d",
    "C.deform_conv2d(T(1, 2, 5, 5), T(4, 2, 3, 3), T(1, 18, 5, 5, low=-.5), T(1, 9, 5, 5), T(4), 1, 1, "
    "1, 1, 1, 1, 1, 1, True)",
)
case(
    "deform_conv2d groups",
    "C.deform_conv2d(T(2, 4, 6, 5), T(4, 2, 3, 3), T(2, 36, 3, 5, low=-.5) * 4, T(2, 18, 3, 5), None, "
    "2, 1, 1, 2, 1, 2, 2, 2, True)",
)
case("arg_sort", "[C.arg_sort(T(2, 5), d) for d in ('ASCENDING', 'DESCENDING')]")
case("gather", "[C.gather(T(4, 3), I(0, 2), 0), C.gather(T(4, 3), flow.tensor([[0, 2]]), 1)]")
case("batch_gather", "C.batch_gather(T(2, 3), flow.tensor([[0, 2], [1, 1]]))")
case(
    "gather_nd",
    "[C.gather_nd(T(3, 4), flow.tensor([[0], [2]])), C.gather_nd(T(3, 4), flow.tensor([[0, 1], [2, 3]]))]",
)
case(
    "scatternd",
    "[C.scatternd(flow.tensor([[1], [1]]), flow.tensor([9., 8.]), (4,)), C.scatterndlike(T(4), "
    "flow.tensor([9., 8.]), flow.tensor([[1], [3]]))]",
)
case(
    "tensor_scatter_nd_update",
    "grad(lambda t, u: C.tensor_scatter_nd_update(t, flow.tensor([[1], [3]]), u), T(4, 2), T(2, 2, seed=1))",
)
case(
    "slice",
    "[C.slice(T(4, 4), [0, 1], [4, 3], [2, 1]), C.slice_update(T(4), T(2), [0], [4], [2]), "
    "C.slice_view_1d_contiguous(T(4), 1, 3)]",
)
case("in_top_k", "C.in_top_k(I(0, 2, dtype=flow.int32), T(2, 3), 1)")
case("one_hot", "[C.one_hot(I(0, 2), 3, 5, -1), C.one_hot(I(0, 2), -1, 1.5, 0), C.one_hot(I(0, 2))]")
case(
    "unsorted_segment_sum",
    "[C.unsorted_segment_sum(T(4, 2), I(0, 1, 1, 0), 0, 3), C.unsorted_segment_sum(T(2, 4), I(0, 1, 1, "
    "0), 1, 3)]",
)
case(
    "broadcast_like",
    "[C.broadcast_like(T(3), T(2, 3), [0]), C.broadcast_like(T(2, 1), T(2, 3), [1]), "
    "C.broadcast_like(T(2), T(2, 3), [1])]",
)
case(
    "reduce_sum_like",
    "[C.reduce_sum_like(T(2, 3), T(3), [0]), C.reduce_sum_like(T(2, 3), T(1, 3), [0]), "
    "C.reduce_sum_like(T(2, 3), T(2, 3), [])]",
)
case(
    "reductions",
    "[C.reduce_max(T(2, 3), [1], True), C.reduce_min(T(2, 3), [0]), C.reduce_sum(T(2, 3), 1), "
    "C.reduce_mean(T(2, 3), 1, True), C.reduce_prod(T(2, 3), 1), C.reduce_max(T(2, 3), [])]",
)
case(
    "reduce stages",
    "[C.reduce_max_device_stage(T(2, 3), [1]), C.reduce_max_global_stage(T(2, 3), flow.ones(2, 3, "
    "dtype=flow.int32), [1])]",
)
case("split_like", "C.split_like(T(5, 2), [T(2, 2), T(3, 2)], 0)")
case(
    "trunc_divide",
    "[C.trunc_divide(flow.tensor([-3., 3.]), 2), C.trunc_divide(I(-3, 3), 2), C.trunc_divide(I(-3, 3), "
    "I(2, 2))]",
)
case("pixel_shuffle", "[C.pixel_shuffle(T(1, 4, 1, 2), 2, 2), C.pixel_shuffle(T(1, 6, 1, 1), 2, 3)]")
case(
    "dropout addend",
    "[C.dropout(T(2, 3), 0., True, False, None, addend=T(2, 3)), C.dropout(T(2, 3), .5, False, "
    "addend=T(2, 3))]",
)
case("add list", "C.add([T(2), T(2), T(2)])")
case("transpose", "[C.transpose(T(2, 3, 4), (2, 0, 1)), C.transpose(T(2, 3), 0, 1)]")
case(
    "avg_pool2d_nhwc",
    "C.avg_pool2d_nhwc(T(1, 4, 4, 2), [2, 2], [2, 2], 'valid', [0, 0], [0, 0], 'channels_last')",
)
case("reciprocal_no_nan", "grad(C.reciprocal_no_nan, T(3) + 1)")
case("rint", "C.rint(flow.tensor([.5, 1.5, -2.5]))")
case(
    "upsample",
    "[C.upsample_nearest_2d(T(1, 1, 2, 2), 2., 2.), C.upsample_bilinear_2d(T(1, 1, 2, 2), 0., 0., "
    "True, (3, 3)), C.upsample_linear_1d(T(1, 1, 3), 2., False), C.upsample_bicubic_2d(T(1, 1, 3, 3), "
    "2., 2.)]",
)
case("pack_padded_sequence", "C.pack_padded_sequence(T(3, 2, 1), I(3, 2), False)")
case(
    "unary gradients",
    "[C.sigmoid_grad(T(3), T(3, seed=1)), C.tanh_grad(T(3), T(3, seed=1)), C.tan_grad(T(3), T(3, "
    "seed=1)), C.cosh_grad(T(3), T(3, seed=1))]",
)
case("pad", "C.pad(T(2), (1, 0), 'constant', 7)")
case(
    "QatConv2d",
    "(lambda q: [[q(T(1, 2, 4, 4) * (i + 1)), q.input_min_max_observer.moving_max.clone()] for i in "
    "range(3)] + [q.eval()(T(1, 2, 4, 4) * 5)])(fill(nn.QatConv2d(2, 3, 3)))",
)
case(
    "QatConv1d affine",
    "(lambda q: q(T(1, 4, 6, low=-.4)))(fill(nn.QatConv1d(4, 4, 3, 2, 1, groups=2, "
    "quantization_scheme='affine', weight_quant_per_layer=True)))",
)
case(
    "FusedMLP",
    "fill(nn.FusedMLP(4, [8, 6], 2, [.5, .5], 0., True)).eval()(T(3, 4)), fill(nn.FusedMLP(4, [8], "
    "2))(T(3, 4))",
)
case(
    "FusedBatchNorm2d",
    "(lambda b: [b(T(2, 3, 2, 2), T(2, 3, 2, 2, seed=4, low=-1.)), b.running_mean, b.running_var, "
    "b.eval()(T(2, 3, 2, 2))])(fill(nn.FusedBatchNorm2d(3)))",
)
case("RMSLayerNorm", "fill(nn.RMSLayerNorm(4))(T(2, 4))")
case("CombinedMarginLoss", "nn.CombinedMarginLoss(1., .5, 0.).eval()(T(3, 4, seed=3, low=-.5), I(0, 3, 1))")
case("QuickGELU", "nn.QuickGELU()(T(4, low=-.5))")
