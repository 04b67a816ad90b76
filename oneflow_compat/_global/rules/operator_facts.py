"""Facts about ATen operators on global tensors of several ranks."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from ..._tables.statistics_writes import STATISTICS_WRITES

aten = torch.ops.aten
# If DTensor moves one of their running statistics, it would write the copy.
UNDECLARED_WRITES = {operator.attrgetter(name)(aten) for name in STATISTICS_WRITES}
# function -> position of its `dim`; DTensor takes a negative dimension for one that is not sharded
DIM_POSITIONS = dict.fromkeys(
    [getattr(aten, n).default for n in ("cumprod", "cumprod_", "cumsum", "cumsum_", "logcumsumexp")], 1
) | {aten.select.int: 1, aten.select_backward.default: 2}
# An empty list of dimensions means all of them; DTensor takes it for none.
REDUCTIONS = {
    aten.sum.dim_IntList,
    aten.nansum.default,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.var.correction,
    aten.std.correction,
    aten.logsumexp.default,
    aten.any.dims,
    aten.all.dims,
}
# Indices are ordinary tensors, and scalars and lists become ordinary tensors.
# quantile fills an ordinary tensor under a global mask.
TAKES_ORDINARY_TENSORS = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten.masked_fill.Scalar,
    aten._embedding_bag.default,
}
# function -> how many leading arguments are data. With wider weights, a kernel gives statistics of their
# dtype, which neither a rank without data nor a program expects.
NORMALIZATIONS = {
    aten.native_layer_norm.default: 1,
    aten.native_group_norm.default: 1,
    aten.native_layer_norm_backward.default: 2,
    aten.native_group_norm_backward.default: 2,
}
# For a partial tensor and sharded indices, DTensor of torch 2.11 has the values of its own indices only.
SELECTIONS = {aten.index_select.default, aten.index.Tensor}
# DTensor derives a strategy from their decomposition, as if the shards were the full tensor.
REARRANGEMENTS = {aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default}
# DTensor runs its own code for them, also on ranks without data.
EXTREMA = {aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim}
# Optimizer updates that DTensor cannot shard.
UPDATES = {aten._fused_sgd_.default, aten._fused_sgd_.tensor_lr, aten._fused_adagrad_.default}
# To a partial tensor, DTensor adds a scalar or a replicated operand on every rank.
ADDITIONS = {
    getattr(getattr(aten, n), overload)
    for n in ("add", "add_", "sub", "sub_", "rsub")
    for overload in ("Tensor", "Scalar")
}
# Functions that may be applied in place to each summand of a partial tensor.
LINEAR_IN_PLACE = {
    aten.add_.Tensor,
    aten.sub_.Tensor,
    aten.mul_.Tensor,
    aten.mul_.Scalar,
    aten.div_.Tensor,
    aten.div_.Scalar,
    aten.neg_.default,
    aten.zero_.default,
    aten.copy_.default,
    aten.detach_.default,
}
# Functions that accept shards without elements, in addition to the pointwise functions.
TAKES_EMPTY_SHARDS = {
    getattr(aten, n)
    for n in (
        "detach",
        "alias",
        "copy_",
        "_to_copy",
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "fill_",
        "zero_",
        "t",
        "transpose",
        "permute",
        "unsqueeze",
    )
}
# Errors of kernels about this rank's values.
VALUE_ERRORS = (
    "out of bounds",
    "out of range",
    "between 0 and 1",
    "singular",
    "must be non-negative",
    "probability tensor contains",
)
# DTensor infers the shape of an uneven shard from one rank only.
VIEWS = {aten.view.default, aten._unsafe_view.default}
# DTensor's kernels overlook these flags of a tensor's memory, so the values are computed.
MEMORY_FLAGS = {aten._conj.default: aten.conj_physical.default, aten._neg_view.default: aten.neg.default}
RESHAPES_IN_PLACE = ("squeeze_", "unsqueeze_", "t_", "transpose_")
READS = {aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default}


@functools.cache
def writes_elsewhere(func: Any) -> bool:
    """Whether a function writes other elements than it reads.

    DTensor gives the written tensor the placements of the one that is read, and no values.
    """
    alike = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}.intersection(func.tags)
    return (
        func._schema.is_mutable
        and not alike
        and func.overloadpacket not in TAKES_EMPTY_SHARDS
        and not func._opname.startswith(("_foreach_", "_fused_"))
    )
