"""The programs of fuzz_ranks.py: entry points of collective calls, and the ways in which one rank can
differ.
"""

import os
import signal

import torch
import torch._dynamo
import torch.distributed.tensor

import oneflow as flow

# imported before the ranks are forked, as all that a rank would import on its own
import oneflow._global.dtensor
import oneflow._graph.capture.capture
from oneflow import nn
from oneflow.utils.global_view import global_mode, to_global

KINDS = ("raises", "disagrees", "skips", "dies", "late")
S0, S1, B, P = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast, flow.sbp.partial_sum


class UserError(Exception):
    """An error in the program of one rank."""


class Program:
    """The state of one rank for the entry points: tensors, a folder, and its action in the failing call."""

    def __init__(self, folder):
        self.rank, self.world, self.folder, self.way = (
            flow.env.get_rank(),
            flow.env.get_world_size(),
            folder,
            "good",
        )
        self.seconds = None  # of the failing call, if the program makes others as well
        self.ranks = flow.placement.all("cpu")
        self.local = torch.arange(8.0).reshape(2, 4) + self.rank
        self.split = self.local.to_global(self.ranks, S0)
        self.sum = self.local.to_global(self.ranks, P)
        self.same = torch.arange(16.0).reshape(4, 4).to_global(self.ranks, B)
        self.layer = nn.Linear(4, 4).to_global(self.ranks, B)

    def end_here(self, tensor):
        """Kill this rank in the backward pass, when it reaches a tensor."""
        if self.way == "dies":
            tensor.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))

    def path(self, name):
        return os.path.join(self.folder, name)

    def choose(self, good, bad=None, other=None):
        """The argument of this rank: `bad` raises on this rank, `other` is legal and another one than that of
        the other ranks.
        """
        return {"good": good, "bad": bad, "other": other}[self.way]

    def probe(self):
        """Whether a later read gives the right values on this rank: the sum of all ranks' parts."""
        expected = [[self.world * (4 * i + j) + sum(range(self.world)) for j in range(4)] for i in range(2)]
        actual = self.sum.numpy().tolist()
        return actual == expected or actual


# --------------------------------------------------------------------------- entry points
ENTRIES: dict = {}  # name -> (function, the ways in which one rank can differ, what the error names)


def entry(*ways, named, first=False, apart=False, kinds=KINDS):
    """`first`: the call communicates the first time only. `apart`: ranks that disagree are out of step."""

    def add(function):
        function.first, function.apart, function.kinds = first, apart, kinds
        ENTRIES[function.__name__] = (function, ways, named)
        return function

    return add


@entry("bad", "other", named="to_global")
def to_global_(p):
    p.local.to_global(p.choose(p.ranks, "cpu", p.ranks), p.choose(S0, S0, B))


@entry("other", named="to_global")
def dtypes(p):
    p.choose(p.local, None, p.local.double()).to_global(p.ranks, S0)


@entry("other", named="to_global")
def shapes(p):
    p.choose(p.local, None, torch.ones(2, 7)).to_global(p.ranks, S0)


@entry("bad", "other", named="to_global")
def move(p):
    p.split.to_global(sbp=p.choose(B, [B, B], S1))


@entry("bad", "other", named="to_global")
def move_sum(p):
    p.sum.to_global(sbp=p.choose(B, "broadcast", S0))


@entry("bad", "other", named="to_global")
def stage(p):
    last = flow.placement("cpu", [p.world - 1])
    p.split.to_global(p.choose(last, flow.placement("cpu", [p.world]), flow.placement("cpu", [0])), B)


@entry("bad", "other", named="placement", first=True)
def ones(p):
    """The first tensor on a placement makes its process groups."""
    flow.ones(
        4,
        placement=p.choose(
            flow.placement("cpu", list(range(1, p.world))),
            flow.placement("cpu", [p.world]),
            flow.placement("cpu", [0]),
        ),
        sbp=B,
    )


@entry("bad", "other", named="Module.to_global")
def module(p):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), *p.choose([], [], [nn.Linear(2, 3)]))
    model.to_global(p.ranks, p.choose(S0, flow.sbp.split(3), S0))


@entry("bad", "other", named="Module.to_global")
def module_moves(p):
    p.layer.to_global(sbp=p.choose(S0, "split", B))


@entry("other", named="numpy")
def numpy(p):
    p.choose(p.split, None, p.same).numpy()


@entry("other", named="item")
def item(p):
    p.split.sum().item() if p.way == "good" else p.split.tolist()


@entry("other", named="tolist")
def tolist(p):
    p.choose(p.sum, None, p.same).tolist()


@entry("other", named="text")
def text(p):
    str(p.choose(p.split, None, p.sum))


@entry("other", named="full_tensor")
def full_tensor(p):
    p.choose(p.split, None, p.same).full_tensor()


def unwritable(p):
    open(p.path("file"), "w").close()
    return os.path.join(p.path("file"), "below")


def saved(p, name, **options):
    flow.save(
        p.choose({"w": p.split}, {"w": p.split}, {"w": p.split, "more": p.sum}),
        p.choose(p.path(name), unwritable(p), p.path(name)),
        **options,
    )


@entry("bad", "other", named="save")
def save(p):
    saved(p, "one", global_dst_rank=0)


@entry("bad", "other", named="save")
def save_last(p):
    saved(p, "last", global_dst_rank=p.choose(p.world - 1, p.world + 5, 0))


@entry("bad", "other", named="save")
def save_everywhere(p):
    saved(p, "everywhere")


@entry("bad", "other", named="save")
def save_folder(p):
    saved(p, "folder", save_as_external_data=True)


@entry("bad", "other", named="save")
def save_folder_on_one(p):
    saved(p, "folder_of_one", save_as_external_data=True, global_dst_rank=0)


@entry("bad", "other", named="save")
def save_pickle(p):
    saved(p, "pickle", layout=p.choose("pickle", "tarball", "pickle"), global_dst_rank=0)


@entry("bad", named="save")
def save_objects(p):
    flow.save({"w": p.split, "f": p.choose(1, lambda: 0)}, p.path("objects"))


@entry("bad", "other", named="load")
def load(p):
    flow.load(
        p.choose(p.path("saved"), p.path("nothing"), p.path("saved")),
        global_src_rank=p.choose(0, 0, p.world - 1),
    )


@entry("bad", named="load")
def load_everywhere(p):
    flow.load(p.choose(p.path("saved"), p.path("nothing")), map_location=p.ranks)


@entry("bad", "other", named="comm.all_reduce")
def all_reduce(p):
    flow.comm.all_reduce(p.choose(torch.ones(3), "tensor", torch.ones(4)))


@entry("bad", "other", named="comm.all_gather")
def all_gather(p):
    flow.comm.all_gather(
        p.choose(
            [torch.ones(3) for _ in range(p.world)], [torch.ones(3)], [torch.ones(5) for _ in range(p.world)]
        ),
        torch.ones(p.choose(3, 3, 5)),
    )


@entry("bad", "other", named="comm.all_gather_into_tensor")
def all_gather_into_tensor(p):
    flow.comm.all_gather_into_tensor(torch.ones(p.choose(3, 4, 2) * p.world), torch.ones(p.choose(3, 3, 2)))


@entry("bad", "other", named="comm.all_to_all")
def all_to_all(p):
    size = p.choose(2, 2, 5)
    flow.comm.all_to_all(
        [torch.ones(size) for _ in range(p.world)],
        p.choose([torch.ones(2)] * p.world, [], [torch.ones(5)] * p.world),
    )


@entry("bad", "other", named="comm.broadcast")
def broadcast(p):
    flow.comm.broadcast(torch.ones(3), p.choose(0, p.world, 1))


@entry("bad", "other", named="comm.reduce")
def reduce(p):
    flow.comm.reduce(
        torch.ones(3, dtype=p.choose(torch.float32, torch.float32, torch.float64)), p.choose(0, -1, 0)
    )


@entry("bad", "other", named="comm.reduce_scatter")
def reduce_scatter(p):
    size = p.choose(2, 2, 3)
    flow.comm.reduce_scatter(torch.ones(size), [torch.ones(size)] * p.choose(p.world, 1, p.world))


@entry("bad", "other", named="comm.reduce_scatter_tensor")
def reduce_scatter_tensor(p):
    flow.comm.reduce_scatter_tensor(torch.ones(p.choose(2, 2, 3)), torch.ones(p.choose(2, 5, 3) * p.world))


@entry("bad", "other", named="comm.gather")
def gather(p):
    flow.comm.gather(
        torch.ones(p.choose(2, 2, 3)),
        [torch.ones(p.choose(2, 2, 3)) for _ in range(p.world)],
        p.choose(0, "0", 0),
    )


@entry("bad", "other", named="comm.scatter")
def scatter(p):
    flow.comm.scatter(
        torch.ones(p.choose(2, 2, 3)), [torch.ones(p.choose(2, 2, 3))] * p.world, p.choose(0, 99, 0)
    )


@entry(named="comm.barrier")
def barrier(p):
    flow.comm.barrier()


@entry(named="comm")
def ring(p):
    """Sends to the next rank and receives from the one before."""
    if p.rank % 2 == 0:
        flow.comm.send(torch.ones(2), (p.rank + 1) % p.world)
        flow.comm.recv((p.rank - 1) % p.world)
    else:
        flow.comm.recv((p.rank - 1) % p.world)
        flow.comm.send(torch.ones(2), (p.rank + 1) % p.world)


@entry("other", named="DistributedDataParallel")
def ddp(p):
    nn.parallel.DistributedDataParallel(nn.Linear(2, p.choose(2, None, 3)))


@entry(named="DistributedDataParallel")
def ddp_gradients(p):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), broadcast_parameters=False)
    model(torch.ones(1, 2)).sum().backward()


class Step(nn.Graph):
    def __init__(self, p, zero=False):
        super().__init__()
        self.p, self.layer = p, nn.Linear(4, 4).to_global(p.ranks, B)
        self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9))
        if zero:
            self.config.enable_zero(True)
        self.config.set_backend("aten")

    def build(self, x):
        if self.p.way == "bad":
            raise UserError("build() fails on one rank")
        loss = self.layer(x).sum()
        loss.backward()
        return loss


@entry(named="DistributedDataParallel", kinds=("dies_inside",))
def backward_of_ddp(p):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    x = torch.ones(1, 2, requires_grad=True)
    p.end_here(x)
    model(x).sum().backward()


@entry(named="to_global", kinds=("dies_inside",))
def backward_of_a_move(p):
    x = torch.ones(2, 4, requires_grad=True)
    y = (x * 1).to_global(p.ranks, B).to_global(sbp=S0)
    p.end_here(y)
    (y * y).sum().backward()


@entry(named="Tensor.grad", kinds=("dies_inside",))
def backward_and_grad(p):
    """The gradient of a copy is a sum over the ranks, which is computed when it is read."""
    x = torch.ones(2, 4).to_global(p.ranks, B).requires_grad_()
    y = x.to_local() * 2
    p.end_here(y)
    y.sum().backward()
    x.grad.numpy()


@entry(named="", kinds=("dies_inside",))
def backward_and_clip(p):
    y = p.layer(p.split)
    p.end_here(y)
    y.sum().backward()
    nn.utils.clip_grad_norm_(p.layer.parameters(), 1.0)


@entry("bad", "other", named="")
def graph(p):
    Step(p)(p.choose(p.split, p.split, p.sum)).numpy()


@entry("bad", named="")
def graph_zero(p):
    Step(p, zero=True)(p.split).numpy()


@entry(named="")
def matmul(p):
    (p.split @ p.same).sum().numpy()


@entry("other", named="", apart=True)
def cumsum(p):
    """One rank runs another operator, whose collective has the size of the others'."""
    (p.split.cumsum(0) if p.way == "good" else p.split.cumprod(0)).to_local()
    p.split.sum().numpy()


@entry(named="")
def training(p):
    optimizer = flow.optim.Adam(p.layer.parameters(), lr=0.1)
    p.layer(p.split).sum().backward()
    nn.utils.clip_grad_norm_(p.layer.parameters(), 1.0)
    optimizer.step()
    p.layer.weight.numpy()


@entry(named="")
def randn(p):
    flow.randn(4, 4, placement=p.ranks, sbp=S0).numpy()


@entry("bad", "other", named="distributed_partial_fc_sample")
def partial_fc(p):
    weight, label = (
        flow.ones(8, 4, placement=p.ranks, sbp=S0),
        flow.ones(4, dtype=torch.int64, placement=p.ranks, sbp=B),
    )
    flow.distributed_partial_fc_sample(weight, label, p.choose(4, 0, 8))


@entry("bad", named="global_view.to_global")
def none_outside(p):
    first = flow.placement("cpu", [0])
    to_global({"x": p.local} if p.rank == 0 else None, p.choose(first, p.ranks), sbp=B)


@entry("other", named="to_global")
def made_in_global_mode(p):
    with global_mode(True, p.ranks, p.choose(B, None, S0)):
        nn.Linear(2, 2)


ENTRIES["to_global"] = ENTRIES.pop("to_global_")


def programs():
    """The names "entry/kind" of all programs."""
    for name, (function, ways, _) in ENTRIES.items():
        for kind in function.kinds:
            if kind not in ("raises", "disagrees") or {"raises": "bad", "disagrees": "other"}[kind] in ways:
                yield f"{name}/{kind}"
