"""Operators on global tensors of several ranks: DTensor's results, and rules for the rest.

A rule in `_RULES` handles an operator that DTensor lacks, or whose result differs from that on the full
tensor. The rules are tried in order. families.py holds the code for families of operators.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from ... import sbp
from .. import collectives, creation, zero
from . import families, partial_results, ranks_without_data, views
from ..dtensor import (
    GlobalDTensor,
    _around,
    _copies,
    _first,
    _groups,
    _counters,
    _map,
    _mine,
    _moved,
    _part,
    _placements,
    _summed,
    about,
    same_numbers,
    sent,
    whole,
)

aten = torch.ops.aten
# These write their running statistics, which their schemas do not say. If DTensor moves one, it would write
# the copy.
_WRITES_UNSAID = {
    aten.native_batch_norm.default,
    aten.cudnn_batch_norm.default,
    aten.miopen_batch_norm.default,
}
# function -> position of its `dim`; DTensor takes a negative dimension for one that is not sharded
_DIMS = dict.fromkeys(
    [getattr(aten, n).default for n in ("cumprod", "cumprod_", "cumsum", "cumsum_", "logcumsumexp")], 1
) | {aten.select.int: 1, aten.select_backward.default: 2}
# An empty list of dimensions means all of them; DTensor takes it for none.
_REDUCES = {
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
_TAKES_COPIES = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten.masked_fill.Scalar,
    aten._embedding_bag.default,
}
# function -> how many leading arguments are data. With wider weights, a kernel gives statistics of their
# dtype, which neither a rank without data nor a program expects.
_NORMS = {
    aten.native_layer_norm.default: 1,
    aten.native_group_norm.default: 1,
    aten.native_layer_norm_backward.default: 2,
    aten.native_group_norm_backward.default: 2,
}
# For a partial tensor and sharded indices, DTensor of torch 2.11 has the values of its own indices only.
_SELECTS = {aten.index_select.default, aten.index.Tensor}
# DTensor derives a strategy from their decomposition, as if the shards were the full tensor.
_REARRANGES = {aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default}
# DTensor runs its own code for them, also on ranks without data.
_POSITIONS = {aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim}
# Optimizer updates that DTensor cannot shard.
_UPDATES = {aten._fused_sgd_.default, aten._fused_sgd_.tensor_lr, aten._fused_adagrad_.default}
# To a partial tensor, DTensor adds a scalar or a replicated operand on every rank.
_ADDS = {
    getattr(getattr(aten, n), kind)
    for n in ("add", "add_", "sub", "sub_", "rsub")
    for kind in ("Tensor", "Scalar")
}
# Functions that may be applied in place to each summand of a partial tensor.
_LINEAR = {
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
_ANY_SIZE = {
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
_OF_VALUES = (
    "out of bounds",
    "out of range",
    "between 0 and 1",
    "singular",
    "must be non-negative",
    "probability tensor contains",
)
# Of uneven shards, DTensor finds the shape of one rank's only.
_VIEWS = {aten.view.default, aten._unsafe_view.default}
# DTensor's kernels overlook these flags of a tensor's memory, so the values are computed.
_FLAGS = {aten._conj.default: aten.conj_physical.default, aten._neg_view.default: aten.neg.default}
_RESHAPES = ("squeeze_", "unsqueeze_", "t_", "transpose_")
_READS = {aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default}


@creation.outside_mode
def call(func, args, kwargs):
    """Return the result of an ATen operator that has global tensors among its arguments."""
    if collectives.is_out_of_step():
        collectives.check_sound(str(func))
    mesh = _first_mesh(args)
    before = mesh and sent(mesh)
    try:
        out = _computed(_FLAGS.get(func, func), args, kwargs)
        if func.is_view:
            views.remember(func, args, kwargs, out)
        for t in _written(func, args, kwargs):
            views.write_through(t)
    except RuntimeError as error:
        if collectives.is_lost(error):
            raise collectives.lost(str(func), error) from error
        raise
    if mesh and sent(mesh) != before:
        collectives.note(_counters[mesh][0], func._opname)
    return out


def _first_mesh(args):
    for arg in args:
        if isinstance(arg, GlobalDTensor):
            return arg.device_mesh
        if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], GlobalDTensor):
            return arg[0].device_mesh
    return None


def _written(func, args, kwargs) -> list:
    """Return the global tensors among the arguments that a function writes."""
    if not func._schema.is_mutable:
        return []
    arguments = {**dict(zip((a.name for a in func._schema.arguments), args)), **kwargs}
    written = [
        arguments.get(a.name)
        for a in func._schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return [t for t in pytree.tree_leaves(written) if isinstance(t, GlobalDTensor)]


def _read(func, args, kwargs):
    """Compute item(), bool() and equal(). The ranks agree first if the read communicates."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, GlobalDTensor)]
    if any(
        _groups[t.device_mesh] is not dist.group.WORLD or any(not p.is_replicate() for p in t.placements)
        for t in tensors
    ):
        call_name = "Tensor.item" if func is aten._local_scalar_dense.default else func._opname
        with collectives.checking(call_name) as asked:
            asked.same(tensors=[about(t) for t in tensors])
    return func(*_map(whole, args), **_map(whole, kwargs))


def _on_no_elements(func, args, kwargs):
    """Run a kernel on tensors without elements.

    A kernel refuses dtypes only on ranks that run it. Ranks without data have to raise as well, because a
    program may catch the error and continue.
    """

    def nothing(tensor):
        return torch.ones((0,) * tensor.ndim, dtype=tensor.dtype)

    with no_dispatch():
        return func(
            *pytree.tree_map_only(torch.Tensor, nothing, args),
            **pytree.tree_map_only(torch.Tensor, nothing, kwargs),
        )


def _under_rules_it_takes(func, args, kwargs, mesh):
    """Move arguments to placements under which DTensor computes the result of the full tensors."""
    if func is aten.embedding.default:
        table, ids = families.cut_once(args[0], 0), args[1]
        columns = sbp.split(1) in table._of_sbp  # the mask of missing rows belongs to the shard of ids
        args = (
            table,
            _moved(ids, ids._of_placement, (sbp.broadcast,) * mesh.ndim if columns else _summed(ids._of_sbp)),
            *args[2:],
        )
    elif (
        func in _SELECTS
        and any(p.is_partial() for p in getattr(args[0], "placements", ()))
        and any(map(_is_split, pytree.tree_leaves(args[1:])))
    ):
        args = (_moved(args[0], args[0]._of_placement, _summed(args[0]._of_sbp)), *args[1:])
    elif func in (aten.div.Tensor, aten.div_.Tensor) and _parts_of_sum(
        args[1]
    ):  # torch 2.11 divides by each summand
        args = (args[0], _moved(args[1], args[1]._of_placement, _summed(args[1]._of_sbp)))
    elif (
        func is aten.gather.default and mesh.ndim > 1
    ):  # if `dim` is sharded, DTensor masks the rows of a shard by those of all shards
        along = sbp.split(args[1] % max(args[0].ndim, 1))
        args = (
            _moved(
                args[0],
                args[0]._of_placement,
                tuple(
                    sbp.broadcast if r._kind == "partial_sum" or r == along else r for r in args[0]._of_sbp
                ),
            ),
            *args[1:],
        )
    if not _has_dtensor_strategy(func) or _halves_of_numbers(func, args):
        args, kwargs = _map(lambda t: _moved(t, t._of_placement, _summed(t._of_sbp)), (args, kwargs))
    return args, kwargs


def _halves_of_numbers(func, args) -> bool:
    """Whether DTensor would divide integers.

    Next to a partial operand, DTensor makes a replicated one partial by division, which gives floating-point
    values.
    """
    tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor)]
    return (
        not func._schema.is_mutable
        and not all(t.dtype.is_floating_point for t in tensors)
        and len(set(map(_parts_of_sum, tensors))) > 1
    )


def _by_dtensor(func, args, kwargs, mesh):
    """Return DTensor's result as a global tensor, or the result on the full tensors if DTensor has none."""
    holders: dict = {}  # id of a DTensor -> the global tensor that wraps it

    def unwrap(tensor):
        holders[id(tensor._held)] = tensor
        return tensor._held

    plain = _map(unwrap, (args, kwargs))
    refuses = func in _POSITIONS or any(a.name == "output_mask" for a in func._schema.arguments)
    computed = functools.partial(ranks_without_data.results, func) if refuses and not _mine(mesh) else func
    try:
        with _random_numbers(func, mesh, args), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="DTensor random operators")
            out = computed(*plain[0], **plain[1])
            if _averages(out) and not all(
                _even(t) for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor)
            ):
                out = _on_whole(func, args, kwargs, mesh)
    except (NotImplementedError, RuntimeError) as error:
        if isinstance(error, collectives.CollectiveError) or collectives.is_lost(error):
            raise
        if "mixed torch.Tensor and DTensor" in str(error):
            raise RuntimeError(
                f"{func}: some tensors are global and some are local; make them all the same first"
                " (to_global, to_local)"
            ) from None
        if "Sharding propagation failed" not in str(error) and any(
            message in str(error) for message in _OF_VALUES
        ):
            raise  # the other ranks may not get this error; they would wait in another call
        out = _on_whole(func, args, kwargs, mesh)
    return pytree.tree_map_only(DTensor, lambda t: holders[id(t)] if id(t) in holders else _usual(t), out)


@functools.lru_cache(maxsize=None)
def _has_dtensor_strategy(func) -> bool:
    """Whether DTensor has a strategy for this function.

    A strategy that it derives from a decomposition depends, for partial tensors, on each rank's hash seed.
    """
    propagator = DTensor._op_dispatcher.sharding_propagator
    return any(
        func in getattr(propagator, table, ())
        for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
    )


def _is_long_to_search(args) -> bool:
    """Whether DTensor would try too many placements.

    It tries all combinations through a decomposition, which takes many seconds for index_add.
    """
    shapes = [t.shape for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor) and t.ndim]
    return len(shapes) > 2 and len(set(shapes)) > 1


def _parts_of_sum(value) -> tuple:
    """Return the mesh dimensions along which a value is partial."""
    return tuple(i for i, p in enumerate(getattr(value, "placements", ())) if p.is_partial())


def _is_split(tensor) -> bool:
    return any(isinstance(p, Shard) for p in getattr(tensor, "placements", ()))


@functools.lru_cache(maxsize=None)
def _writes_elsewhere(func) -> bool:
    """Whether a function writes other elements than it reads.

    DTensor gives the written tensor the placements of the one that is read, and no values.
    """
    alike = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}.intersection(func.tags)
    return (
        func._schema.is_mutable
        and not alike
        and func.overloadpacket not in _ANY_SIZE
        and not func._opname.startswith(("_foreach_", "_fused_"))
    )


def _usual(tensor):
    """Return a result under placements that OneFlow has.

    Partial means become partial sums; other partial results are reduced.
    """
    targets = list(tensor.placements)
    size, local = tensor.device_mesh.shape, tensor._local_tensor
    if tensor.dtype is torch.bool and any(
        p.is_partial() and p.reduce_op == "sum" for p in targets
    ):  # for any(), two true summands do not count as two
        counted = _around(local.int(), tensor.device_mesh, targets, tensor.shape, tensor.stride())
        return GlobalDTensor(
            counted.redistribute(placements=[Replicate() if p.is_partial() else p for p in targets]) != 0
        )
    for i, p in enumerate(targets):
        if type(p) is Partial and p.reduce_op == "avg" and not isinstance(p, Replicate):
            local, targets[i] = local / size[i], Partial()
    if local is not tensor._local_tensor:
        tensor = _around(local, tensor.device_mesh, targets, tensor.shape, tensor.stride())
    supported = [
        p if type(p) in (Shard, Replicate) or type(p) is Partial and p.reduce_op == "sum" else Replicate()
        for p in targets
    ]
    return GlobalDTensor(tensor.redistribute(placements=supported) if supported != targets else tensor)


def _averages(out) -> bool:
    """Whether a result is the mean of the shards' means.

    It is the mean of the full tensor only if all shards have the same size.
    """
    return any(
        type(p) is Partial and p.reduce_op == "avg"
        for t in pytree.tree_leaves(out)
        if isinstance(t, DTensor)
        for p in t.placements
    )


def _even(tensor) -> bool:
    return all(
        tensor.shape[p.dim] % size == 0
        for p, size in zip(tensor.placements, tensor.device_mesh.shape)
        if isinstance(p, Shard)
    )


def _lacks_parts(tensor) -> bool:
    """Whether some rank has no elements of a tensor."""
    return isinstance(tensor, GlobalDTensor) and _empty_parts(
        tuple(tensor.shape), tensor.placements, tensor.device_mesh.shape
    )


@functools.lru_cache(maxsize=None)
def _empty_parts(shape, placements, sizes) -> bool:
    lengths_of_dims = [{n} for n in shape]  # the lengths of the shards along each dimension
    for p, size in zip(placements, sizes):
        if isinstance(p, Shard):
            lengths_of_dims[p.dim] = {
                max(0, min(-(-n // size), n + i * (n // -size)))
                for n in lengths_of_dims[p.dim]
                for i in range(size)
            }
    return any(0 in lengths for lengths in lengths_of_dims)


def _mesh_of_all(func, tree):
    mesh = None
    for t in pytree.tree_leaves(tree):
        if isinstance(t, GlobalDTensor):
            if mesh is not None and t.device_mesh != mesh:
                raise RuntimeError(
                    f"{func}: expected all tensors on the same placement, found {_placements[mesh]!r} and"
                    f" {_placements[t.device_mesh]!r}; move one with to_global"
                )
            mesh = t.device_mesh
    return mesh


def _by_placement(func, args, kwargs):
    """Run an operator over lists, as optimizers use them: one call for the tensors of each placement."""
    count, by_mesh = len(args[0]), {}
    for i, t in enumerate(args[0]):
        by_mesh.setdefault(t.device_mesh, []).append(i)
    results: list = [None] * count
    for indices in by_mesh.values():
        pick = lambda a: [a[i] for i in indices] if isinstance(a, (list, tuple)) and len(a) == count else a  # noqa: B023
        out = func(*map(pick, args), **{k: pick(v) for k, v in kwargs.items()})
        for i, o in zip(indices, out or ()):
            results[i] = o
    return results if any(r is not None for r in results) else None


def _same_rules(parameters, _, *states) -> bool:
    """Whether every state of an optimizer has its parameter's placements.

    Then each rank can update its own shards.
    """
    per_parameter = [s for s in states if isinstance(s, (list, tuple))]
    return not any(p.is_partial() for t in parameters for p in t.placements) and all(
        not isinstance(s, GlobalDTensor) or s.placements == t.placements
        for state in per_parameter
        for t, s in zip(parameters, state)
    )


def _on_parts(func, parameters, grads, *states, **scalars):
    part = lambda a: (
        [t._local_tensor if isinstance(t, GlobalDTensor) else t for t in a]
        if isinstance(a, (list, tuple))
        else a
    )
    grads = [_moved(g, t._of_placement, t._of_sbp) for t, g in zip(parameters, grads)]
    return func(*map(part, (parameters, grads, *states)), **_map(whole, scalars))


def _on_whole(func, args, kwargs, mesh):
    """Run an operator that DTensor cannot shard on the full tensors, on every rank."""
    full_tensors: dict = {}

    def full(t):
        if id(t) not in full_tensors:
            full_tensors[id(t)] = (t, whole(t))
        return full_tensors[id(t)][1]

    out = func(*_map(full, args), **_map(full, kwargs))
    if _mine(mesh):
        for t in (
            _written(func, args, kwargs)
            if func not in _WRITES_UNSAID
            else [t for t in args[3:5] if t is not None]
        ):
            t._local_tensor.copy_(_part(full(t), mesh, t.placements))
    same = {id(value): t for t, value in full_tensors.values()}
    return pytree.tree_map_only(
        torch.Tensor, lambda o: same[id(o)] if id(o) in same else _copies(o, mesh), out
    )


def _random_numbers(func, mesh, args):
    """Let ranks that hold the same shard sample the same values, and others their own.

    On a GPU, DTensor does so.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags or mesh.device_type != "cpu" or not _mine(mesh):
        return contextlib.nullcontext()
    sample, offset = next(t for t in pytree.tree_leaves(args) if isinstance(t, GlobalDTensor)), 0
    for target, size, coordinate in zip(sample.placements, mesh.shape, mesh.get_coordinate()):
        offset = offset * size + (coordinate if isinstance(target, Shard) else 0)
    return same_numbers(_groups[mesh], _first(mesh), offset)


# --------------------------------------------------------------------------- the table of rules
@dataclasses.dataclass
class _Call:
    """One call of an operator. Rules may replace the arguments; `mesh` is set before `_RULES` are tried."""

    func: object
    args: tuple
    kwargs: dict
    mesh: object = None
    empty_result: object = None  # the result on tensors without elements, computed for its errors and dtype

    def on_full_tensors(self):
        """Return the result that every rank computes on the full tensors."""
        return _on_whole(self.func, self.args, self.kwargs, self.mesh)


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is done with the calls to which `when` applies.

    `do` returns the result. It returns NotImplemented if it only replaced arguments, or if it declines the
    call; then the later rules are tried.
    """

    name: str
    when: Callable[[_Call], bool]
    do: Callable[[_Call], object]
    why: str


def _computed(func, args, kwargs):
    """Return the result of an operator on global tensors by the first rule that applies."""
    call = _Call(func, args, kwargs)
    out = _first_result(_RULES_OF_SEVERAL_MESHES, call)
    if out is not NotImplemented:
        return out
    call.mesh = _mesh_of_all(func, (call.args, kwargs))
    pointwise = torch.Tag.pointwise in func.tags or func is aten.rsub.Tensor
    if pointwise and _groups[call.mesh] is not dist.group.WORLD:
        call.empty_result = _on_no_elements(func, call.args, kwargs)
    return _first_result(_RULES, call)


def _first_result(rules, call):
    """Try the rules in order. Return the first result, or NotImplemented."""
    for rule in rules:
        if rule.when(call):
            out = rule.do(call)
            if out is not NotImplemented:
                return out
    return NotImplemented


def _is_list_on_several_meshes(call) -> bool:
    func, args = call.func, call.args
    return (
        bool(args)
        and isinstance(args[0], (list, tuple))
        and func._opname.startswith(("_foreach_", "_fused_"))
        and len({t.device_mesh for t in args[0]}) > 1
    )


def _move_source(call):
    """Move the source of copy_ to the placement and the sbp of its target."""
    target, source = call.args[:2]
    if source.shape != target.shape:
        source = source.expand(target.shape)
    call.args = (target, _moved(source, target._of_placement, target._of_sbp), *call.args[2:])
    return NotImplemented


def _has_global_out_only(call) -> bool:
    return "out" in call.kwargs and not any(
        isinstance(t, GlobalDTensor) for t in pytree.tree_leaves(call.args)
    )


def _fill_out(call):
    sampled = torch.Tag.nondeterministic_seeded in call.func.tags
    with same_numbers() if sampled else contextlib.nullcontext():
        return call.on_full_tensors()


def _replicate_ordinary_tensors(call):
    call.args, call.kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda t: t if isinstance(t, GlobalDTensor) else _copies(t, call.mesh),
        (call.args, call.kwargs),
    )
    return NotImplemented


def _replicate_mask(call):
    call.args = (call.args[0], _copies(call.args[1], call.mesh), *call.args[2:])
    return NotImplemented


def _view(call):
    if not _even(call.args[0]):
        return families.viewed(call.func, *call.args)
    call.args = (families.in_rows(call.args[0]), *call.args[1:])
    return NotImplemented


def _name_all_dims(call):
    call.args = (call.args[0], list(range(call.args[0].ndim)), *call.args[2:])
    return NotImplemented


def _dtype_of_weights(call):
    """The dtype of a normalization's weights and statistics that differs from the data's, or None."""
    func, args = call.func, call.args
    return next(
        (t.dtype for t in args[_NORMS[func] :] if isinstance(t, GlobalDTensor) and t.dtype != args[0].dtype),
        None,
    )


def _normalize_in_dtype_of_weights(call):
    func, args, dtype = call.func, call.args, _dtype_of_weights(call)
    data, *statistics = func(*(t.to(dtype) for t in args[: _NORMS[func]]), *args[_NORMS[func] :])
    return data if data is None else data.to(args[0].dtype), *statistics


def _convolve(call):
    """Shard the data by samples. Return the result if DTensor cannot compute it then."""
    func, count = call.func, families.CONVOLUTIONS[call.func]
    call.args = tuple(
        families.samples(a, i < count) if isinstance(a, GlobalDTensor) else a for i, a in enumerate(call.args)
    )
    data = call.args[count - 1]
    if data._of_sbp.count(sbp.split(0)) > 1 or _groups[call.mesh] is not dist.group.WORLD:
        return families.convolution(func, call.args)
    return NotImplemented


def _count_dim_from_start(call):
    args, position = call.args, _DIMS[call.func]
    ndim = args[0].ndim if position == 1 else len(args[1])
    call.args = (*args[:position], args[position] + ndim, *args[position + 1 :])
    return NotImplemented


def _loses_writes(call) -> bool:
    """Whether the function writes other elements than it reads, and an argument is a shard."""
    return _writes_elsewhere(call.func) and any(map(_is_split, pytree.tree_leaves((call.args, call.kwargs))))


def _adds_to_partial(call) -> bool:
    return call.func in _ADDS and len({_parts_of_sum(a) for a in call.args[:2]}) > 1


def _add_to_partial(call):
    """Sum the partial operand first. In place, add out of place and copy the sum."""
    func, args = call.func, call.args
    if func._schema.is_mutable:  # autograd adds in place on some ranks, and not on others
        out_of_place = getattr(getattr(aten, func._opname[:-1]), func._overloadname)
        return args[0].copy_(out_of_place(*args, **call.kwargs))
    call.args = _map(lambda t: _moved(t, t._of_placement, _summed(t._of_sbp)), args)
    return NotImplemented


def _meets_empty_shard(call) -> bool:
    return (
        torch.Tag.pointwise not in call.func.tags
        and call.func.overloadpacket not in _ANY_SIZE
        and any(map(_lacks_parts, pytree.tree_leaves(call.args)))
    )


def _writes_partial(call) -> bool:
    """Whether a function that is not linear writes a partial tensor."""
    return (
        call.func._schema.is_mutable
        and call.func not in _LINEAR
        and any(
            p.is_partial()
            for t in (call.args[0], call.kwargs.get("out"))
            for p in getattr(t, "placements", ())
        )
    )


def _run_dtensor(call):
    """DTensor's result, with the dtype that ranks with data get."""
    func, mesh = call.func, call.mesh
    out = _by_dtensor(func, *_under_rules_it_takes(func, call.args, call.kwargs, mesh), mesh)
    dtype = getattr(call.empty_result, "dtype", None)
    if dtype is None or getattr(out, "dtype", None) in (None, dtype):
        return out
    # On a rank without data, DTensor of torch 2.11 has kept the dtype of 1 - x for 1.0 - x.
    return GlobalDTensor(_around(out._local_tensor.to(dtype), mesh, out.placements, out.shape, out.stride()))


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
        _is_list_on_several_meshes,
        lambda call: _by_placement(call.func, call.args, call.kwargs),
        "DTensor computes on one mesh",
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
        _move_source,
        "DTensor computes on one mesh",
    ),
)
_RULES = (
    Rule(
        "reads",
        lambda call: call.func in _READS,
        lambda call: _read(call.func, call.args, call.kwargs),
        "a read gives the value of the full tensor on every rank",
    ),
    Rule(
        "only out is global",
        _has_global_out_only,
        _fill_out,
        "as eye(n, out=x): the key of DTensor's cache holds the scalars, not x",
    ),
    Rule(
        "optimizer updates",
        lambda call: call.func in _UPDATES and _same_rules(*call.args),
        lambda call: _on_parts(call.func, *call.args, **call.kwargs),
        "DTensor cannot shard these updates, though each shard's update is independent",
    ),
    Rule(
        "reshapes in place",
        lambda call: call.func._opname in _RESHAPES,
        lambda call: families.reshaped(call.func, *call.args),
        "the wrapper has to change its shape as well",
    ),
    Rule(
        "ordinary tensors",
        lambda call: call.func in _TAKES_COPIES or torch._C._current_graph_task_id() != -1,
        _replicate_ordinary_tensors,
        "indices and scalars become ordinary tensors; in backward(), formulas make zeros and the like so",
    ),
    Rule(
        "causal mask",
        lambda call: call.func is aten.add.Tensor and families.masks_the_future(*call.args[:2]),
        _replicate_mask,
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
        lambda call: call.func in _VIEWS,
        _view,
        "of uneven shards DTensor finds the shape of one rank's only; even shards must be contiguous",
    ),
    Rule(
        "reductions over no dimension",
        lambda call: call.func in _REDUCES and len(call.args) > 1 and call.args[1] == [],
        _name_all_dims,
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
        lambda call: call.func in _NORMS and _dtype_of_weights(call),
        _normalize_in_dtype_of_weights,
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
        _convolve,
        "DTensor takes shards of channels and pixels for samples, and one mesh dimension of samples",
    ),
    Rule(
        "negative dim",
        lambda call: call.func in _DIMS and call.args[_DIMS[call.func]] < 0,
        _count_dim_from_start,
        "DTensor takes a negative dimension for one that is not sharded",
    ),
    Rule(
        "embedding gradients by frequency",
        lambda call: call.func is aten.embedding_dense_backward.default and call.args[4],
        _Call.on_full_tensors,
        "a row's frequency is that among all ids",
    ),
    Rule(
        "writes elsewhere",
        _loses_writes,
        _Call.on_full_tensors,
        "DTensor gives the written tensor the placements of the one that is read, and no values",
    ),
    Rule(
        "gather of other rows",
        lambda call: call.func is aten.gather.default and not families.of_same_rows(*call.args[:3]),
        _Call.on_full_tensors,
        "DTensor takes the rows of each rank's shard for the first rows",
    ),
    Rule(
        "additions to partial tensors",
        _adds_to_partial,
        _add_to_partial,
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
            call.func in _REARRANGES or not _has_dtensor_strategy(call.func) and _is_long_to_search(call.args)
        ),
        _Call.on_full_tensors,
        "DTensor's search through a decomposition is wrong, or takes many seconds",
    ),
    Rule(
        "empty shards",
        _meets_empty_shard,
        _Call.on_full_tensors,
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
        lambda call: call.func in _WRITES_UNSAID or _writes_partial(call),
        _Call.on_full_tensors,
        "DTensor would write a copy, or write each summand as if it were the sum",
    ),
    Rule(
        "padding on a mesh of several dimensions",
        lambda call: call.func is aten.constant_pad_nd.default and call.mesh.ndim > 1,
        _Call.on_full_tensors,
        "torch 2.11 has a strategy for one mesh dimension only",
    ),
    Rule(
        "attention",
        lambda call: call.func in families.ATTENTION,
        lambda call: families.attention(call.func, call.args, call.kwargs),
        "DTensor would search its decomposition for many seconds",
    ),
    Rule("DTensor", lambda call: True, _run_dtensor, "every other operator"),
)
