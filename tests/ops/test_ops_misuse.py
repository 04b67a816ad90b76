"""Invalid calls of the raw operators: each error names the argument, and hostile values cause no access out
of bounds.
"""

import math
import time

import pytest
import torch
from time_limits import seconds

import oneflow
from oneflow._kernels import _ext, detection, kernels

pytestmark = pytest.mark.skipif(_ext.status() != "loaded", reason=f"the kernel library is {_ext.status()}")
ops = torch.ops.oneflow
x, bias, seed = torch.ones(4, 6), torch.ones(6), torch.tensor(7)
image, rois = torch.ones(2, 3, 5, 5), torch.tensor([[0.0, 1, 1, 3, 4]])
offset, modulation = torch.zeros(1, 18, 3, 3), torch.ones(1, 9, 3, 3)
how = [3, 3], [1, 1], [0, 0], [1, 1], 1
scores = torch.ones(2, 3, 4)
table = torch.ones(1, 3, 4)
heads = torch.ones(2, 3, 2, 6)
adam = [0.1, 0.0, 0.9, 0.99, 1.0, 1e-8, 1.0, 1.0]

MISFITS = [
    (ops.pointwise, (99, [x], 1, []), "op must be 0 to 20, found 99"),
    (ops.pointwise, (-1, [x], 1, []), "op must be 0 to 20, found -1"),
    (ops.pointwise, (kernels.POINT["iou"], [x] * 2, 1, [0.1]), "inputs must have 5 entries, found 2"),
    (ops.pointwise, (kernels.POINT["iou"], [x] * 5, 1, []), "scalars must have 1 to 4 entries, found 0"),
    (ops.pointwise, (kernels.POINT["quick_gelu"], [x], 9, []), "outputs must be 1 to 1, found 9"),
    (
        ops.pointwise,
        (kernels.POINT["fast_gelu_mul"], [x, bias], 1, []),
        r"inputs\[1\] must have the shape of inputs\[0\], \(4, 6\), found \(6\)",
    ),
    (
        ops.pointwise,
        (kernels.POINT["quick_gelu"], [x.int()], 1, []),
        r"inputs\[0\] must have dtype float32, float64, bfloat16, found int32",
    ),
    (ops.fake_quantize, (x, torch.ones(0), torch.ones(1), 0.0, 1.0), r"scale must have 1 element, found 0"),
    (
        ops.fake_quantize,
        (x, torch.ones(1), torch.ones(0), 0.0, 1.0),
        r"zero_point must have 1 element, found 0",
    ),
    (
        ops.fake_quantize,
        (x, torch.ones(1), torch.ones(1).half(), 0.0, 1.0),
        "zero_point must have the dtype of scale, float32, found float16",
    ),
    (
        ops.fake_quantize,
        (x, torch.ones(1), torch.ones(1), math.nan, 1.0),
        "low must be at most high, 1, found nan",
    ),
    (ops.bias_gelu, (x, bias[:5], 1), r"bias must have shape \(6\), found \(5\)"),
    (ops.bias_gelu, (x, bias.double(), 1), "bias must have the dtype of x, float32, found float64"),
    (ops.bias_gelu, (x, bias, 2), "axis must be a dimension of x, 0 to 1, found 2"),
    (ops.bias_gelu, (x, bias, -1), "axis must be a dimension of x, 0 to 1, found -1"),
    (ops.bias_gelu, (torch.tensor(1.0), bias, 0), "x must have 1 to .* dimensions, found 0"),
    (ops.bias_gelu_backward, (x[:2], x, bias, 1), r"dy must have the shape of x, \(4, 6\), found \(2, 6\)"),
    (ops.bias_gelu_backward_sums, (x, x, bias, 5), "axis must be a dimension of x, 0 to 1, found 5"),
    (
        ops.bias_dropout,
        (x, bias, 1, 0.5, torch.empty(0, dtype=torch.int64)),
        "seed must have 1 element, found 0",
    ),
    (ops.bias_dropout, (x, bias, 1, 0.5, seed.int()), "seed must have dtype int64, found int32"),
    (ops.bias_dropout, (x, bias, 1, 1.5, seed), "p must be 0 to 1, found 1.5"),
    (ops.bias_dropout, (x, bias, 1, math.nan, seed), "p must be 0 to 1, found nan"),
    (
        ops.bias_dropout_backward,
        (x.long(), 0.5, seed),
        "dy must have dtype float32, float64, bfloat16, found int64",
    ),
    (ops.bias_dropout_backward_sums, (x, 2, 0.5, seed), "axis must be a dimension of dy, 0 to 1, found 2"),
    (
        ops.masked_softmax,
        (scores, torch.ones(2, 3, 3, dtype=torch.bool), 0, 1.0, 0.0, 0.0, None),
        r"mask must have the sizes of x, \(2, 3, 4\), or 1, found \(2, 3, 3\)",
    ),
    (
        ops.masked_softmax,
        (scores, None, 0, 1.0, 0.0, 0.5, None),
        "seed must be given where p is above 0, found None and p = 0.5",
    ),
    (
        ops.masked_softmax,
        (scores, scores, 0, 1.0, 0.0, 0.0, None),
        "mask must have dtype bool, found float32",
    ),
    (
        ops.masked_softmax,
        (scores, None, 2**63 - 1, 1.0, 0.0, 0.0, None),
        "diagonal must be .*, found 9223372036854775807",
    ),
    (
        ops.masked_softmax_backward,
        (scores[:1], None, scores, None, 0, 1.0, 0.0, None),
        "dy must have the shape of y",
    ),
    (ops.scale_tril, (bias, 0, 1.0, 0.0), "x must have 2 to .* dimensions, found 1"),
    (ops.rotary, (heads, table, table, 0, False, [0, 1, 2, 3], False), "parts must be at least 1, found 0"),
    (
        ops.rotary,
        (heads, table, table, 3, False, [0, 1, 2, 3], False),
        "parts must part the 4 columns of cos into parts of one even length, found 3",
    ),
    (
        ops.rotary,
        (heads, table, table, 1, False, [0, 0, 2, 3], False),
        "order must name each dimension once, found 0 twice",
    ),
    (ops.rotary, (heads, table, table, 1, False, [0, 1, 7, 3], False), r"order\[2\] must be 0 to 3, found 7"),
    (
        ops.rotary,
        (heads, torch.ones(1, 3, 8), torch.ones(1, 3, 8), 1, False, [0, 1, 2, 3], False),
        "cos must have at most 6 columns",
    ),
    (
        ops.rotary,
        (heads, table.double(), table.double(), 1, False, [0, 1, 2, 3], False),
        "cos must have dtype float32, found float64",
    ),
    (ops.pair_dots, (x, True), "x must have 3 dimensions, found 2"),
    (
        ops.pair_dots_backward,
        (torch.ones(2, 5), scores, True),
        r"dout must have shape \(2, 6\), found \(2, 5\)",
    ),
    (ops.adam_, ([x], [x], [x], [x], adam[:5]), "scalars must have 8 entries, found 5"),
    (ops.adam_, ([x, x], [x], [x, x], [x, x], adam), "diff must have 2 entries, found 1"),
    (ops.momentum_, ([x], [x], [x.t()], adam[:6]), r"buffer\[0\] must have the shape of model's tensor"),
    (
        ops.sgd_,
        ([torch.ones(1).expand(3)], [torch.ones(3)], adam[:3]),
        r"model\[0\] must be contiguous, as it is written in place",
    ),
    (
        ops.sgd_,
        ([x], [x.double()], adam[:3]),
        r"diff\[0\] must have the dtype of model's tensor, float32, found float64",
    ),
    (ops.blocks_, ([x], [], 0, [], [], []), "lanes must be 1 to 1, found 0"),
    (
        ops.blocks_,
        ([x], [], 1, [0, 0, 1, -1, -1, -1], [], []),
        r"code\[2\] must be a temporary that an earlier step computes, found temporary 0",
    ),
    (ops.blocks_, ([x], [], 1, [0, 0, 0, -1, -1, 3], [], []), r"code\[5\] must be -1 to -1, found 3"),
    (ops.blocks, ([x], 0, [], []), "results must be 1 to 64, found 0"),
    (ops.blocks, ([x, x.t()], 1, [9, 0, 1, 2, -1, -1], []), r"read\[1\] must have the shape of the first"),
    (ops.blocks, ([x], 2, [0, 0, 2, -1, -1, -1], []), "code must compute result 1, found no such step"),
    (
        ops.blocks,
        ([x], 1, [0, 0, 0, -1, -1, -1], []),
        r"code\[2\] must be a result that an earlier step computes, found result 0",
    ),
    (
        ops.blocks,
        ([x], 1, [0, 1, 1, -1, -1, -1], []),
        r"code\[1\] must be a tensor to write or a temporary, found tensor 0 of those to read",
    ),
    (
        ops.lstm,
        (torch.ones(1, 1, 5), torch.ones(4, 1), torch.ones(1, 1), torch.ones(1, 1), False),
        "given must have a multiple of 4 columns",
    ),
    (ops.mm, (x, x), r"b must have shape \(6, any\), found \(4, 6\)"),
    (
        ops.convolution,
        (image, torch.ones(2, 3, 3, 3), 1, 0, 0, 0, 1, 1),
        "stride_w must be 1 to 2147483647, found 0",
    ),
    (
        ops.convolution,
        (image, torch.ones(2, 3, 9, 3), 1, 1, 0, 0, 1, 1),
        "weight must fit 5 pixels .*, found a kernel of 9",
    ),
    (
        ops.crop_mirror_normalize,
        (
            torch.ones(1, 5, 5, 3, dtype=torch.uint8),
            None,
            2**63 - 1,
            0,
            [0.0] * 3,
            [1.0] * 3,
            torch.ones(1, 3, 2, 2),
        ),
        "top must be 0 to 3, found 9223372036854775807",
    ),
    (ops.nms_mask, (x, 0.5, -1), r"boxes must have shape \(any, 4\), found \(4, 6\)"),
    (
        ops.roi_align,
        (image, rois[:, :4], 1.0, 2, 2, 2, True),
        r"rois must have shape \(any, 5\), found \(1, 4\)",
    ),
    (
        ops.roi_align,
        (image, rois.double(), 1.0, 2, 2, 2, True),
        "rois must have the dtype of x, float32, found float64",
    ),
    (
        ops.roi_align,
        (image, rois + 2, 1.0, 2, 2, 2, True),
        "rois must name one of the 2 images in column 0, found 2 in row 0",
    ),
    (
        ops.roi_align,
        (image, rois * math.nan, 1.0, 2, 2, 2, True),
        "rois must name one of the 2 images in column 0, found nan in row 0",
    ),
    (ops.roi_align, (image, rois, 1.0, -2, 2, 2, True), "pooled_h must be 0 to 2147483647, found -2"),
    (
        ops.roi_align,
        (image, rois, 1.0, 2, 2, 10**9, True),
        "sampling_ratio must be .* to 1024, found 1000000000",
    ),
    (
        ops.roi_align_backward,
        (torch.ones(1, 3, 2, 2), rois, [2, 3, 5], 1.0, 2, True),
        "x_shape must have 4 entries, found 3",
    ),
    (
        ops.roi_align_backward,
        (torch.ones(1, 3, 2, 2), rois, [2, 3, -5, 5], 1.0, 2, True),
        r"x_shape\[2\] must be at least 0, found -5",
    ),
    (
        ops.roi_align_backward,
        (torch.ones(1, 3, 2, 2), rois - 3, [2, 3, 5, 5], 1.0, 2, True),
        "rois must name one of the 2 images in column 0, found -3 in row 0",
    ),
    (ops.deform_columns, (image[:1], offset, None, [3], *how[1:]), "kernel must have 2 entries, found 1"),
    (
        ops.deform_columns,
        (image[:1], offset, None, *how[:4], 0),
        "offset_groups must be 1 to 2147483647, found 0",
    ),
    (
        ops.deform_columns,
        (image[:1], offset, None, *how[:4], 2),
        "offset_groups must divide the 3 channels of x, found 2",
    ),
    (
        ops.deform_columns,
        (image[:1], offset[..., :2], None, *how),
        r"offset must have shape \(1, 18, 3, 3\), found \(1, 18, 3, 2\)",
    ),
    (
        ops.deform_columns,
        (image[:1], offset, modulation[:, :8], *how),
        r"mask must have shape \(1, 9, 3, 3\), found \(1, 8, 3, 3\)",
    ),
    (
        ops.deform_columns_backward,
        (torch.ones(1, 3, 9, 3, 2), image[:1], offset, None, *how),
        r"dcolumns must have shape \(1, 3, 9, 3, 3\), found \(1, 3, 9, 3, 2\)",
    ),
    (
        ops.ctc_greedy_decode,
        (scores, torch.ones(2, dtype=torch.int64), True),
        r"input_lengths must have shape \(3\), found \(2\)",
    ),
    (
        ops.ctc_greedy_decode,
        (scores, torch.ones(3, dtype=torch.int32), True),
        "input_lengths must have dtype int64, found int32",
    ),
    (
        ops.ctc_greedy_decode,
        (scores[..., :0], torch.ones(3, dtype=torch.int64), True),
        "log_probs must have a class along dimension 2",
    ),
    (ops.unique_pairs, (seed[None].int(), seed[None]), "keys must have dtype int64, found int32"),
    (ops.unique_pairs, (torch.arange(3), torch.arange(2)), "values must have 3 elements, found 2"),
]


@pytest.mark.parametrize(
    "op, arguments, message",
    MISFITS,
    ids=[f"{str(op).split('.')[-1]}: {message[:40]}" for op, _, message in MISFITS],
)
def test_misfit_is_refused_by_name(op, arguments, message):
    name = str(op).split(".")[-1]
    with pytest.raises(RuntimeError, match=f"^oneflow::{name}: {message}"):
        op(*arguments)


def test_refused_update_changes_nothing():
    model, buffer = [torch.ones(3), torch.ones(3)], [torch.ones(3), torch.ones(2)]
    with pytest.raises(RuntimeError, match=r"buffer\[1\]"):
        ops.momentum_(model, [torch.ones(3)] * 2, buffer, adam[:6])
    assert all(torch.equal(m, torch.ones(3)) for m in model)


def test_mask_of_size_one_holds_for_the_dimension():
    y, mask = torch.randn(2, 3, 4), torch.tensor([[[True, False, True, True]]])
    expected = torch.softmax(torch.where(mask, y * 0.5, -9.0), -1)
    torch.testing.assert_close(ops.masked_softmax(y, mask, 0, 0.5, -9.0, 0.0, None)[0], expected)


def test_empty_tensor_of_a_large_size_takes_no_time():
    empty = torch.empty(0).as_strided((2**62, 0, 1), (0, 0, 0))
    for out in (
        ops.scale_tril(empty, 0, 1.0, 0.0),
        ops.masked_softmax(empty, None, 0, 1.0, 0.0, 0.0, None)[0],
        ops.bias_dropout_backward(empty, 0.5, seed),
    ):
        assert out.shape == empty.shape


def test_empty_tensor_whose_strides_overflow_is_refused():
    with pytest.raises(RuntimeError, match="can't allocate memory for a tensor of shape"):
        ops.scale_tril(torch.empty(0).as_strided((0, 2**62, 3), (0, 0, 0)), 0, 1.0, 0.0)


# --------------------------------------------------------------------------- samples outside the image
@pytest.mark.parametrize("height, width", [(0, 5), (5, 0), (0, 0)])
def test_roi_align_of_an_empty_image(height, width):
    empty = torch.ones(2, 3, height, width, requires_grad=True)
    for ratio in (-1, 2):
        out = oneflow._C.roi_align(empty, rois, 1.0, 2, 3, ratio, True)
        assert out.shape == (1, 3, 2, 3) and not out.any()
        out.sum().backward()
        assert empty.grad.shape == empty.shape


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_roi_align_outside_reads_nothing(value):
    """Region 0 is outside the image, region 1 partly outside."""
    picture = torch.ones(1, 1, 4, 4)
    picture[0, 0, 0, 0] = value
    regions = torch.tensor([[0.0, -50, -50, -40, -40], [0.0, 2, 2, 9, 9]])
    out = ops.roi_align(picture, regions, 1.0, 2, 2, 2, False)
    assert not out[0].any() and out[1].isfinite().all()
    gradient = torch.full((2, 1, 2, 2), value)
    assert not ops.roi_align_backward(gradient[:1], regions[:1], [1, 1, 4, 4], 1.0, 2, False).any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_deform_outside_reads_nothing(value):
    picture = torch.ones(1, 1, 5, 5)
    picture[0, 0, 0, 0] = value
    away = torch.full((1, 18, 3, 3), 100.0)
    assert not ops.deform_columns(picture, away, modulation, *how).any()
    dx, doffset, dmask = ops.deform_columns_backward(
        torch.full((1, 1, 9, 3, 3), value), torch.ones(1, 1, 5, 5), away, modulation, *how
    )
    assert not dx.any() and not doffset.any() and not dmask.any()
    at_the_border = torch.full((1, 18, 3, 3), 2.5)  # the last taps have neighbours beyond the border
    columns = ops.deform_columns(picture, at_the_border, modulation, *how)
    assert columns.isfinite().all()


@pytest.mark.parametrize(
    "coordinates",
    [
        (math.nan,) * 4,
        (0, 0, math.inf, 3),
        (-math.inf, 0, 1, 1),
        (-3e38, -3e38, 3e38, 3e38),
        (0, 0, 1e30, 1e30),
    ],
    ids=str,
)
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align_of_hostile_regions(coordinates, ratio, aligned):
    regions = torch.tensor([[0.0, *coordinates]])
    out = ops.roi_align(image, regions, 1.0, 7, 7, ratio, aligned)
    assert out.isfinite().all()
    assert (
        ops.roi_align_backward(torch.ones_like(out), regions, list(image.shape), 1.0, ratio, aligned)
        .isfinite()
        .all()
    )


def test_time_of_automatic_sampling_follows_the_image():
    """A region of 10^12 pixels: only the points in the image are visited, and the mean is over all points."""
    regions = torch.tensor([[0.0, -5e5, -5e5, 5e5, 5e5]])
    began = time.process_time()
    out = ops.roi_align(torch.ones(1, 2, 20, 20), regions, 1.0, 7, 7, -1, False)
    gradient = ops.roi_align_backward(torch.ones_like(out), regions, [1, 2, 20, 20], 1.0, -1, False)
    assert time.process_time() - began < seconds(20)  # a visit of all points would take hours
    assert gradient.shape == (1, 2, 20, 20)
    points = math.ceil(1e6 / 7) ** 2  # of a bin; some 21 by 21 of the middle one's lie in the image
    assert 19**2 / points < out[0, 0, 3, 3] < 23**2 / points


@pytest.mark.parametrize("ratio", [-1, 1, 3])
@pytest.mark.parametrize("aligned", [True, False])
def test_regions_beyond_the_border_agree_with_the_plain_function(ratio, aligned):
    torch.manual_seed(0)
    picture = torch.randn(2, 3, 9, 11, dtype=torch.float64)
    corners = torch.rand(40, 4, dtype=torch.float64) * 60 - 25  # some of negative width and height
    regions = torch.cat((torch.randint(0, 2, (40, 1)).double(), corners), 1)
    actual = ops.roi_align(picture, regions, 0.5, 3, 4, ratio, aligned)
    torch.testing.assert_close(
        actual, detection.roi_align_ref(picture, regions, 0.5, 3, 4, ratio, aligned), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("backend", ["aten", "inductor"])
def test_an_unknown_elementwise_operator_is_named_in_a_graph_too(backend):
    class Unknown(oneflow.nn.Graph):
        def build(self, x):
            return ops.pointwise(99, [x], 1, [])[0]

    graph = Unknown()
    graph.config.set_backend(backend)
    with pytest.raises(RuntimeError, match="op must be 0 to 20, found 99"):
        graph(x)
