"""Random calls of the custom operators: a valid call with up to three arguments replaced by possibly invalid
ones.

A `Call` is data (shapes, strides, dtypes, numbers), sampled from a seed without using the operators' code;
`Call.arguments` creates the tensors. The valid call comes from BUILDERS, which has one function for each
operator.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import torch

SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 8, 9, 17, 33)
HOSTILE_SIZES = (0, 1, 2, 7, 64, 65, 1 << 20, 1 << 31, 1 << 40, 1 << 62)
HOSTILE_INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    -7,
    100,
    1 << 15,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
)
HOSTILE_FLOATS = (0.0, -1.0, 1.0, 0.5, 1e-30, 1e30, 1e300, math.inf, -math.inf, math.nan)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """The layout and the values of a tensor; `values`: normal, unit, special (with nan and infinities), index
    (0 .. high).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    values: str = "normal"
    high: int = 1
    layout: str = "dense"

    def strides(self) -> list[int]:
        order = list(range(len(self.shape)))
        if self.layout == "permuted":
            order = order[::-1]
        strides, step = [0] * len(self.shape), 2 if self.layout == "sliced" else 1
        for d in reversed(order):
            strides[d] = step
            step *= max(self.shape[d], 1)
        if self.layout == "expanded" and self.shape:
            strides[0] = 0
        if self.layout == "huge" or step > 1 << 20:  # more elements than memory holds, all of them one
            return [0] * len(self.shape)
        return strides

    def span(self) -> int:
        """The elements from the first to the last in memory."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides()))

    def fill(self, generator: torch.Generator) -> torch.Tensor:
        """The values, 1-d, in the order of memory."""
        count = self.span()
        if self.values == "index":
            return torch.randint(0, max(self.high, 1), (count,), generator=generator).to(self.dtype)
        if not self.dtype.is_floating_point and not self.dtype.is_complex:
            low, high = (
                (0, 2) if self.dtype is torch.bool else (0, 100) if self.dtype is torch.uint8 else (-100, 100)
            )
            return torch.randint(low, high, (count,), generator=generator).to(self.dtype)
        out = (
            torch.rand(count, generator=generator)
            if self.values == "unit"
            else torch.randn(count, generator=generator) * 3
        )
        if self.values == "special" and count:
            special = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30, 0.0])
            where = torch.rand(count, generator=generator) < 0.2
            out = torch.where(where, special[torch.randint(0, 6, (count,), generator=generator)], out)
        return out.to(self.dtype)


@dataclasses.dataclass(frozen=True)
class Call:
    operator: str
    values: tuple  # TensorSpec, lists of them, numbers, None

    def __str__(self):
        return f"oneflow::{self.operator}({', '.join(_text(v) for v in self.values)})"


def _text(value) -> str:
    if isinstance(value, TensorSpec):
        return f"{str(value.dtype)[6:]}{list(value.shape)} {value.layout} {value.values}"
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


def spec(*shape, dtype=torch.float32, **how) -> TensorSpec:
    return TensorSpec(tuple(shape), dtype, **how)


# --------------------------------------------------------------------------- calls that fit
def _size(rng, least=0):
    return max(rng.choice(SIZES), least)


def _shape(rng, low=0, high=4):
    return [_size(rng) for _ in range(rng.randint(low, high))]


def _floating(rng):
    return rng.choice((torch.float32, torch.float64, torch.bfloat16))


def _wide(rng):
    return rng.choice((torch.float32, torch.float64))


def _seed():
    return spec(dtype=torch.int64)


def _pointwise(rng):
    from oneflow._kernels import kernels

    counts = {
        "quick_gelu": (1, 1),
        "quick_gelu_backward": (2, 1),
        "square_relu": (1, 1),
        "square_relu_backward": (2, 1),
        "fast_gelu_mul": (2, 1),
        "fast_gelu_mul_backward": (3, 2),
        "boxes_coord": (8, 8),
        "boxes_coord_backward": (8, 8),
        "intersection": (8, 1),
        "intersection_backward": (9, 8),
        "iou": (5, 1),
        "iou_backward": (6, 5),
        "convex": (8, 1),
        "convex_backward": (9, 8),
        "center_dist": (8, 1),
        "center_dist_backward": (9, 4),
        "angle": (4, 1),
        "angle_backward": (5, 4),
        "ciou": (4, 2),
        "ciou_backward": (4, 4),
        "fake_quantize": (1, 1),
    }
    name = rng.choice(list(counts))
    inputs, outputs = counts[name]
    x = TensorSpec(tuple(_shape(rng)), _floating(rng), layout=_layout(rng))
    scalars = [0.1, 1.0, -8.0, 7.0] if name == "fake_quantize" else [1e-7] * rng.randint(1, 2)
    return [kernels.POINT[name], [x] * inputs, outputs, scalars]


def _fake_quantize(rng):
    dtype = _wide(rng)
    return [
        spec(*_shape(rng), dtype=_floating(rng)),
        spec(1, dtype=dtype, values="unit"),
        spec(dtype=dtype),
        -128.0,
        127.0,
    ]


def _biased(rng):
    x = spec(*_shape(rng, 1), dtype=_floating(rng))
    axis = rng.randrange(len(x.shape))
    return x, spec(x.shape[axis], dtype=x.dtype), axis


def _bias_gelu(rng):
    return list(_biased(rng))


def _bias_gelu_backward(rng):
    x, bias, axis = _biased(rng)
    return [x, x, bias, axis]


def _bias_dropout(rng):
    x, bias, axis = _biased(rng)
    return [x, bias, axis, rng.choice((0.0, 0.3, 1.0)), _seed()]


def _bias_dropout_backward(rng):
    return [spec(*_shape(rng), dtype=_floating(rng)), rng.choice((0.0, 0.3, 1.0)), _seed()]


def _bias_dropout_backward_sums(rng):
    x, _, axis = _biased(rng)
    return [x, axis, 0.3, _seed()]


def _masked(rng):
    x = spec(*_shape(rng, 1, 5), dtype=_floating(rng))
    mask = (
        spec(*(rng.choice((1, n)) for n in x.shape), dtype=torch.bool, layout=_layout(rng))
        if rng.random() < 0.6
        else None
    )
    p = rng.choice((0.0, 0.4))
    return x, mask, rng.randint(-3, 3), p, _seed() if p else None


def _masked_softmax(rng):
    x, mask, diagonal, p, seed = _masked(rng)
    return [x, mask, diagonal, 0.5, -9.0, p, seed]


def _masked_softmax_backward(rng):
    y, mask, diagonal, p, seed = _masked(rng)
    return [rng.choice((y, None)), rng.choice((y, None)), y, mask, diagonal, 0.5, p, seed]


def _scale_tril(rng):
    return [spec(*_shape(rng, 2, 4), dtype=_floating(rng)), rng.randint(-3, 3), 0.5, 0.0]


def _rotary(rng):
    b, m, h, parts = _size(rng), _size(rng), _size(rng), rng.choice((1, 2))
    size = 2 * parts * rng.randint(0, 3)
    dtype = _floating(rng)
    table = spec(
        rng.choice((1, b)), m, size, dtype=torch.float64 if dtype is torch.float64 else torch.float32
    )
    return [
        spec(b, m, h, size + rng.choice((0, 1, 5)), dtype=dtype),
        table,
        table,
        parts,
        rng.random() < 0.5,
        [*rng.sample((0, 1, 2), 3), 3],
        rng.random() < 0.5,
    ]


def _pair_dots(rng):
    return [spec(_size(rng), _size(rng), _size(rng), dtype=_floating(rng)), rng.random() < 0.5]


def _pair_dots_backward(rng):
    x, itself = _pair_dots(rng)
    f = x.shape[1]
    return [spec(x.shape[0], f * (f + (1 if itself else -1)) // 2, dtype=x.dtype), x, itself]


def _recurrent(rng, gates):
    steps, batch, hidden, dtype = _size(rng), _size(rng), _size(rng), _wide(rng)
    return lambda *shape: spec(*shape, dtype=dtype), steps, batch, hidden, gates * hidden


def _lstm(rng):
    t, steps, batch, hidden, columns = _recurrent(rng, 4)
    return [
        t(steps, batch, columns),
        t(columns, hidden),
        t(batch, hidden),
        t(batch, hidden),
        rng.random() < 0.5,
    ]


def _lstm_backward(rng):
    t, steps, batch, hidden, columns = _recurrent(rng, 4)
    optional = [rng.choice((x, None)) for x in (t(steps, batch, hidden), t(batch, hidden), t(batch, hidden))]
    return [*optional, t(5, steps, batch, hidden), t(batch, hidden), t(columns, hidden), rng.random() < 0.5]


def _rnn(rng):
    t, steps, batch, hidden, _ = _recurrent(rng, 1)
    return [
        t(steps, batch, hidden),
        t(hidden, hidden),
        rng.choice((t(hidden), None)),
        t(batch, hidden),
        rng.random() < 0.5,
        rng.random() < 0.5,
    ]


def _rnn_backward(rng):
    t, steps, batch, hidden, _ = _recurrent(rng, 1)
    return [
        rng.choice((t(steps, batch, hidden), None)),
        rng.choice((t(batch, hidden), None)),
        t(steps, batch, hidden),
        t(hidden, hidden),
        rng.random() < 0.5,
        rng.random() < 0.5,
    ]


def _gru(rng):
    t, steps, batch, hidden, columns = _recurrent(rng, 3)
    return [
        t(steps, batch, columns),
        t(columns, hidden),
        rng.choice((t(columns), None)),
        t(batch, hidden),
        rng.random() < 0.5,
    ]


def _gru_backward(rng):
    t, steps, batch, hidden, columns = _recurrent(rng, 3)
    optional = [rng.choice((x, None)) for x in (t(steps, batch, hidden), t(batch, hidden))]
    return [
        *optional,
        t(steps, batch, hidden),
        t(steps, batch, 4 * hidden),
        t(batch, hidden),
        t(columns, hidden),
        rng.random() < 0.5,
    ]


def _update(rng, lists, scalars):
    dtype = _floating(rng)
    model = [spec(*_shape(rng), dtype=dtype) for _ in range(rng.randint(1, 3))]
    return [*(list(model) for _ in range(lists)), [0.1, 0.9, 0.9, 0.99, 1.0, 1e-8, 1.0, 1.0][:scalars]]


def _new_blocks(rng):
    dtype, shape = _wide(rng), _shape(rng)
    # results 0 and 1 from the tensors 2 and 3, through temporary 4
    code = [
        rng.randrange(8),
        4,
        2,
        -1,
        -1,
        0,
        rng.randrange(8, 13),
        0,
        4,
        3,
        -1,
        1,
        rng.randrange(16, 23),
        1,
        0,
        -1,
        -1,
        -1,
    ]
    return [[spec(*shape, dtype=dtype) for _ in range(2)], 2, code, [0.5, rng.uniform(-2, 2)]]


def _blocks(rng):
    lanes, dtype = rng.randint(1, 3), _wide(rng)
    shapes = [_shape(rng) for _ in range(lanes)]
    written, read = (
        [spec(*shape, dtype=dtype) for shape in shapes for _ in range(count)] for count in (2, 1)
    )
    # to temporary 3, then from it
    code = [
        rng.randrange(8),
        3,
        2,
        -1,
        -1,
        0,
        rng.randrange(8, 13),
        0,
        1,
        3,
        -1,
        1,
        rng.randrange(14, 16),
        1,
        0,
        1,
        2,
        0,
    ]
    return [written, read, lanes, code, [0.5], [0.25] * lanes]


def _mm(rng):
    m, k, n = _size(rng), _size(rng), _size(rng)
    return [spec(m, k), spec(k, n)]


def _bmm(rng):
    (m, k), (_, n) = (t.shape for t in _mm(rng))
    b = _size(rng)
    return [spec(b, m, k), spec(b, k, n)]


def _convolved(rng, stride):
    """(images, kernel, gradient, the numbers of the window)."""
    n, channels, outputs, (kh, kw), padding, dilation = (
        rng.randint(0, 3),
        rng.randint(0, 4),
        rng.randint(0, 4),
        (rng.randint(1, 3), rng.randint(1, 3)),
        rng.randint(0, 2),
        rng.randint(1, 2),
    )
    h, w = (max(_size(rng), dilation * (k - 1) + 1 - 2 * padding, 0) for k in (kh, kw))
    oh, ow = ((size + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for size, k in ((h, kh), (w, kw)))
    return (
        spec(n, channels, h, w),
        spec(outputs, channels, kh, kw),
        spec(n, outputs, oh, ow),
        ([stride] * 2, [padding] * 2, [dilation] * 2),
    )


def _convolution(rng):
    x, weight, _, (stride, padding, dilation) = _convolved(rng, rng.randint(1, 3))
    return [x, weight, *stride, *padding, *dilation]


def _convolution_backward_input(rng):
    x, weight, dy, (_, padding, dilation) = _convolved(rng, 1)
    return [dy, weight, *x.shape[2:], *padding, *dilation]


def _convolution_backward_weight(rng):
    x, weight, dy, (stride, padding, dilation) = _convolved(rng, rng.randint(1, 3))
    return [dy, x, *weight.shape[2:], *stride, *padding, *dilation]


def _crop_mirror_normalize(rng):
    n, channels, h, w, top, left = (
        rng.randint(0, 3),
        rng.choice((1, 3)),
        _size(rng),
        _size(rng),
        rng.randint(0, 3),
        rng.randint(0, 3),
    )
    mirror = rng.choice((None, spec(n, dtype=torch.int8)))
    return [
        spec(n, h + top, w + left, channels, dtype=torch.uint8),
        mirror,
        top,
        left,
        [1.0] * channels,
        [0.5] * channels,
        spec(n, channels, h, w),
    ]


def _nms_mask(rng):
    return [spec(_size(rng), 4, dtype=_wide(rng)), 0.5, rng.choice((-1, 2))]


def _regions(rng):
    x = spec(rng.randint(1, 3), rng.randint(0, 3), _size(rng), _size(rng), dtype=_wide(rng))
    return (
        x,
        spec(rng.randint(0, 4), 5, dtype=x.dtype, values="index", high=rng.choice((1, x.shape[0]))),
        rng.randint(0, 5),
        rng.randint(0, 5),
    )


def _roi_align(rng):
    x, rois, h, w = _regions(rng)
    return [
        x,
        rois,
        rng.choice((0.125, 1.0, 1e6, -1.0)),
        h,
        w,
        rng.choice((-1, 0, 1, 2, 5)),
        rng.random() < 0.5,
    ]


def _roi_align_backward(rng):
    x, rois, h, w = _regions(rng)
    return [
        spec(rois.shape[0], x.shape[1], h, w, dtype=x.dtype),
        rois,
        list(x.shape),
        rng.choice((0.125, 1.0, 1e6, -1.0)),
        rng.choice((-1, 0, 1, 2, 5)),
        rng.random() < 0.5,
    ]


def _deformed(rng):
    groups, dtype, kernel, stride, padding, dilation = (
        rng.randint(1, 2),
        _wide(rng),
        [rng.randint(1, 3), rng.randint(1, 3)],
        [rng.randint(1, 2)] * 2,
        [rng.randint(0, 2)] * 2,
        [rng.randint(1, 2)] * 2,
    )
    n, channels, h, w = rng.randint(0, 2), groups * rng.randint(0, 2), _size(rng, 3), _size(rng, 3)
    oh, ow = (
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation)
    )
    oh, ow, taps = max(oh, 0), max(ow, 0), kernel[0] * kernel[1]
    offset, mask = (
        spec(n, 2 * groups * taps, oh, ow, dtype=dtype),
        spec(n, groups * taps, oh, ow, dtype=dtype),
    )
    columns = spec(n, channels, taps, oh, ow, dtype=dtype)
    return columns, [
        spec(n, channels, h, w, dtype=dtype),
        offset,
        rng.choice((mask, None)),
        kernel,
        stride,
        padding,
        dilation,
        groups,
    ]


def _deform_columns(rng):
    return _deformed(rng)[1]


def _deform_columns_backward(rng):
    columns, arguments = _deformed(rng)
    return [columns, *arguments]


def _ctc_greedy_decode(rng):
    steps, n = _size(rng), _size(rng)
    return [spec(steps, n, _size(rng, 1), dtype=_wide(rng)), spec(n, dtype=torch.int64), rng.random() < 0.5]


def _unique_pairs(rng):
    n = _size(rng)
    return [
        spec(n, dtype=torch.int64, values="index", high=5),
        spec(n, dtype=rng.choice((torch.uint8, torch.int64, torch.float32))),
    ]


def _product(rng):
    a, b = rng.choice((_mm, _bmm))(rng)
    n = b.shape[-1]
    return [rng.choice((None, spec(n), spec(a.shape[-2], n), spec(1, 1))), a, b]


BUILDERS: dict[str, Callable[[random.Random], list]] = {
    "pointwise": _pointwise,
    "fake_quantize": _fake_quantize,
    "bias_gelu": _bias_gelu,
    "bias_gelu_backward": _bias_gelu_backward,
    "bias_gelu_backward_sums": _bias_gelu_backward,
    "bias_dropout": _bias_dropout,
    "bias_dropout_backward": _bias_dropout_backward,
    "bias_dropout_backward_sums": _bias_dropout_backward_sums,
    "masked_softmax": _masked_softmax,
    "masked_softmax_backward": _masked_softmax_backward,
    "scale_tril": _scale_tril,
    "rotary": _rotary,
    "pair_dots": _pair_dots,
    "pair_dots_backward": _pair_dots_backward,
    "lstm": _lstm,
    "lstm_backward": _lstm_backward,
    "rnn": _rnn,
    "rnn_backward": _rnn_backward,
    "gru": _gru,
    "gru_backward": _gru_backward,
    "adam_": lambda rng: _update(rng, 4, 8),
    "momentum_": lambda rng: _update(rng, 3, 6),
    "sgd_": lambda rng: _update(rng, 2, 3),
    "blocks_": _blocks,
    "blocks": _new_blocks,
    "mm": _mm,
    "bmm": _bmm,
    "exact_product": _product,
    "product_in_blocks": lambda rng: [*_product(rng), rng.randint(1, 8)],
    "product_blocks": _product,
    "product_rules": lambda rng: [spec(_size(rng)), []],
    "convolution": _convolution,
    "convolution_backward_input": _convolution_backward_input,
    "convolution_backward_weight": _convolution_backward_weight,
    "crop_mirror_normalize": _crop_mirror_normalize,
    "nms_mask": _nms_mask,
    "roi_align": _roi_align,
    "roi_align_backward": _roi_align_backward,
    "deform_columns": _deform_columns,
    "deform_columns_backward": _deform_columns_backward,
    "ctc_greedy_decode": _ctc_greedy_decode,
    "unique_pairs": _unique_pairs,
}


# --------------------------------------------------------------------------- changes
def _layout(rng):
    return rng.choice(("dense", "dense", "permuted", "sliced", "expanded"))


def _change_shape(rng, shape):
    shape = list(shape)
    how = rng.randrange(5)
    if how == 0 and shape:
        del shape[rng.randrange(len(shape))]
    elif how == 1:
        shape.insert(rng.randint(0, len(shape)), rng.choice(SIZES))
    elif how == 2 and shape:
        i = rng.randrange(len(shape))
        shape[i] = max(shape[i] + rng.choice((-1, 1)), 0)
    elif shape:
        shape[rng.randrange(len(shape))] = rng.choice(SIZES)
    return tuple(shape)


def _change_tensor(rng, x: TensorSpec) -> TensorSpec:
    how = rng.randrange(7)
    if how < 2:
        return dataclasses.replace(x, shape=_change_shape(rng, x.shape))
    if how == 2:
        return dataclasses.replace(x, dtype=rng.choice(DTYPES))
    if how == 3:
        return dataclasses.replace(x, layout=_layout(rng))
    if how == 4:
        return dataclasses.replace(x, values="special")
    if how == 5 and x.shape:  # sizes whose product an int64 does not hold, of a tensor without elements
        shape = [rng.choice(HOSTILE_SIZES) for _ in x.shape]
        shape[rng.randrange(len(shape))] = 0
        return dataclasses.replace(x, shape=tuple(shape), layout="huge")
    if how == 6 and x.shape and rng.random() < 0.3:
        shape = list(x.shape)
        shape[rng.randrange(len(shape))] = rng.choice((1 << 13, 1 << 31, 1 << 40))
        return dataclasses.replace(x, shape=tuple(shape), layout="huge") if math.prod(shape) < 1 << 62 else x
    return dataclasses.replace(x, values="index", high=rng.choice((1, 2, 100)))


def _change_list(rng, values):
    values = list(values)
    how = rng.randrange(4)
    if how == 0 and values:
        del values[rng.randrange(len(values))]
    elif how == 1 and values:
        values.append(rng.choice(values))
    elif values:
        i = rng.randrange(len(values))
        values[i] = change(rng, values[i], "")
    return values


def change(rng, value, type_name: str):
    """Another value of the argument's type."""
    if isinstance(value, list):
        return _change_list(rng, value)
    if type_name.startswith("Optional") and rng.random() < 0.3:
        return None if value is not None else spec(*_shape(rng), dtype=rng.choice(DTYPES))
    if isinstance(value, TensorSpec):
        return _change_tensor(rng, value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return min(
            max(rng.choice((value + 1, value - 1, rng.choice(HOSTILE_INTEGERS))), -(1 << 63)), (1 << 63) - 1
        )
    return rng.choice(HOSTILE_FLOATS) if isinstance(value, float) else value


def draw(seed: int, operators: list[str]) -> Call:
    """The call of this seed."""
    rng = random.Random(seed)
    name = rng.choice(operators)
    values = BUILDERS[name](rng)
    types = [str(a.type) for a in getattr(torch.ops.oneflow, name).default._schema.arguments]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        i = rng.randrange(len(values))
        values[i] = change(rng, values[i], types[i])
    return Call(name, tuple(values))
