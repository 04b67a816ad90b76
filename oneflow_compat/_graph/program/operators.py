"""What ATen operators do with memory, as their schemas say, and one table of what the schemas do not say.

`facts_of(operator)` gives the row of an operator, with defaults for an ordinary one. Capture, passes and
backends read their special cases here. The patterns are in passes/patterns.py.

**Add an operator.** Most operators need nothing: the recorder takes whatever arrives at the dispatcher, and
the schema says what is written and what is a view. Add a row to `_ROWS` if the kernel does what the schema
or torch's fake kernel does not say. Each fact of `Operator` has its meaning beside it; a new fact is a field
with the default of an ordinary operator. Read the fact by `facts_of(target)` where it decides something, so
that each question has one list.

A row names one overload (`add.Tensor`), or all of them that write no `out` and take no dtype (`add`). Rows
of one operator are merged, and a fact that two rows give is an error. Add a test that fails without the row
to `tests/graph/passes/test_operator_facts.py`, or beside the code that reads the fact.

Two traps. A missing fact about writes, views or names makes a wrong program; most others cost time only. A
fact about layouts holds for the kernels of the CPU, because the kernels of CUDA often lay out results
otherwise.

An operator of this package starts in csrc/ (csrc/README.md has the steps), and gets a row here like any
other.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..._tables.statistics_writes import STATISTICS_WRITES

if TYPE_CHECKING:
    from torch._ops import OpOverload

aten = torch.ops.aten
ArgumentTypes = list[Any]  # the dtypes of tensors, and the Python types of other arguments


@dataclass(frozen=True)
class Refusal:
    """What the kernels refuse and torch's fake kernels take."""

    applies: Callable[[ArgumentTypes], bool]
    needs: str
    error: type[Exception] = RuntimeError


@dataclass(frozen=True)
class Contiguous:
    """The CPU's kernel gives contiguous results, whatever torch's fake kernel says."""


@dataclass(frozen=True)
class Iterated:
    """The CPU's kernel lays the result out as torch's iterator over these arguments does."""

    arguments: tuple[int, ...] = (0, 1)


@dataclass(frozen=True)
class Suggested:
    """The CPU's kernel gives the memory format that this argument suggests."""

    argument: int


@dataclass(frozen=True)
class Operator:
    """The facts about one operator. The defaults are those of an ordinary operator."""

    # running mean, running variance and training flag: the statistics are written if the flag is set,
    # although the schema does not say so
    written_statistics: tuple[int, int, int] | None = None
    # the result is a view, or several views, that shapes and strides of the argument determine
    view: Literal["one", "several"] | None = None
    # the result is the argument under another name
    renames: bool = False
    # the operator changes shape or strides of its argument in place
    changes_metadata: bool = False
    # the argument is a tensor that torch made of Python data
    lifts: bool = False
    # the result is filled with this value
    fill: int | None = None
    # only shape, dtype, device and strides of the first argument matter
    reads_layout_only: bool = False
    # results and first argument have the same shape, dtype and layout, if all tensors are alike
    elementwise: bool = False
    # the layout of results on the CPU, if torch's fake kernel has another one
    layout: Contiguous | Iterated | Suggested | None = None
    # results after the first have float32 on the CPU if one of these arguments is of another dtype than the
    # input; torch's fake kernel keeps the dtype of the input
    statistics: tuple[int, ...] = ()
    # the size of the result's memory is not that of its shape, so that results are not kept
    has_other_memory: bool = False
    # torch has no fake kernel, or it takes as long as the kernel; the operator returns nothing
    has_fake_kernel: bool = True
    # torch cannot compute the shape from symbols, or refuses what the kernel takes
    needs_recorded_shapes: bool = False
    # results whose size only the kernel knows, and that only its gradient reads. They are recorded as empty.
    opaque_results: tuple[int, ...] = ()
    # the operator reads how many distinct rows a sparse tensor has
    counts_sparse_rows: bool = False
    # the results are quantized, which symbolic tensors are not: they answer as ordinary tensors of float32
    quantizes: bool = False
    refusal: Refusal | None = None


def _has_bool(dtypes: ArgumentTypes) -> bool:
    return torch.bool in dtypes


def _has_several(dtypes: ArgumentTypes) -> bool:
    return len(set(dtypes)) > 1


def _has_floating(dtypes: ArgumentTypes) -> bool:
    return any(d is float or isinstance(d, torch.dtype) and d.is_floating_point for d in dtypes)


def _has_no_bool_mask(dtypes: ArgumentTypes) -> bool:
    return dtypes[1] is not torch.bool


# names of operators -> facts. A name without an overload means all that write no `out` and take no dtype
_ROWS: tuple[tuple[str, Operator], ...] = (
    # -- writes
    *((name, Operator(written_statistics=positions)) for name, positions in STATISTICS_WRITES.items()),
    (
        "set_.source_Tensor resize_.default resize_as_.default as_strided_.default t_.default"
        " transpose_.default squeeze_.dim squeeze_.dims unsqueeze_.default squeeze_.default",
        Operator(changes_metadata=True),
    ),
    # -- views and names
    ("detach.default alias.default lift_fresh.default detach_.default", Operator(renames=True)),
    (
        "view.default _unsafe_view.default t.default transpose.int permute.default expand.default"
        " slice.Tensor"
        " select.int unsqueeze.default squeeze.dim squeeze.default detach.default alias.default"
        " as_strided.default",
        Operator(view="one"),
    ),
    (
        "unbind.int split.Tensor split_with_sizes.default unsafe_split.Tensor"
        " unsafe_split_with_sizes.default",
        Operator(view="several"),
    ),
    ("lift_fresh.default lift_fresh_copy.default lift.default", Operator(lifts=True)),
    # -- factories
    ("zeros_like.default new_zeros.default", Operator(fill=0)),
    ("ones_like.default new_ones.default", Operator(fill=1)),
    (
        "zeros_like.default ones_like.default full_like.default new_zeros.default new_full.default",
        Operator(reads_layout_only=True),
    ),
    (
        "_new_zeros_with_same_feature_meta.default _efficientzerotensor.default",
        Operator(has_other_memory=True),
    ),
    # -- results of the fake kernels
    (
        "add.Tensor sub.Tensor mul.Tensor div.Tensor relu.default threshold_backward.default gelu.default"
        " gelu_backward.default silu.default silu_backward.default sigmoid.default sigmoid_backward.default"
        " tanh.default tanh_backward.default hardtanh.default hardtanh_backward.default neg.default"
        " add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor addcmul_.default addcdiv_.default relu_.default"
        " sigmoid_.default tanh_.default sqrt_.default neg_.default zero_.default copy_.default lerp_.Scalar"
        " _foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_neg _foreach_sqrt _foreach_rsqrt"
        " _foreach_reciprocal _foreach_exp _foreach_addcmul _foreach_addcdiv _foreach_lerp _foreach_maximum"
        " _foreach_minimum",
        Operator(elementwise=True),
    ),
    (
        "mse_loss_backward.default smooth_l1_loss_backward.default huber_loss_backward.default"
        " _log_softmax_backward_data.default log_sigmoid_forward.default pow.Scalar normal.Tensor_Tensor"
        " normal.float_Tensor native_layer_norm_backward.default glu_backward.default"
        " nll_loss2d_forward.default",
        Operator(layout=Contiguous()),
    ),
    (
        "softplus_backward.default hardsigmoid_backward.default hardswish_backward.default"
        " hardtanh_backward.default logit_backward.default native_dropout_backward.default"
        " floor_divide.default lcm.default special_xlog1py.default heaviside.default logaddexp.default"
        " logaddexp2.default logical_and.default logical_or.default logical_xor.default complex.default"
        " polar.default copysign.Tensor div.Tensor_mode xlogy.Tensor",
        Operator(layout=Iterated()),
    ),
    ("elu_backward.default", Operator(layout=Iterated((0, 5)))),
    ("threshold_backward.default leaky_relu_backward.default", Operator(layout=Iterated((1, 0)))),
    ("log_sigmoid_backward.default", Operator(layout=Iterated((0,)))),
    ("soft_margin_loss_backward.default", Operator(layout=Iterated((2,)))),
    ("binary_cross_entropy_backward.default", Operator(layout=Iterated((1,)))),
    (
        "channel_shuffle.default max_unpool2d.default reflection_pad3d.default replication_pad3d.default",
        Operator(layout=Suggested(0)),
    ),
    (
        "reflection_pad2d_backward.default replication_pad2d_backward.default"
        " reflection_pad3d_backward.default replication_pad3d_backward.default",
        Operator(layout=Suggested(1)),
    ),
    ("native_layer_norm.default", Operator(statistics=(2, 3))),
    ("native_group_norm.default", Operator(statistics=(1, 2))),
    ("native_batch_norm.default", Operator(statistics=(1, 2, 3, 4))),
    # torch would run their kernels on zeros as large as the parameters, or check long lists
    ("_fused_sgd_ _fused_adagrad_ _fused_adam_ _fused_adamw_", Operator(has_fake_kernel=False)),
    (
        "_pack_padded_sequence.default nonzero.default masked_select.default repeat_interleave.Tensor"
        " bincount.default _unique2.default unique_consecutive.default unique_dim.default _grouped_mm.default"
        " _cudnn_rnn_backward.default _ctc_loss_backward.default _ctc_loss_backward.Tensor"
        " linalg_lstsq.default",
        Operator(needs_recorded_shapes=True),
    ),
    ("_sparse_mm_reduce_impl.default", Operator(opaque_results=(1,))),
    ("mkldnn_rnn_layer.default", Operator(opaque_results=(3,))),
    ("_cudnn_rnn.default", Operator(needs_recorded_shapes=True, opaque_results=(3,))),
    ("_ctc_loss.default _ctc_loss.Tensor", Operator(needs_recorded_shapes=True, opaque_results=(1,))),
    (
        "_coalesce.default _nnz.default _values.default _indices.default",
        Operator(counts_sparse_rows=True),
    ),
    # -- refusals
    (
        "quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic _empty_affine_quantized"
        " _empty_per_channel_affine_quantized _make_per_tensor_quantized_tensor"
        " _make_per_channel_quantized_tensor",
        Operator(quantizes=True),
    ),
    ("sub sub_ rsub", Operator(refusal=Refusal(_has_bool, "no bool tensors (use ^ or logical_xor)"))),
    ("argmax argmin topk", Operator(refusal=Refusal(_has_bool, "no bool tensors"))),
    (
        "mm mv bmm addmm addmv addbmm baddbmm",
        Operator(refusal=Refusal(_has_several, "tensors of one dtype")),
    ),
    (
        "bitwise_and bitwise_and_ bitwise_or bitwise_or_ bitwise_xor bitwise_xor_",
        Operator(refusal=Refusal(_has_floating, "integers or bools", NotImplementedError)),
    ),
    ("masked_select.default", Operator(refusal=Refusal(_has_no_bool_mask, "a mask of bools"))),
)
_ORDINARY = Operator()


def _overloads(name: str) -> Iterable[OpOverload]:
    packet_name, _, overload = name.partition(".")
    packet = getattr(aten, packet_name)
    names = [overload] if overload else [o for o in packet.overloads() if "out" not in o and "dtype" not in o]
    return (getattr(packet, o) for o in names)


def _table() -> dict[OpOverload, Operator]:
    """Return {operator: facts}. Raise if two rows give the same fact about an operator."""
    table: dict[Any, Operator] = {}
    for names, facts in _ROWS:
        values = {f.name: getattr(facts, f.name) for f in fields(facts)}
        changes = {name: value for name, value in values.items() if value != getattr(_ORDINARY, name)}
        for operator in (o for name in names.split() for o in _overloads(name)):
            row = table.get(operator, _ORDINARY)
            if any(getattr(row, name) != getattr(_ORDINARY, name) for name in changes):
                raise ValueError(f"two rows of the operator table give {sorted(changes)} of {operator}")
            table[operator] = replace(row, **changes)
    return table


_TABLE = _table()
# torch hashes an operator in Python, at the cost of a microsecond. The table keeps its operators alive.
_FACTS_BY_ID = {id(operator): facts for operator, facts in _TABLE.items()}


# Assertions return nothing, and raise in the call whose values do not pass.
ASSERTIONS = (
    aten._assert_async.msg,
    aten._assert_async.default,
    aten._linalg_check_errors.default,
)


def facts_of(operator: object) -> Operator:
    """Return the facts about an operator, or of an ordinary one."""
    return _FACTS_BY_ID.get(id(operator), _ORDINARY)


def operators_that(has_fact: Callable[[Operator], bool]) -> frozenset[OpOverload]:
    """Return the operators of the table with a fact."""
    return frozenset(operator for operator, facts in _TABLE.items() if has_fact(facts))


def communicates(target: object) -> bool:
    """Whether the operator exchanges data with other ranks."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "_c10d_functional"


def has_collectives(graph: torch.fx.Graph) -> bool:
    """Whether a node of the graph exchanges data with other ranks."""
    return any(communicates(n.target) for n in graph.nodes)


def first_lasting(graph: torch.fx.Graph) -> torch.fx.Node:
    """Return the first node with an effect outside of the program: it sends, samples or writes.

    If there is none, return the output.
    """
    lasting = (
        node
        for node in graph.nodes
        if node.op == "call_function" and _lasts(node.target) and not _only_copies(node)
    )
    return next(lasting, graph.output_node())


def _only_copies(node: torch.fx.Node) -> bool:
    """Whether a node copies what an error would restore (compile/undo.py)."""
    return any(n.meta.get("undo_log") for n in (node, *node.all_input_nodes))


def _lasts(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    if schema is None:  # arithmetic and items do not last; a function in Python may do anything
        return not isinstance(target, types.BuiltinFunctionType)
    samples = torch.Tag.nondeterministic_seeded in target.tags
    writes = schema.is_mutable or facts_of(target).written_statistics is not None
    return communicates(target) or samples or writes


# ------ What the schema of an ATen operator says about memory: what it writes, and what its results share


def is_written(value: torch.Argument) -> bool:
    """Whether an operator writes an argument, or a result is a written argument."""
    return value.alias_info is not None and value.alias_info.is_write


def has_new_results(target: object) -> bool:
    """Whether no result shares memory with an argument. A target without a schema may do anything: False."""
    schema = getattr(target, "_schema", None)
    return schema is not None and all(r.alias_info is None for r in schema.returns)


@functools.cache
def written_returns(func: torch._ops.OpOverload) -> tuple[tuple[int, str] | None, ...]:
    """Return the (position, name) of the written argument that each result of an operator is.

    The entry is None for a result that is no written argument.
    """
    arguments = [(position, a) for position, a in enumerate(func._schema.arguments) if is_written(a)]
    return tuple(
        next(((i, a.name) for i, a in arguments if is_written(r) and _is_alias(a, r)), None)
        for r in func._schema.returns
    )


def written_argument(written: tuple[int, str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument of a call at this (position, name), or None."""
    if written is None:
        return None
    position, name = written
    return args[position] if position < len(args) else kwargs.get(name)


def _is_alias(argument: torch.Argument, result: torch.Argument) -> bool:
    ours, theirs = argument.alias_info, result.alias_info
    return ours is not None and theirs is not None and bool(ours.before_set & theirs.before_set)
