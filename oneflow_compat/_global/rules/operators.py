"""Operators on global tensors of several ranks: DTensor's results, and rules for the rest.

A rule of `_RULES` handles an operator that DTensor lacks, or whose result differs from that on the full
tensor. The rules are tried in order. `adjustments.py` has the conditions and results that need more than an
expression, `families.py` the code for families of operators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh

from .. import call_log, collectives, failures, stored_shards, zero
from ..global_dtensor import GlobalDTensor
from ..global_mode import outside_mode
from ..mesh import counters, group_of_mesh, sent
from ..process_group import state
from . import adjustments, families, partial_results, views
from .adjustments import OperatorCall
from .dtensor_results import divides_integers, has_dtensor_strategy, has_long_search
from .full_tensors import compute_read, on_no_elements, written_tensors
from .layouts import mesh_of_all, partial_dims
from .operator_facts import (
    DIM_POSITIONS,
    MEMORY_FLAGS,
    NORMALIZATIONS,
    READS,
    REARRANGEMENTS,
    REDUCTIONS,
    RESHAPES_IN_PLACE,
    TAKES_ORDINARY_TENSORS,
    UNDECLARED_WRITES,
    UPDATES,
    VIEWS,
)
from .partial_results import by_placement, states_follow_parameters, update_shards

aten = torch.ops.aten


@outside_mode
def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an ATen operator that has global tensors among its arguments."""
    if failures.is_out_of_step():
        failures.check_sound(str(func))
    mesh = _first_mesh(args)
    before = mesh and sent(mesh)
    log = call_log.current()
    state.transfers += 1
    try:
        if log is None:
            out = _compute(MEMORY_FLAGS.get(func, func), args, kwargs)
        else:
            arguments = (*args, *kwargs.values())
            out = log.record(
                func._schema.name.partition("::")[2] + "." + func._overloadname,
                arguments,
                lambda: _compute(MEMORY_FLAGS.get(func, func), args, kwargs),
            )
        if func.is_view:
            views.remember(func, args, kwargs, out)
        for t in written_tensors(func, args, kwargs):
            views.write_through(t)
    except RuntimeError as error:
        if failures.is_lost(error) and state.transfers == 1:
            raise failures.lost(str(func), error) from error
        raise
    finally:
        state.transfers -= 1
    if mesh and sent(mesh) != before:
        collectives.note(counters[mesh][0], func._opname)
    return out


def _first_mesh(args: tuple[Any, ...]) -> DeviceMesh | None:
    for arg in args:
        if isinstance(arg, GlobalDTensor):
            return arg.device_mesh
        if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], GlobalDTensor):
            return arg[0].device_mesh
    return None


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is done with the calls to which `when` applies.

    `do` returns the result. It returns NotImplemented if it only replaced arguments, or if it declines the
    call; then the later rules are tried.
    """

    name: str
    when: Callable[[OperatorCall], Any]
    do: Callable[[OperatorCall], Any]
    why: str


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operator on global tensors by the first rule that applies."""
    call = OperatorCall(func, args, kwargs)
    out = _first_result(_RULES_OF_SEVERAL_MESHES, call)
    if out is not NotImplemented:
        return out
    call.mesh = mesh_of_all(func, (call.args, kwargs))
    pointwise = torch.Tag.pointwise in func.tags or func is aten.rsub.Tensor
    if pointwise and group_of_mesh[call.mesh] is not dist.group.WORLD:
        call.empty_result = on_no_elements(func, call.args, kwargs)
    return _first_result(_RULES, call)


def _first_result(rules: tuple[Rule, ...], call: OperatorCall) -> Any:
    """Try the rules in order. Return the first result, or NotImplemented."""
    for rule in rules:
        if rule.when(call):
            out = rule.do(call)
            if out is not NotImplemented:
                return out
    return NotImplemented


# The order is the meaning: a rule sees the arguments that the rules before it left.
_RULES_OF_SEVERAL_MESHES = (
    Rule(
        "unscale gradients",
        lambda call: call.func is aten._amp_foreach_non_finite_check_and_unscale_.default,
        lambda call: partial_results.unscale(call.func, *call.args),
        "the gradients may be on several placements, and all ranks need the same answer",
    ),
    Rule(
        "lists on several placements",
        adjustments.is_list_on_several_meshes,
        lambda call: by_placement(call.func, call.args, call.kwargs),
        "DTensor computes on one mesh",
    ),
    Rule(
        "stored shards",
        stored_shards.has_stored_shard,
        stored_shards.compute,
        "under ZeRO stage 3, an operator gathers the parameters that it computes with",
    ),
    Rule(
        "sharded optimizer state",
        lambda call: True,
        lambda call: zero.call(call.func, call.args, call.kwargs),
        "inside zero.splitting, replicated parameters meet sharded state",
    ),
    Rule(
        "copy from another placement",
        lambda call: (
            call.func is aten.copy_.default and all(isinstance(t, GlobalDTensor) for t in call.args[:2])
        ),
        adjustments.move_source,
        "DTensor computes on one mesh",
    ),
)
_RULES = (
    Rule(
        "reads",
        lambda call: call.func in READS,
        lambda call: compute_read(call.func, call.args, call.kwargs),
        "a read gives the value of the full tensor on every rank",
    ),
    Rule(
        "only out is global",
        adjustments.has_global_out_only,
        adjustments.fill_out,
        "as eye(n, out=x): the key of DTensor's cache holds the scalars, not x",
    ),
    Rule(
        "optimizer updates",
        lambda call: call.func in UPDATES and states_follow_parameters(*call.args),
        lambda call: update_shards(call.func, *call.args, **call.kwargs),
        "DTensor cannot shard these updates, though each shard's update is independent",
    ),
    Rule(
        "reshapes in place",
        lambda call: call.func._opname in RESHAPES_IN_PLACE,
        lambda call: families.reshaped(call.func, *call.args),
        "the wrapper has to change its shape as well",
    ),
    Rule(
        "ordinary tensors",
        lambda call: call.func in TAKES_ORDINARY_TENSORS or torch._C._current_graph_task_id() != -1,
        adjustments.replicate_ordinary_tensors,
        "indices and scalars become ordinary tensors; in backward(), formulas make zeros and the like so",
    ),
    Rule(
        "causal mask",
        lambda call: call.func is aten.add.Tensor and families.masks_the_future(*call.args[:2]),
        adjustments.replicate_mask,
        "torch's attention makes this mask as an ordinary tensor",
    ),
    Rule(
        "as_strided",
        lambda call: call.func is aten.as_strided.default,
        lambda call: families.strided(*call.args),
        "strides describe the memory of the full tensor",
    ),
    Rule(
        "views",
        lambda call: call.func in VIEWS,
        adjustments.view_rows,
        "of uneven shards DTensor finds the shape of one rank's only; even shards must be contiguous",
    ),
    Rule(
        "reductions over no dimension",
        lambda call: call.func in REDUCTIONS and len(call.args) > 1 and call.args[1] == [],
        adjustments.name_all_dims,
        "an empty list means all dimensions; DTensor takes it for none",
    ),
    Rule(
        "logsumexp with keepdim",
        lambda call: call.func is aten.logsumexp.default and call.args[0].ndim and call.args[2:] == (True,),
        lambda call: families.kept_dims(call.func, *call.args[:2]),
        "DTensor names the remaining dimensions as if keepdim were False",
    ),
    Rule(
        "normalizations with other weights",
        lambda call: call.func in NORMALIZATIONS and adjustments.dtype_of_weights(call),
        adjustments.normalize_in_dtype_of_weights,
        "the kernel would give statistics in the weights' dtype",
    ),
    Rule(
        "means of class losses",
        lambda call: call.func in families.NLL and call.args[families.NLL[call.func]] == families.MEAN,
        lambda call: families.mean_of_targets(call.func, *call.args),
        "DTensor averages the means of the shards, which may ignore or weigh other targets",
    ),
    Rule(
        "convolutions",
        lambda call: call.func in families.CONVOLUTIONS,
        adjustments.convolve,
        "DTensor takes shards of channels and pixels for samples, and one mesh dimension of samples",
    ),
    Rule(
        "negative dim",
        lambda call: call.func in DIM_POSITIONS and call.args[DIM_POSITIONS[call.func]] < 0,
        adjustments.count_dim_from_start,
        "DTensor takes a negative dimension for one that is not sharded",
    ),
    Rule(
        "embedding gradients by frequency",
        lambda call: call.func is aten.embedding_dense_backward.default and call.args[4],
        OperatorCall.on_full_tensors,
        "a row's frequency is that among all ids",
    ),
    Rule(
        "writes elsewhere",
        adjustments.loses_writes,
        OperatorCall.on_full_tensors,
        "DTensor gives the written tensor the placements of the one that is read, and no values",
    ),
    Rule(
        "gather of other rows",
        lambda call: call.func is aten.gather.default and not families.of_same_rows(*call.args[:3]),
        OperatorCall.on_full_tensors,
        "DTensor takes the rows of each rank's shard for the first rows",
    ),
    Rule(
        "additions to partial tensors",
        adjustments.adds_to_partial,
        adjustments.add_to_partial,
        "DTensor would add the other operand on every rank",
    ),
    Rule(
        "LSTM",
        lambda call: call.func in partial_results.LSTM,
        lambda call: partial_results.lstm(call.func, call.args),
        "DTensor has no strategy, and the reserved memory of the kernel cannot travel",
    ),
    Rule(
        "no usable strategy",
        lambda call: (
            call.func in REARRANGEMENTS or not has_dtensor_strategy(call.func) and has_long_search(call.args)
        ),
        OperatorCall.on_full_tensors,
        "DTensor's search through a decomposition is wrong, or takes many seconds",
    ),
    Rule(
        "empty shards",
        adjustments.meets_empty_shard,
        OperatorCall.on_full_tensors,
        "a kernel that refuses an empty shard would stop some ranks only; a view of no elements never ends",
    ),
    Rule(
        "sums of shards' results",
        lambda call: True,
        lambda call: partial_results.call(call.func, call.args, call.kwargs),
        "DTensor has no strategy or gives another value",
    ),
    Rule(
        "undeclared writes and writes to partial tensors",
        lambda call: call.func in UNDECLARED_WRITES or adjustments.writes_partial(call),
        OperatorCall.on_full_tensors,
        "DTensor would write a copy, or write each summand as if it were the sum",
    ),
    Rule(
        "padding on a mesh of several dimensions",
        lambda call: call.func is aten.constant_pad_nd.default and call.mesh.ndim > 1,
        OperatorCall.on_full_tensors,
        "torch 2.11 has a strategy for one mesh dimension only",
    ),
    Rule(
        "attention",
        lambda call: call.func in families.ATTENTION,
        lambda call: families.attention(call.func, call.args, call.kwargs),
        "DTensor would search its decomposition for many seconds",
    ),
    Rule(
        "embedding tables",
        lambda call: call.func is aten.embedding.default,
        adjustments.cut_table_once,
        "DTensor locates the rows of a shard by one mesh dimension only",
    ),
    Rule(
        "selections from partial tensors",
        adjustments.selects_by_shards_from_partial,
        adjustments.sum_source,
        "for a partial tensor and sharded indices, torch 2.11 has the values of its own indices only",
    ),
    Rule(
        "divisions by partial tensors",
        lambda call: call.func in (aten.div.Tensor, aten.div_.Tensor) and bool(partial_dims(call.args[1])),
        adjustments.sum_divisor,
        "torch 2.11 divides by each summand",
    ),
    Rule(
        "gather on a mesh of several dimensions",
        lambda call: call.func is aten.gather.default and call.mesh.ndim > 1,
        adjustments.gather_along_full_dim,
        "if `dim` is sharded, DTensor masks the rows of a shard by those of all shards",
    ),
    Rule(
        "partial arguments",
        lambda call: not has_dtensor_strategy(call.func) or divides_integers(call.func, call.args),
        adjustments.sum_arguments,
        "a derived strategy depends on each rank's hash seed, or the result would be a division of integers",
    ),
    Rule("DTensor", lambda call: True, adjustments.run_dtensor, "every other operator"),
)
