"""Record oneflow.nn, nn.functional and nn.init of real OneFlow 0.9.0 into nn_recorded.json.

    REAL_ONEFLOW_PYTHON tests/golden/record_nn.py

Each case is one Python expression over flow, nn, F, np, `A(*shape)` (float32 numbers in [-1, 1) from a
fixed formula), `L(*shape, n=..)` (labels below n) and `G(f, *tensors)`: f's result and the gradients
of the weighted sum of the result.
"""

import json
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

LOSSES = [
    f"F.{call}"
    for call in (
        "mse_loss(A(3,4), A(3,4)*2, 'sum')",
        "l1_loss(A(3,4), A(3,4)*2, 'none')",
        "smooth_l1_loss(A(3,4), A(3,4)*2, 0.5, 'sum')",
        "smooth_l1_loss(logits=A(3,4), label=A(3,4)*2, beta=1.0, reduction='mean')",
        "kl_div(A(3,4), A(3,4).abs(), False, 'batchmean')",
        "kl_div(A(3,4), A(3,4), True, 'sum')",
        "binary_cross_entropy(A(3,4).sigmoid(), A(3,4).abs(), None, 'sum')",
        "binary_cross_entropy(A(3,4).sigmoid(), A(3,4).abs(), A(3,4).abs(), 'none')",
        "binary_cross_entropy_with_logits(A(3,4), A(3,4).abs(), None, A(4).abs(), 'sum')",
        "binary_cross_entropy_with_logits(A(3,4), A(3,4).abs(), A(3,4).abs(), None, 'none')",
        "cross_entropy(A(3,4), L(3, n=4), None, 1, 'sum', 0.1)",
        "cross_entropy(A(3,4), L(3, n=4).int(), A(4).abs())",
        "cross_entropy(A(3,4,5), L(3,5, n=4), None, -100, 'none')",
        "cross_entropy(A(3,4), A(3,4).softmax(1))",
        "sparse_softmax_cross_entropy(L(3, n=4), A(3,4))",
        "sparse_softmax_cross_entropy(labels=L(2,3, n=4).int(), logits=A(2,3,4))",
        "one_hot(L(3, n=4).int(), 5)",
        "one_hot(L(3, n=4), num_classes=4, on_value=2.5, off_value=-1)",
        "one_hot(L(3, n=4), 4, 3, 2)",
        (
            "triplet_margin_loss(A(3,4), A(3,4)*2, A(3,4)-1, margin=0.5, p=2.0, eps=1e-6, swap=False, "
            "reduction='mean')"
        ),
    )
] + [
    "nn.MSELoss('sum')(A(3,4), A(3,4)*2)",
    "nn.L1Loss('none')(A(3,4), A(3,4)*2)",
    "nn.SmoothL1Loss('sum', 0.3)(A(3,4), A(3,4)*2)",
    "nn.KLDivLoss('batchmean', True)(A(3,4), A(3,4)*2)",
    "nn.BCELoss(None, 'sum')(A(3,4).sigmoid(), A(3,4).abs())",
    "nn.BCEWithLogitsLoss(A(3,4).abs(), 'none', A(4).abs())(A(3,4), A(3,4).abs())",
    "nn.MarginRankingLoss(0.2, 'sum')(A(4), A(4)*2, A(4).sign())",
    "nn.NLLLoss(None, 1, 'none')(A(3,4), L(3, n=4).int())",
    "nn.NLLLoss(A(4).abs(), -100, 'sum')(A(3,4), L(3, n=4))",
    "nn.CrossEntropyLoss(A(4).abs(), 2, 'sum', 0.2)(A(3,4), L(3, n=4).int())",
    "G(lambda x: nn.CrossEntropyLoss(None, 0, 'mean')(x, L(3, n=4).int()), A(3,4))",
    "G(lambda x, y: F.smooth_l1_loss(x, y, 0.5, 'sum'), A(3,4), A(3,4)*2)",
    "G(lambda x: F.sparse_softmax_cross_entropy(L(3, n=4), x), A(3,4))",
]
ACTIVATIONS = [
    f"G(lambda x: F.{call}, A(3,4)*3)"
    for call in (
        "relu(x=x)",
        "celu(x=x, alpha=0.7)",
        "elu(x=x, alpha=0.7)",
        "hardswish(x=x)",
        "hardtanh(x=x, min_val=-0.5, max_val=0.7)",
        "leaky_relu(x=x, alpha=0.2)",
        "leaky_relu(x, 0.2)",
        "logsigmoid(x=x)",
        "mish(x=x)",
        "selu(x=x)",
        "sigmoid(x=x)",
        "silu(x=x)",
        "softsign(x=x)",
        "softplus(x=x, beta=2.0, threshold=1.5)",
        "tanh(x=x)",
        "threshold(x=x, threshold=0.2, value=-0.3)",
        "softmax(x=x)",
        "softmax(x, 0)",
        "log_softmax(x=x)",
        "log_softmax(x, 0)",
        "gelu(x=x)",
        "gelu(x, 'tanh')",
        "hardshrink(x=x, lambd=0.4)",
        "softshrink(x=x, alpha=0.4)",
        "normalize(x, 2.0, 1, 1e-12, True)",
        "normalize(x, 1.5, 0)",
        "relu6(x)",
        "hardsigmoid(x)",
        "glu(x)",
    )
] + [
    "F.softmax(A(2,3,4))",
    "F.log_softmax(A(2,3,4,2))",
    "F.softmax(A(5))",
    "G(lambda x, w: F.prelu(x=x, alpha=w), A(2,3,2), A(3).abs())",
    "G(lambda x, y: F.cosine_similarity(x=x, y=y, dim=1), A(3,4), A(3,4)*2-1)",
    "[y for x in [A(3,4)*1] for y in (nn.Hardshrink(0.3, True)(x), x)]",
    "[y for x in [A(3,4)*1] for y in (nn.Softshrink(0.3, True)(x), x)]",
    "F.dropout(A(3,4), 0.0, addend=A(3,4))",
    "F.dropout(A(3,4), 0.5, False, addend=A(3,4))",
    "F.dropout(A(3,4), p=1.0)",
    "nn.Dropout(0.0)(A(3,4), addend=A(3,4)*2)",
    "F.gumbel_softmax(A(2,3,4), 1.0, None, True).sum(0)",
    "F.gumbel_softmax(A(2,3,4), 1.0, 1, True).sum(1)",
    "F.gumbel_softmax(x=A(3,4), tau=0.5, hard=True).sum(1)",
]
# Not here: conv and avg_pool with channels_last. 0.9.0's CPU kernels infer the shape with the channels
# last and then read the memory as if they came first, so their numbers mean nothing.
IMAGES = [
    "F.max_pool2d(A(2,4,6,3), 2, data_format='channels_last')",
    "F.conv2d(A(2,3,4,5), A(6,3,3,3), None, 1, 1, channel_pos='channels_first')",
    "F.conv_transpose2d(A(2,3,4,5), A(3,2,3,3), None, 2, 1, 1, 1, 1)",
    "F.max_pool2d(A(2,3,6,6), 2, 2, 0, 1, True)",
    "F.max_pool2d(A(2,3,7,7), 3, 2, 1, 1, False, True)",
    "F.max_pool1d(A(2,3,7), 2, 2, 0, 1, True, True)",
    "F.max_pool3d(x=A(1,2,4,4,4), kernel_size=2, return_indices=True)",
    "G(lambda x: F.max_pool2d(x, 3, 2, 1), A(1,2,6,6))",
    "F.avg_pool1d(A(2,3,6), 2, 1, 1, False, True, 3)",
    "F.avg_pool1d(A(2,3,6), 2)",
    "F.avg_pool2d(A(2,3,6,6), 2, None, 1, False, False, 0)",
    "F.avg_pool2d(A(2,3,6,6), 2, divisor_override=3)",
    "F.avg_pool3d(A(1,2,4,4,4), 2, divisor_override=0)",
    "nn.AvgPool2d(2, divisor_override=0)(A(1,2,4,4))",
    "nn.AvgPool3d(2, 1, 1, True, False, 0)(A(1,2,4,4,4))",
    "F.adaptive_avg_pool2d(x=A(2,3,6,5), output_size=(2,3))",
    "F.adaptive_avg_pool1d(x=A(2,3,6), output_size=4)",
    "F.adaptive_avg_pool3d(x=A(1,2,4,4,4), output_size=3)",
    "F.adaptive_max_pool2d(A(2,3,6,5), (2,3), True)",
    "F.unfold(x=A(2,3,4,5), kernel_size=2, stride=2)",
    "F.fold(x=A(2,12,4), output_size=(3,3), kernel_size=2)",
    "F.affine_grid(A(2,2,3), (2,3,4,5))",
    "F.grid_sample(A(2,3,4,5), A(2,3,3,2))",
    "F.grid_sample(A(2,3,4,5), A(2,3,3,2), 'nearest', 'border', True)",
    "F.upsample(scale_factor=2)(A(1,2,3,3))",
    "F.upsample((5,6), None, 'bilinear', True)(A(1,2,3,3))",
    "F.interpolate(A(1,2,3,3), 5)",
    "F.pad(A(1,2,3,3), (1,2,0,1), 'constant', 2.0)",
    "F.pad(A(1,2,3,3), (1,2,0,1), 'reflect')",
    "nn.PixelShuffle(h_upscale_factor=2, w_upscale_factor=3)(A(2,12,2,2))",
    "nn.PixelShuffle(None, 2, 2)(A(2,8,2,3))",
    "nn.PixelShuffle(2)(A(2,8,2,3))",
    "nn.ConstantPad1d((1,2))(A(1,2,3))",
    "nn.ConstantPad2d(1)(A(1,2,3,3))",
    "nn.ConstantPad3d(1, 0.5)(A(1,1,2,2,2))",
]
INIT = (
    [
        f"nn.init.calc_fan({shape}, {mode!r}, {order!r})"
        for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 5))
        for mode in ("fan_in", "fan_out", "fan_sum")
        for order in ("channels_first", "channels_last")
    ]
    + [
        "nn.init.calculate_gain('leaky_relu', 0.2)",
        "nn.init.get_data_format('NHWC')",
        "nn.init.get_data_format('NCDHW')",
        "nn.init.get_data_format('')",
    ]
    + [
        f"float(nn.init.{name}(flow.empty(64, 4, 4, 512), data_format={order!r}{more}).std())"
        for order in ("NCHW", "NHWC")
        for name, more in (
            ("kaiming_normal_", ", mode='fan_out'"),
            ("kaiming_uniform_", ", mode='fan_out'"),
            ("xavier_normal_", ""),
            ("xavier_uniform_", ", gain=2.0"),
        )
    ]
)
CASES = LOSSES + ACTIVATIONS + IMAGES + INIT


def vocabulary(flow):
    """The names the expressions use."""

    def numbers(shape):
        n = int(np.prod(shape))
        return (
            (np.sin(np.arange(n, dtype=np.float64) * 12.9898 + len(shape)) * 43758.5453 % 2 - 1)
            .reshape(shape)
            .astype(np.float32)
        )

    def A(*shape):
        return flow.tensor(numbers(shape))

    def L(*shape, n):
        return flow.tensor((np.arange(int(np.prod(shape))) * 7 % n).reshape(shape).astype(np.int64))

    def G(function, *tensors):
        leaves = [t.detach().clone().requires_grad_(True) for t in tensors]
        out = function(*leaves)
        (out * A(*out.shape) if len(out.shape) else out).sum().backward()
        return [out] + [t.grad for t in leaves]

    return {"flow": flow, "nn": flow.nn, "F": flow.nn.functional, "np": np, "A": A, "L": L, "G": G}


def plain(flow, value):
    """The result as JSON: tensors with dtype and shape, sequences, numbers, strings."""
    if isinstance(value, flow.Tensor):
        return {
            "dtype": str(value.dtype).split(".")[-1],
            "shape": list(value.shape),
            "value": [float("%.9g" % v) for v in value.detach().cpu().numpy().reshape(-1).tolist()],
        }
    if isinstance(value, (tuple, list)):
        return [plain(flow, v) for v in value]
    return value


def main():
    import oneflow as flow

    names = vocabulary(flow)
    recorded = {}
    for case in CASES:
        flow.manual_seed(0)
        try:
            recorded[case] = plain(flow, eval(case, names))
        except Exception as error:
            print("left out", case, type(error).__name__, str(error).strip().split("\n")[-1][:150])
    with open(os.path.join(HERE, "nn_recorded.json"), "w") as f:
        f.write("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorded.items()) + "}\n")
    print(len(recorded), "cases recorded with OneFlow", flow.__version__)


if __name__ == "__main__":
    main()
