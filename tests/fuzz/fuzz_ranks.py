"""Programs in which one rank fails in a collective call: python tests/fuzz/fuzz_ranks.py --ranks 2 4 --seeds 0:3

Each program is an entry point and a kind of failure. The ranks are processes that this script forks. A program passes if
every rank that lives ends in time with an error that names the failing rank, and if no rank reads wrong values
afterwards. A seed draws which rank fails, how it dies, who holds the store, and how many good calls come first.
ONEFLOW_TEST_TIME_SCALE multiplies all time limits. Exit status 1 if a program failed.
"""

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback

os.environ["OMP_NUM_THREADS"] = "1"  # a process forks only before threads start

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.tensor

import oneflow as flow
import oneflow._global.dtensor  # imported before the ranks are forked, as all that a rank would import on its own
import oneflow._graph.capture.capture
from oneflow import nn
from oneflow.utils.global_view import global_mode, to_global

SCALE = float(os.environ.get("ONEFLOW_TEST_TIME_SCALE", "1"))
TIMEOUT = 5.0 * SCALE  # ONEFLOW_TIMEOUT_SECONDS of the ranks
LATE = 2.0 * TIMEOUT  # a late rank comes so much later
LIMIT = 30.0 * SCALE + 2 * TIMEOUT  # a rank that lives longer hangs
KINDS = ("raises", "disagrees", "skips", "dies", "late")
CORPUS = (  # in the default test suite, on 2 ranks
    "to_global/raises", "to_global/disagrees", "move/disagrees", "module/disagrees", "save/raises", "save_folder/disagrees", "load/raises",
    "all_reduce/disagrees", "scatter/raises", "numpy/skips", "graph/raises", "cumsum/disagrees", "matmul/dies", "matmul/late", "ddp/disagrees", "partial_fc/raises",
)  # fmt: skip
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
        self.ranks = flow.placement.all("cpu")
        self.local = torch.arange(8.0).reshape(2, 4) + self.rank
        self.split = self.local.to_global(self.ranks, S0)
        self.sum = self.local.to_global(self.ranks, P)
        self.same = torch.arange(16.0).reshape(4, 4).to_global(self.ranks, B)
        self.layer = nn.Linear(4, 4).to_global(self.ranks, B)

    def path(self, name):
        return os.path.join(self.folder, name)

    def choose(self, good, bad=None, other=None):
        """The argument of this rank: `bad` raises on this rank, `other` is legal and another one than that of the other ranks."""
        return {"good": good, "bad": bad, "other": other}[self.way]

    def probe(self):
        """Whether a later read gives the right values on this rank: the sum of all ranks' parts."""
        expected = [[self.world * (4 * i + j) + sum(range(self.world)) for j in range(4)] for i in range(2)]
        found = self.sum.numpy().tolist()
        return found == expected or found


# --------------------------------------------------------------------------- entry points
ENTRIES: dict = {}  # name -> (function, the ways in which one rank can differ, what the error names)


def entry(*ways, named, first=False, apart=False):
    """`first`: the call communicates the first time only. `apart`: ranks that disagree are out of step."""

    def add(function):
        function.first, function.apart = first, apart
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
    for name, (_, ways, _) in ENTRIES.items():
        for kind in KINDS:
            if kind not in ("raises", "disagrees") or {"raises": "bad", "disagrees": "other"}[kind] in ways:
                yield f"{name}/{kind}"


# --------------------------------------------------------------------------- one rank
def run_rank(name, failing, before, death, folder, report):
    """Run a program as one rank; write what happened to `report`."""
    function, kind = ENTRIES[name.split("/")[0]][0], name.split("/")[1]
    program = Program(folder)
    if (before or kind in ("dies", "late", "skips")) and not function.first:
        for _ in range(max(before, 1)):
            function(program)
    flow.comm.barrier()
    result, start = {"error": None, "seconds": 0.0, "probe": None}, time.monotonic()
    try:
        act(program, function, kind if program.rank == failing else "good", death)
    except Exception as error:
        result.update(
            error=type(error).__name__,
            text=str(error),
            seconds=time.monotonic() - start,
            trace=traceback.format_exc()[-3000:],
        )
    program.way, start = "good", time.monotonic()
    try:
        result["probe"] = program.probe()
    except Exception as error:
        result["probe"] = f"raised {type(error).__name__}: {error}"
    result["probe_seconds"] = time.monotonic() - start
    with open(report + ".part", "w") as file:
        json.dump(result, file)
    os.rename(report + ".part", report)


def act(program, function, kind, death):
    if kind == "dies":
        if death == "raise":
            raise SystemExit("this rank has failed")
        os.kill(os.getpid(), signal.SIGKILL) if death == "kill" else os._exit(7)
    if kind == "skips":
        return
    if kind == "late":
        time.sleep(LATE)
    program.way = {"raises": "bad", "disagrees": "other"}.get(kind, "good")
    function(program)


def fork_rank(name, rank, world, port, failing, before, death, folder, own_store):
    """The process id of a rank. The child leaves as a program does, or without a word where it ended well."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    log = open(os.path.join(folder, f"log{rank}"), "w")
    os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
    faulthandler.dump_traceback_later(LIMIT - 2, exit=False)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        ONEFLOW_TIMEOUT_SECONDS=str(TIMEOUT),
    )
    if not own_store:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    torch.manual_seed(rank)
    try:
        run_rank(name, failing, before, death, folder, os.path.join(folder, f"report{rank}"))
    except SystemExit as leaving:
        raise UserError(str(leaving)) from None  # the interpreter ends as after any error
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


# --------------------------------------------------------------------------- all ranks
class Run:
    """A program that runs on several ranks."""

    def __init__(self, name, world, seed):
        rng = random.Random(f"{name} {world} {seed}")
        self.name, self.world, self.seed = name, world, seed
        self.failing, self.before = rng.randrange(world), rng.randrange(2)
        self.death, self.own_store = rng.choice(("kill", "exit", "raise")), rng.random() < 0.5
        if name.split("/")[1] == "raises" and name.split("/")[0] in (
            "save",
            "save_folder_on_one",
            "save_pickle",
            "scatter",
            "load",
            "save_last",
        ):
            self.failing = world - 1 if name.startswith("save_last") else 0  # the rank that does the work
        if name.startswith("none_outside"):
            self.failing = 1
        self.folder = tempfile.mkdtemp(prefix="ranks")
        torch.save({"w": torch.ones(3)}, os.path.join(self.folder, "saved"))
        port = free_port()
        self.store = None if self.own_store else fork_store(port, world)
        self.start = time.monotonic()
        self.pids = {
            fork_rank(
                name, r, world, port, self.failing, self.before, self.death, self.folder, self.own_store
            ): r
            for r in range(world)
        }

    def problems(self, hung):
        """The failures, as lines."""
        kind, named = self.name.split("/")[1], ENTRIES[self.name.split("/")[0]][2]
        for rank in hung:
            yield f"rank {rank} hung:\n{self._log(rank)[-2500:]}"
        for rank in set(range(self.world)) - set(hung):
            result = self._report(rank)
            if kind == "dies" and rank == self.failing:
                continue
            if result is None:
                yield f"rank {rank} ended without a report:\n{self._log(rank)[-2500:]}"
                continue
            yield from (f"rank {rank}: {problem}" for problem in self._problems_of(rank, kind, named, result))

    def _problems_of(self, rank, kind, named, result):
        error, probe = result["text"] if result["error"] else None, result["probe"]
        if isinstance(probe, list):
            yield f"read wrong values afterwards: {probe}"
        if kind == "skips":
            if error is None and probe is True:
                yield "went on as if all ranks had made the call"
        elif error is None:
            yield f"raised nothing; probe {probe}"
        if (
            kind in ("raises", "disagrees")
            and probe is not True
            and not ENTRIES[self.name.split("/")[0]][0].apart
        ):
            yield f"the ranks agreed on the failure and could not go on: {probe}"
        if (
            error is not None
            and rank != self.failing
            and f"rank {self.failing}" not in error
            and str(self.failing) not in error.partition("ranks")[2]
        ):
            yield f"does not name rank {self.failing}: {error}"
        if error is not None and rank != self.failing and named not in error:
            yield f"does not name the call {named}: {error}"
        if result["seconds"] > TIMEOUT + (LATE if kind == "late" and rank == self.failing else 0) + 8 * SCALE:
            yield f"took {result['seconds']:.1f} s"

    def _report(self, rank):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, f"report{rank}")) as file:
            return json.load(file)

    def _log(self, rank):
        with open(os.path.join(self.folder, f"log{rank}"), errors="replace") as file:
            return file.read()

    def errors(self):
        """The first line of each rank's error."""
        for rank in range(self.world):
            result = self._report(rank) or {}
            yield f"  rank {rank}: {result.get('error')}: {str(result.get('text')).splitlines()[0][:400]} [{result.get('seconds', 0):.1f} s], then {str(result.get('probe'))[:150]}"


def fork_store(port, world):
    """The process id of a store as the launcher has one. This process starts no threads, for it forks."""
    pid = os.fork()
    if not pid:
        store = dist.TCPStore("127.0.0.1", port, world, True, wait_for_workers=False)  # noqa: F841
        time.sleep(LIMIT + 10)
        os._exit(0)
    return pid


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_all(todo, at_once, verbose, end):
    """Run (name, world, seed) triples, some at a time; return the number that failed."""
    todo, running, failures = collections.deque(todo), {}, 0
    while todo or running:
        if time.monotonic() > end:
            todo.clear()
        while todo and len(running) < at_once:
            run = Run(*todo.popleft())
            running[run] = dict(run.pids)
        for run, alive in list(running.items()):
            for pid in list(alive):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del alive[pid]
            if alive and time.monotonic() - run.start < LIMIT:
                continue
            for pid in [*alive, *([run.store] if run.store else [])]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            problems = list(run.problems(sorted(alive.values())))
            failures += bool(problems)
            print(f"{'FAILED' if problems else 'ok    '} {run.name} on {run.world} ranks, seed {run.seed} (rank {run.failing}, {run.death}, "
                  f"{'own' if run.own_store else 'agent'} store): {time.monotonic() - run.start:.1f} s", flush=True)  # fmt: skip
            if problems or verbose:
                print("\n".join([*problems, *run.errors()]), flush=True)
            del running[run]
        time.sleep(0.02)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seeds", default="0:1", help="first:last of the seeds")
    parser.add_argument("--only", nargs="*", default=[], help="programs, as save/raises, or entry points")
    parser.add_argument("--corpus", action="store_true", help="the few programs of the default test suite")
    parser.add_argument("--at-once", type=int, default=4, help="how many programs run at a time")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no program after so much time"
    )
    parser.add_argument("--verbose", action="store_true", help="print the errors of every program")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    names = [
        n
        for n in programs()
        if (not options.corpus or n in CORPUS)
        and (not options.only or n in options.only or n.split("/")[0] in options.only)
    ]
    end = time.monotonic() + options.seconds
    todo = [(name, world, seed) for seed in range(first, last) for world in options.ranks for name in names]
    failures = run_all(todo, options.at_once, options.verbose, end)
    print(
        f"{len(names)} programs, {failures} failed; repeat with: {sys.argv[0]} --only NAME --ranks N --seeds S:S+1"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
