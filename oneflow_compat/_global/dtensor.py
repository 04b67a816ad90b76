"""Global tensors of several ranks: torch's DTensors with the semantics of OneFlow.

Only this file translates placement <-> DeviceMesh and sbp <-> Shard, Replicate, Partial. It adds to DTensor
what OneFlow's global tensors have:

- Every operator works; an operator that DTensor cannot shard runs on the full tensor.
- A value read from a tensor is that of the full tensor on every rank.
- Random values do not depend on the sbp.
- Tensors move between placements.

Every rank of the world makes the same calls, as in OneFlow. The process group starts with the first global
tensor.
"""

from __future__ import annotations

import contextlib
import functools

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.utils import _pytree as pytree

from .. import _processes, sbp
from . import collectives, creation, zero
from .rules import ranks_without_data
from .collectives import add_mesh, checking, start, transfer
from .placement import placement as Placement
from .tensor import OfSeveralRanks


# --------------------------------------------------------------------------- translation
@functools.lru_cache(maxsize=None)
def mesh_of(placement: Placement) -> DeviceMesh:
    """Return the mesh of a placement. The first call starts the process group."""
    ranks, world = placement.ranks, _processes.get_world_size()
    with checking("placement", tells=True) as asked:
        check_world(placement)
        asked.same(placement=placement)
    with _now(), transfer("placement"):
        start()
        mesh = DeviceMesh(placement.type, ranks.tolist())
        group = dist.group.WORLD if ranks.size == world else dist.new_group(sorted(ranks.ravel().tolist()))
        groups = [group]
        if _mine(mesh):
            groups += mesh.get_all_groups()
        else:
            ranks_without_data.same_rules()
    _placements[mesh], _groups[mesh] = placement, group
    groups = [g for g in groups if isinstance(g, dist.ProcessGroup)]
    index = add_mesh(ranks.ravel().tolist(), groups)
    _counters[mesh] = (
        index,
        [g._get_sequence_number_for_group for g in groups if hasattr(g, "_get_sequence_number_for_group")],
    )
    return mesh


def sent(mesh) -> int:
    """Return the count of collectives that this rank has begun on the ranks of a mesh."""
    return sum(count() for count in _counters[mesh][1])


def note(mesh, event):
    """Record an event on tensors of a mesh. The next exchange compares the records of its ranks."""
    collectives.note(_counters[mesh][0], event)


def check_world(placement):
    """Raise RuntimeError if a placement names ranks that do not exist."""
    last, world = placement.ranks.max(), _processes.get_world_size()
    if last >= world:
        raise RuntimeError(
            f"{placement!r} names rank {last}, there are {world}; start more processes with"
            " oneflow.distributed.launch"
        )


def _now():
    """Return a context whose body runs immediately, even while a graph is captured."""
    from .._active import capturing, outside_capture

    return outside_capture() if capturing() else contextlib.nullcontext()


_placements: dict = {}  # mesh -> placement
_groups: dict = {}  # mesh -> process group of its ranks
# mesh -> (its index among all meshes, the same on every rank; functions that count this rank's collectives)
_counters: dict = {}
_DTYPES = sorted((d for d in vars(torch).values() if isinstance(d, torch.dtype)), key=str)


def _to_torch(rules):
    return [
        Shard(r._dim) if r._kind == "split" else Replicate() if r._kind == "broadcast" else Partial()
        for r in rules
    ]


def _rules(placements) -> tuple:
    return tuple(
        (
            sbp.split(p.dim)
            if isinstance(p, Shard)
            else sbp.partial_sum
            if isinstance(p, Partial)
            else sbp.broadcast
        )
        for p in placements
    )


def _summed(rules) -> tuple:
    """Return the sbp of a gradient: the gradient of a partial tensor is replicated."""
    return tuple(sbp.broadcast if r._kind == "partial_sum" else r for r in rules)


def _first(mesh) -> int:
    return int(_placements[mesh].ranks.flat[0])


# --------------------------------------------------------------------------- the tensor
class GlobalDTensor(torch.Tensor, OfSeveralRanks):
    """A wrapper of a DTensor that every operator accepts and whose values are those of the full tensor.

    It is not a subclass of DTensor, because torch 2.11 calls DTensor's C++ code for subclasses and skips
    __torch_dispatch__.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    new_empty, new_zeros, new_ones, new_full, new_tensor = map(creation.method, creation.NAMES)

    @staticmethod
    def __new__(cls, dtensor: DTensor, requires_grad=False):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            dtensor.shape,
            strides=dtensor.stride(),
            dtype=dtensor.dtype,
            device=dtensor.device,
            requires_grad=requires_grad,
        )
        tensor._held = dtensor
        return tensor

    @property
    def _held(self):
        """The DTensor."""
        if self._origin is not None:
            from .rules.views import refresh

            refresh(self)
        return self._own

    @_held.setter
    def _held(self, dtensor):
        self._own, self._origin = dtensor, None

    device_mesh = property(lambda self: self._own.device_mesh)
    placements = property(lambda self: self._own.placements, doc="torch's placements")
    _local_tensor = property(lambda self: self._held._local_tensor)
    _of_placement = property(lambda self: _placements[self.device_mesh])
    _of_sbp = property(lambda self: _rules(self.placements))

    @classmethod
    def around(cls, local, like):
        """Return a tensor with the spec of `like` whose shard on this rank is `local`."""
        return cls(DTensor(local, like._held._spec, requires_grad=False), like.requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from .rules.operators import call

        return call(func, args, kwargs or {})

    def __setitem__(self, index, value):
        if isinstance(value, GlobalDTensor):
            value = to_local(moved(value, self._of_placement, (sbp.broadcast,) * self.device_mesh.ndim))
        self._write(lambda local: local.__setitem__(_map(whole, index), value))

    def fill_diagonal_(self, value, wrap=False):
        self._write(lambda local: local.fill_diagonal_(value, wrap))
        return self

    def _write(self, write):
        """Apply writes through views to the full tensor; DTensor would drop them."""
        replicated = moved(self, self._of_placement, (sbp.broadcast,) * self.device_mesh.ndim)
        local = to_local(replicated).clone()
        if _mine(self.device_mesh):
            write(local)
        self.copy_(from_local(local, self._of_placement, replicated._of_sbp, tuple(self.shape)))

    @property
    def data(self):
        """Tensor.data; an assignment replaces the wrapped DTensor."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        from .._active import capturing

        torch.Tensor.data.__set__(self, value)
        if not capturing():  # under capture, the values are copied
            self._held = value._held

    @property
    def grad(self):
        """The gradient, with the tensor's own sbp."""
        grad = torch.Tensor.grad.__get__(self)
        if grad is not None and not isinstance(grad, GlobalDTensor):  # zeros that a formula made
            grad = _copies(grad, self.device_mesh)
            torch.Tensor.grad.__set__(self, grad)
        if isinstance(grad, GlobalDTensor) and grad._of_sbp != zero.rules(self) and not grad.requires_grad:
            grad = _moved(grad, self._of_placement, zero.rules(self))
            torch.Tensor.grad.__set__(self, grad)
        return grad

    @grad.setter
    def grad(self, value):
        torch.Tensor.grad.__set__(self, value)

    @grad.deleter
    def grad(self):
        torch.Tensor.grad.__delete__(self)

    def full_tensor(self):
        """Return the full tensor as an ordinary tensor, as DTensor.full_tensor does."""
        return read(self, "Tensor.full_tensor")

    def numpy(self, *args, **kwargs):
        return read(self, "Tensor.numpy").numpy(*args, **kwargs)

    def __array__(self, *args, **kwargs):
        return read(self, "Tensor.numpy").__array__(*args, **kwargs)

    def tolist(self):
        return read(self, "Tensor.tolist").tolist()

    def __format__(self, format_spec):
        if self.dim():
            return object.__format__(self, format_spec)
        return format(read(self, "Tensor.__format__"), format_spec)

    def __repr__(self, *, tensor_contents=None):
        extra = f"placement={self._of_placement!r}, sbp={self._of_sbp!r}" + (
            ", requires_grad=True" if self.requires_grad else ""
        )
        return f"{repr(read(self, 'the text of a tensor'))[:-1]}, {extra})"

    def __reduce_ex__(self, protocol):
        return _rebuild, (
            self._local_tensor,
            tuple(self.shape),
            self._of_placement,
            self._of_sbp,
            self.requires_grad,
        )

    def __deepcopy__(self, memo):
        copy = _made(
            self._local_tensor.clone(), self.device_mesh, self.placements, self.shape
        ).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copy._is_param = True
        memo[id(self)] = copy
        return copy


def _map(function, tree):
    return pytree.tree_map_only(GlobalDTensor, function, tree)


def _mine(mesh) -> bool:
    """Whether this rank is in the mesh."""
    return mesh.get_coordinate() is not None


@creation.outside_mode
def _made(local, mesh, targets, shape) -> GlobalDTensor:
    """Return the global tensor with this shard, with strides in the memory order of the shard.

    The order is row-major if the shard is not dense. Autograd decides by strides whether it can view a
    gradient.
    """
    local, order = local.resolve_conj().resolve_neg(), list(range(len(shape)))
    if not local.is_contiguous():
        of_part = sorted(order, key=local.stride, reverse=True)
        order = of_part if local.permute(of_part).is_contiguous() else order
    stride, last = [0] * len(shape), 1
    for d in reversed(order):
        stride[d] = last
        last *= max(shape[d], 1)
    with torch.no_grad():
        return GlobalDTensor(_around(local, mesh, targets, torch.Size(shape), tuple(stride)))


def _around(local, mesh, targets, shape, stride) -> DTensor:
    if (
        not shape and local.dim()
    ):  # from_local takes the local tensor's shape for (); a rank outside the mesh has an empty local tensor
        local = local.new_zeros(())
    return DTensor.from_local(local, mesh, targets, run_check=False, shape=shape, stride=stride)


def made(local, placement, rules, shape) -> GlobalDTensor:
    """Return the global tensor whose shard on this rank is `local`, without communication."""
    return _made(local, mesh_of(placement), _to_torch(rules), shape)


# --------------------------------------------------------------------------- values
@creation.outside_mode
def whole(tensor) -> torch.Tensor:
    """Return the full tensor as a plain tensor on every rank of the world."""
    mesh = tensor.device_mesh
    with torch.no_grad():
        if _mine(mesh):
            full = tensor._held.full_tensor()
        else:
            full = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor._local_tensor.device)
        if _groups[mesh] is not dist.group.WORLD:
            full = _of_first(full, _first(mesh), dist.group.WORLD)
    return full


def read(tensor, call) -> torch.Tensor:
    """Return the full tensor for a read by the program. The ranks agree first that all of them read it."""
    with checking(call) as asked:
        asked.same(**about(tensor))
    with transfer(call):
        return whole(tensor)


def about(tensor) -> dict:
    """Return the attributes of a global tensor that must be the same on every rank."""
    return {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "placement": tensor._of_placement,
        "sbp": tensor._of_sbp,
    }


def _of_first(tensor, source, group):
    """Return the tensor of rank `source` on every rank of the group."""
    return funcol.wait_tensor(
        funcol.broadcast(tensor.contiguous(), dist.get_group_rank(group, source), group)
    ).view(tensor.shape)


def _part(full, mesh, targets):
    """Return this rank's shard of a tensor that every rank has."""
    at = mesh.get_coordinate()
    return (
        torch.empty((0,) * full.dim(), dtype=full.dtype, device=full.device)
        if at is None
        else _cut(full, mesh.shape, targets, at).contiguous().clone()
    )


def _cut(full, sizes, targets, at):
    """Return the shard of the rank at the coordinates `at` of a grid."""
    for i, (target, size) in enumerate(zip(targets, sizes)):
        if isinstance(target, Shard):
            parts = full.chunk(size, target.dim)
            full = parts[at[i]] if at[i] < len(parts) else full.narrow(target.dim, 0, 0)
        elif isinstance(target, Partial) and at[i]:
            full = torch.zeros_like(full)
    return full


def part_at(full, placement, rules, rank):
    """Return the shard of a full tensor that a rank of the placement holds."""
    at = [int(i[0]) for i in (placement.ranks == rank).nonzero()]
    return _cut(full, placement.ranks.shape, _to_torch(rules), at)


def from_whole(full, placement, rules) -> GlobalDTensor:
    """Return the global tensor with the values of a tensor that every rank has."""
    mesh, targets = mesh_of(placement), _to_torch(rules)
    return _made(_part(full.detach(), mesh, targets), mesh, targets, full.shape)


def _copies(tensor, mesh):
    """Return the replicated global tensor of a tensor that every rank has."""
    replicas = [Replicate()] * mesh.ndim
    return _made(_part(tensor, mesh, replicas), mesh, replicas, tensor.shape)


# --------------------------------------------------------------------------- random numbers
@contextlib.contextmanager
def same_numbers(group=None, source=0, offset=0):
    """Let the ranks of a group sample the same values in the block.

    Afterwards each rank's own random stream continues. A graph records this.
    """
    from .._active import capturing

    seed, group = torch.randint(1 << 31, (1,)), group or dist.group.WORLD
    if dist.get_world_size(group) > 1:
        with transfer("random numbers of a global tensor"):
            seed = _of_first(seed, source, group)
    state = torch.get_rng_state()
    torch.random.default_generator.manual_seed((seed if capturing() else int(seed)) + offset)
    try:
        yield
    finally:
        torch.set_rng_state(state)


# --------------------------------------------------------------------------- moving
@creation.outside_mode
def _moved(tensor, placement, rules):
    mesh, targets = mesh_of(placement), _to_torch(rules)
    if tensor.device_mesh != mesh:
        return from_whole(whole(tensor), placement, rules)
    if list(tensor.placements) == targets:
        return GlobalDTensor(tensor._held)
    new_parts = [
        i
        for i, (old, new) in enumerate(zip(tensor.placements, targets))
        if isinstance(new, Partial) and not isinstance(old, Partial)
    ]
    reached = [Replicate() if i in new_parts else t for i, t in enumerate(targets)]
    at = mesh.get_coordinate()
    own_slices = len(new_parts) == 1 and _own_slice(tensor, targets, new_parts[0])
    if own_slices:
        return _made(tensor._local_tensor if at is None else own_slices(at), mesh, targets, tensor.shape)
    out = tensor._held.redistribute(placements=reached)
    local = out._local_tensor
    if at is not None and any(at[i] for i in new_parts):
        local = torch.zeros_like(local)
    return _made(local, mesh, targets, tensor.shape)


def _own_slice(tensor, targets, axis):
    """Return a function that pads a rank's shard with zeros, or None if the tensor is not such a shard.

    The padded shards are the summands of a partial tensor, in OneFlow's form.
    """
    old = tensor.placements
    if not isinstance(old[axis], Shard) or any(
        p != t for i, (p, t) in enumerate(zip(old, targets)) if i != axis
    ):
        return None
    if sum(isinstance(p, Shard) and p.dim == old[axis].dim for p in old) > 1:
        return None

    def padded(at):
        part, dim = tensor._local_tensor, old[axis].dim
        step = -(-tensor.shape[dim] // tensor.device_mesh.shape[axis])
        out = part.new_zeros((*part.shape[:dim], tensor.shape[dim], *part.shape[dim + 1 :]))
        out.narrow(dim, min(at[axis] * step, tensor.shape[dim]), part.shape[dim]).copy_(part)
        return out

    return padded


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, placement, rules, grad_rules):
        ctx.source, ctx.grad = (
            (tensor._of_placement, _summed(tensor._of_sbp)),
            grad_rules and (placement, grad_rules),
        )
        return _moved(tensor, placement, rules)

    @staticmethod
    def backward(ctx, grad):
        with transfer("the gradient of to_global"):
            if ctx.grad:
                grad = _moved(grad, *ctx.grad)
            return _moved(grad, *ctx.source), None, None, None


def moved(tensor, placement, rules, grad_rules=None) -> GlobalDTensor:
    """Move a global tensor to another placement or sbp; its gradient takes the sbp `grad_rules` first."""
    return _Move.apply(tensor, placement, tuple(rules), grad_rules and tuple(grad_rules))


class _FromLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, placement, rules, shape):
        mesh, targets = mesh_of(placement), _to_torch(rules)
        ctx.place, ctx.shape, at = (placement, _summed(rules)), local.shape, mesh.get_coordinate()
        ctx.copies = at is not None and any(a and r._kind == "broadcast" for a, r in zip(at, rules))
        if at is None:
            local = torch.empty((0,) * len(shape), dtype=local.dtype, device=local.device)
        else:
            local = local.detach().contiguous()
            replicated = [i for i, r in enumerate(rules) if r._kind == "broadcast" and mesh.shape[i] > 1]
            for i in replicated:  # the first rank's values become those of all ranks
                group = mesh.get_group(i)
                local = _of_first(local, dist.get_global_rank(group, 0), group)
        return _made(local, mesh, targets, shape)

    @staticmethod
    def backward(ctx, grad):
        if not _mine(grad.device_mesh):
            return torch.zeros(ctx.shape, dtype=grad.dtype), None, None, None
        with transfer("the gradient of to_global"):
            local = _moved(grad, *ctx.place)._local_tensor
        return torch.zeros_like(local) if ctx.copies else local, None, None, None


def from_local(local, placement, rules, shape=None) -> GlobalDTensor:
    """Return the global tensor whose shard on this rank is `local`.

    Without `shape`, the ranks exchange the shapes of their shards. Under broadcast, all ranks get the values
    of the first rank. Raise RuntimeError if the shards are not those that torch.chunk makes.
    """
    rules = tuple(rules)
    if shape is None:
        with checking("to_global", tells=True) as asked:
            check_world(placement)
            asked.same(placement=placement, sbp=rules)
            asked.tell(*numbers_of(local))
        dtype, shape = agreed_shape(asked.told, placement, rules)
        if _processes.get_rank() not in placement.ranks:
            local = torch.empty(0, dtype=dtype, requires_grad=local.requires_grad)
    mesh_of(placement)
    if local.device.type != placement.type:
        local = local.to(placement.type)
    with transfer("to_global"):
        return _FromLocal.apply(local, placement, rules, tuple(shape))


def numbers_of(local) -> list:
    """Return the integers that the ranks exchange about their shards: dtype and shape."""
    return [_DTYPES.index(local.dtype), *map(int, local.shape)]


def agreed_shape(told, placement, rules, name="to_global"):
    """Return (dtype, full shape) of a tensor from the shapes of its shards on all ranks.

    Every rank checks the shards of all ranks, so that all ranks raise.
    """
    grid = torch.from_numpy(placement.ranks)
    ranks = grid.flatten().tolist()
    first_rank = int(placement.ranks.flat[0])
    parts = {rank: (_DTYPES[told[rank][0]], tuple(told[rank][1:])) for rank in ranks}
    dtype, first_shape = parts[first_rank]
    for rank, (own_dtype, own) in parts.items():
        if own_dtype != dtype or len(own) != len(first_shape):
            raise RuntimeError(
                f"{name}: rank {rank} has {own} of {own_dtype}, rank {first_rank} {first_shape} of {dtype};"
                " they must agree"
            )
    shape = list(first_shape)
    for d in {r._dim for r in rules if r._kind == "split"}:
        line = grid[tuple(slice(None) if r == sbp.split(d) else 0 for r in rules)]
        shape[d] = sum(parts[rank][1][d] for rank in line.flatten().tolist())
    targets = _to_torch(rules)
    for rank in ranks:
        at = (grid == rank).nonzero()[0].tolist()
        expected = tuple(_cut(torch.empty(shape, device="meta"), grid.shape, targets, at).shape)
        if expected != parts[rank][1]:
            each = ", ".join(f"rank {r} {own}" for r, (_, own) in parts.items())
            raise RuntimeError(
                f"{name}: rank {rank} has {parts[rank][1]}; under {tuple(rules)} its part of {tuple(shape)}"
                f" is {expected}. The parts are: {each}"
            )
    return dtype, shape


class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        ctx.place, ctx.shape = (tensor.device_mesh, tensor.placements), tensor.shape
        part = tensor._local_tensor
        return part.view_as(part) if _mine(tensor.device_mesh) else part.new_zeros((0,) * len(ctx.shape))

    @staticmethod
    def backward(ctx, grad):
        mesh, placements = ctx.place
        grad = grad if _mine(mesh) else grad.new_empty(0)
        swapped = [
            Partial() if isinstance(p, Replicate) else Replicate() if isinstance(p, Partial) else p
            for p in placements
        ]
        return _made(grad.contiguous(), mesh, swapped, ctx.shape)


def to_local(tensor) -> torch.Tensor:
    """Return this rank's shard; under broadcast, the gradients of the ranks add up.

    On a rank without data, all sizes are 0; a tensor without dimensions is 0.0.
    """
    return _ToLocal.apply(tensor)


def _rebuild(local, shape, placement, rules, requires_grad):
    return made(local, placement, rules, shape).requires_grad_(requires_grad)
