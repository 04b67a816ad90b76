"""The results of frequent operators in the usual cases, without torch's fake kernels.

Torch finds the results of an operator by running its kernel on fake tensors. For batch norm in training that
takes 5 milliseconds a layer, for an elementwise operator a fifth of one.

Some of torch's fake kernels give another layout than the kernel: the CPU's batch norm makes the result of a
transposed input dense, and torch's fake kernel keeps it transposed. Then a view() that works in eager mode
would fail in the program. `Operator.layout` in program/operators.py lists such operators.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...program.operators import Contiguous, Iterated, Suggested, facts_of
from ...program.recurrent_layer import WHOLE_LAYERS
from . import layer_results
from .meta_kernels import is_static_fake, new_fake

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_HALF = (torch.bfloat16, torch.float16)
_ON_COUNTS = (aten.add_.Tensor, aten.sub_.Tensor, aten.mul_.Tensor)  # of integers and integers


@dataclass(frozen=True)
class Rule:
    """How to get the results of some operators: `results(func, args, kwargs)` returns None if it cannot."""

    name: str
    operators: frozenset[Any]
    results: Callable[[Any, tuple[Any, ...], dict[Any, Any]], Any]


def known_results(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the fake results of an operator, or None if torch has to compute them.

    Call it in the fake mode.
    """
    for results in _applicable(func):
        out = results(func, args, kwargs)
        if out is not None:
            return out
    return None


def has_rules(func: Any) -> bool:
    """Whether known_results() may know the results of an operator."""
    return bool(_applicable(func))


@functools.cache
def _applicable(func: Any) -> tuple[Any, ...]:
    """Return the functions that may give the results of an operator, in their order."""
    facts = facts_of(func)
    return (
        *((_elementwise,) if facts.elementwise and not func._opname.startswith("_foreach_") else ()),
        *(rule.results for rule in _RULES if func in rule.operators),
        *((layer_results.RESULTS[func],) if func in layer_results.RESULTS else ()),
        *((_of_cpu_layout,) if facts.layout is not None else ()),
    )


def _elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func._schema.is_mutable:
        floats_or_counts = _FLOATS if func not in _ON_COUNTS else (*_FLOATS, torch.int64)
        return args[0] if _writes((*args, *kwargs.values()), floats_or_counts) else None
    return _like(args[0]) if _alike((*args, *kwargs.values())) else None


def _native_batch_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    x, *channel_wise, training, _, _ = args
    if (training or x.is_cpu) and _usual(x, channel_wise):
        channels = x.shape[1] if training else 0
        return _like(x), *_vectors(x, channels, 2)
    if x.is_cpu and x.dtype in _HALF and x.dim() > 1 and _format(x) is not None:
        return _like(x), *func(*args)[1:]
    return None


def _batch_norm_without_statistics(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    x, weight, bias, *options = args
    return _native_batch_norm(func, (x, weight, bias, None, None, *options), kwargs)


def _native_batch_norm_backward(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    grad, x, *channel_wise, training, _, output_mask = args
    if (
        not (training or x.is_cpu)
        or grad.shape != x.shape
        or grad.dtype != x.dtype
        or not _usual(x, channel_wise if training else channel_wise[:3])
    ):
        return None
    results = _like(x), *_vectors(x, x.shape[1], 2)
    return tuple(result if is_needed else None for result, is_needed in zip(results, output_mask))


def _cudnn_batch_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    x, *channel_wise, training, _, _ = args
    if not training or not _usual(x, channel_wise):
        return None
    workspace = x.new_empty(0, dtype=torch.uint8)
    return _like(x), *_vectors(x, x.shape[1], 2), workspace


def _cudnn_batch_norm_backward(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    x, grad, weight, *_ = args
    if grad.shape != x.shape or grad.dtype != x.dtype or not _usual(x, (weight,)):
        return None
    return _like(x), *_vectors(x, x.shape[1], 2)


def _whole_layer(x: Any, h: Any, *options: Any) -> Any:
    *_, bidirectional, batch_first = options
    steps, batch = reversed(x.shape[:2]) if batch_first else x.shape[:2]
    out = x.new_empty((steps, batch, h.shape[2] * (2 if bidirectional else 1)))
    return out.transpose(0, 1) if batch_first else out, h.new_empty(h.shape)


def _cudnn_rnn(
    x: torch.Tensor,
    weights: Any,
    _stride: Any,
    _buffer: Any,
    h: Any,
    c: Any,
    _mode: Any,
    hidden: Any,
    projected: Any,
    layers: Any,
    batch_first: bool,
    _p: Any,
    _train: Any,
    both: Any,
    sizes: Any,
    _: Any,
) -> tuple[Any, ...]:
    directions, batch = 2 if both else 1, sizes[0] if sizes else x.shape[0 if batch_first else 1]
    out = x.new_empty((*x.shape[:-1], (projected or hidden) * directions))
    last = h.new_empty((layers * directions, batch, projected or hidden))
    cell = x.new_empty(0) if c is None else c.new_empty((layers * directions, batch, hidden))
    reserve, buffer = x.new_empty(0, dtype=torch.uint8), x.new_empty(sum(w.numel() for w in weights))
    return out, last, cell, reserve, buffer


def _cudnn_rnn_backward(
    x: torch.Tensor, weights: Any, _stride: Any, _buffer: Any, h: Any, c: Any, *options: Any
) -> tuple[Any, ...]:
    *_, mask = options
    gradients = (None if t is None else t.new_empty(t.shape) for t in (x, h, c))
    return *gradients, [w.new_empty(w.shape) for w in weights] if mask[3] else []


def _weight_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The kernel gives the norms of float16 in float32. Torch's fake kernel (2.13) keeps float16."""
    if args[1].dtype is not torch.float16:
        return None
    weight, norms = func(*args)
    return weight, norms.float()


def _zero_tensor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Views of a fake tensor that is marked as zero would leave the fake mode.

    A tensor without dimensions may stand for a number, which is read.
    """
    return torch.empty(*args, **kwargs) if args[0] else None


def _index_by_byte_masks(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Torch's fake kernel takes no masks of bytes."""
    if not any(i is not None and i.dtype is torch.uint8 for i in args[1]):
        return None
    return func(args[0], [i.bool() if i is not None and i.dtype is torch.uint8 else i for i in args[1]])


def _masked_select(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One mask gives one size."""
    if not args[1].numel():
        return None
    times = math.prod(torch.broadcast_shapes(args[0].shape, args[1].shape)) // args[1].numel()
    return args[0].new_empty(aten.nonzero.default(args[1]).shape[0] * times)


def _half_precision_arithmetic(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of half precision, torch takes expanded tensors for contiguous ones."""
    if not any(isinstance(a, torch.Tensor) and a.dtype in _HALF for a in args):
        return None
    return _iterated(Iterated(), args, func(*args, **kwargs))


def _grouped_mm_results(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _grouped_mm(*args, **kwargs)


def _upsample_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Torch's fake kernel (2.13) takes no list in which all sizes are symbols."""
    grad, _, size, *_ = args
    if all(type(n) is int for n in size):
        return None
    memory_format = torch._prims_common.suggest_memory_format(grad)
    return torch.empty(size, dtype=grad.dtype, device=grad.device, memory_format=memory_format)


_UPSAMPLE = (
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d upsample_nearest1d"
    " upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d"
)


def _existing(name: str) -> frozenset[Any]:
    """Return an operator that the installed torch may lack."""
    packet, _, overload = name.partition(".")
    found = getattr(getattr(aten, packet, None), overload, None)
    return frozenset() if found is None else frozenset({found})


_RULES = (
    Rule("batch norm", frozenset({aten.native_batch_norm.default}), _native_batch_norm),
    Rule(
        "batch norm without statistics",
        _existing("_native_batch_norm_legit.no_stats"),
        _batch_norm_without_statistics,
    ),
    Rule("weight norm", _existing("_weight_norm_interface.default"), _weight_norm),
    Rule(
        "ldexp",
        frozenset({aten.ldexp.Tensor}),
        lambda func, args, kwargs: _iterated(Iterated(), (args[0], args[1].contiguous()), func(*args)),
    ),
    Rule(
        "gradient of batch norm",
        frozenset({aten.native_batch_norm_backward.default}),
        _native_batch_norm_backward,
    ),
    Rule("batch norm of cuDNN", frozenset({aten.cudnn_batch_norm.default}), _cudnn_batch_norm),
    Rule(
        "gradient of batch norm of cuDNN",
        frozenset({aten.cudnn_batch_norm_backward.default}),
        _cudnn_batch_norm_backward,
    ),
    # torch has no symbolic forms of recurrent operators, or some without the buffer of the weights
    Rule(
        "recurrent layers",
        frozenset(WHOLE_LAYERS.values()),
        lambda func, args, kwargs: _whole_layer(*args),
    ),
    Rule(
        "recurrent layers of cuDNN",
        frozenset({aten._cudnn_rnn.default}),
        lambda func, args, kwargs: _cudnn_rnn(*args),
    ),
    Rule(
        "gradient of recurrent layers of cuDNN",
        frozenset({aten._cudnn_rnn_backward.default}),
        lambda func, args, kwargs: _cudnn_rnn_backward(*args),
    ),
    Rule("zeros without memory", frozenset({aten._efficientzerotensor.default}), _zero_tensor),
    Rule("masks of bytes", frozenset({aten.index.Tensor}), _index_by_byte_masks),
    Rule("masked_select", frozenset({aten.masked_select.default}), _masked_select),
    Rule(
        "index_fill",
        frozenset({aten.index_fill.int_Scalar, aten.index_fill.int_Tensor}),
        lambda func, args, kwargs: args[0].clone(),
    ),
    Rule(
        "arithmetic of half precision",
        frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}),
        _half_precision_arithmetic,
    ),
    Rule(
        "multi_margin_loss of one sample",
        frozenset({aten.multi_margin_loss.default}),
        lambda func, args, kwargs: None if args[1].dim() else args[0].new_empty(()),
    ),
    Rule(
        "gradients of resized images",
        frozenset(getattr(aten, f"{name}_backward").default for name in _UPSAMPLE.split()),
        _upsample_backward,
    ),
    Rule(
        "gradient of CTC",  # torch has no fake kernel, and runs the kernel on zeros
        frozenset({aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor}),
        lambda func, args, kwargs: args[1].new_empty(args[1].shape),
    ),
    Rule("products of groups", frozenset({aten._grouped_mm.default}), _grouped_mm_results),
)


def _of_cpu_layout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Torch's results with the layout of the CPU's kernel."""
    if not all(a.is_cpu for a in args if isinstance(a, torch.Tensor)):
        return None
    layout, out = facts_of(func).layout, func(*args, **kwargs)
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: _laid_out(layout, args, t), out)


def _laid_out(layout: Contiguous | Iterated | Suggested | None, args: Any, out: Any) -> Any:
    if isinstance(layout, Iterated):
        return _iterated(layout, args, out)
    memory_format = torch.contiguous_format
    if isinstance(layout, Suggested):
        memory_format = torch._prims_common.suggest_memory_format(args[layout.argument])
    return torch.empty(out.shape, dtype=out.dtype, device=out.device, memory_format=memory_format)


def _iterated(layout: Iterated, args: tuple[Any, ...], out: Any) -> Any:
    """Return a result with the first layout of its arguments that decides; 0-d tensors do not."""
    deciding = [
        args[i].expand(out.shape)
        for i in layout.arguments
        if isinstance(args[i], torch.Tensor) and args[i].dim()
    ]
    stride = torch._prims_common.compute_elementwise_output_strides(*deciding) if deciding else out.stride()
    return torch.empty_strided(out.shape, stride, dtype=out.dtype, device=out.device)


def _grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """torch's symbolic form takes bfloat16 only, the CPU's kernel float32 and float16 too; rows of the result
    start at multiples of 16 bytes.
    """
    if not a.is_cpu or a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return None
    flat = (a.dim() == 2) + (b.dim() == 2)
    size = ((offs.shape[0],) if flat == 2 else () if flat else (a.shape[0],)) + (a.shape[-2], b.shape[-1])
    alignment = 16 // a.element_size()
    row = (size[-1] + alignment - 1) // alignment * alignment
    return torch.empty_strided(size, (size[-2] * row, row, 1)[-len(size) :], dtype=a.dtype, device=a.device)


def _alike(args: tuple[Any, ...]) -> bool:
    """Return True for floating-point tensors of one shape, dtype, device and dense layout, and options."""
    leading = args[0]
    if (
        not isinstance(leading, torch.Tensor)
        or leading.dtype not in _FLOATS
        or leading.layout is not torch.strided
        or not _dense(leading)
    ):
        return False
    layout = leading.shape, leading.stride(), leading.dtype, leading.device
    for a in args[1:]:
        if isinstance(a, torch.Tensor):
            if a.layout is not torch.strided or (a.shape, a.stride(), a.dtype, a.device) != layout:
                return False
        elif type(a) not in (int, float, str):
            return False
    return True


def _writes(args: tuple[Any, ...], dtypes: tuple[torch.dtype, ...]) -> bool:
    """Return True for tensors of one shape, dtype and device, and options.

    The first tensor must have a separate element for each index.
    """
    destination = args[0]
    if (
        not isinstance(destination, torch.Tensor)
        or destination.dtype not in dtypes
        or destination.layout is not torch.strided
        or 0 in destination.stride()
    ):
        return False
    layout = torch.strided, destination.shape, destination.dtype, destination.device
    options = (int, float, bool, str) if destination.dtype in _FLOATS else (int,)
    return all(
        (a.layout, a.shape, a.dtype, a.device) == layout
        if isinstance(a, torch.Tensor)
        else type(a) in options
        for a in args[1:]
    )


def _dense(x: torch.Tensor) -> Any:
    return x.is_contiguous() or x.ndim in _FORMATS and x.is_contiguous(memory_format=_FORMATS[x.ndim])


def _usual(x: torch.Tensor, channel_wise: Any) -> bool:
    if x.ndim < 2 or x.dtype not in (torch.float32, torch.float64) or _format(x) is None:
        return False
    return all(t is None or t.shape == x.shape[1:2] and t.dtype == x.dtype for t in channel_wise)


def _format(x: torch.Tensor) -> Any:
    """Return the memory format of the kernel's result, or None.

    It is None for a tensor of two formats at once, and, off the CPU, for a tensor of no format.
    """
    channels_last = _FORMATS.get(x.ndim)
    plain, last = (
        x.is_contiguous(),
        channels_last is not None and x.is_contiguous(memory_format=channels_last),
    )
    if plain != last:
        return torch.contiguous_format if plain else channels_last
    return torch._prims_common.suggest_memory_format(x) if x.is_cpu and not plain else None


def _like(x: torch.Tensor) -> Any:
    if is_static_fake(x):
        options = {"dtype": x.dtype, "memory_format": _format(x)}
        return new_fake(x.fake_mode, x.fake_device, torch.empty, x.shape, **options)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=_format(x))


def _vectors(x: torch.Tensor, size: Any, count: int) -> list[Any]:
    """Return vectors of the dtype and on the device of a tensor."""
    if is_static_fake(x):
        return [new_fake(x.fake_mode, x.fake_device, torch.empty, size, dtype=x.dtype) for _ in range(count)]
    return [x.new_empty(size) for _ in range(count)]
