"""Programs in which one rank fails in a collective call.

    python tests/fuzz/fuzz_ranks.py --ranks 2 4 --seeds 0:3

Each program is an entry point and a kind of failure. The ranks are processes that this script forks. A
program passes if every rank that lives ends in time with an error that names the failing rank, and if no rank
reads wrong values afterwards. A seed draws which rank fails, how it dies, who holds the store, and how many
good calls come first. ONEFLOW_TEST_TIME_SCALE multiplies all time limits. Exit status 1 if a program failed.
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

import rank_differences  # noqa: F401  (adds its programs)
import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.tensor
from rank_programs import ENTRIES, Program, UserError, programs

import oneflow as flow

# imported before the ranks are forked, as all that a rank would import on its own
import oneflow._global.dtensor
import oneflow._graph.capture.capture

SCALE = float(os.environ.get("ONEFLOW_TEST_TIME_SCALE", "1"))
TIMEOUT = 5.0 * SCALE  # ONEFLOW_TIMEOUT_SECONDS of the ranks
LATE = 2.0 * TIMEOUT  # a late rank comes so much later
LIMIT = 30.0 * SCALE + 2 * TIMEOUT  # a rank that lives longer hangs
CORPUS = (  # in the default test suite, on 2 ranks
    "to_global/raises",
    "to_global/disagrees",
    "move/disagrees",
    "module/disagrees",
    "save/raises",
    "save_folder/disagrees",
    "load/raises",
    "all_reduce/disagrees",
    "scatter/raises",
    "numpy/skips",
    "graph/raises",
    "cumsum/disagrees",
    "matmul/dies",
    "matmul/late",
    "ddp/disagrees",
    "partial_fc/raises",
    "graph/skips",
    "numpy/disagrees",
    "ones/disagrees",
    "a_number/disagrees",
    "a_branch_at_first/disagrees",
    "a_frozen_parameter/disagrees",
    "option_lr_of_SGD/disagrees",
    "a_size_seen_before/disagrees",
    "an_error_in_a_later_build/disagrees",
    "an_error_in_the_run/disagrees",
    "a_state_of_another_shape/disagrees",
    "the_rate_of_data_parallel/disagrees",
    "an_sbp/disagrees",
    "backward_of_ddp/dies_inside",
    "backward_of_a_move/dies_inside",
    "backward_and_grad/dies_inside",
)


# --------------------------------------------------------------------------- one rank
def run_rank(name, failing, before, death, folder, report):
    """Run a program as one rank; write what happened to `report`."""
    function, kind = ENTRIES[name.split("/")[0]][0], name.split("/")[1]
    program = Program(folder)
    if (before or kind in ("dies", "dies_inside", "late", "skips")) and not function.first:
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
            seconds=program.seconds if program.seconds is not None else time.monotonic() - start,
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
    program.way = {"raises": "bad", "disagrees": "other", "dies_inside": "dies"}.get(kind, "good")
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
            if kind in ("dies", "dies_inside") and rank == self.failing:
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
            yield (
                f"  rank {rank}: {result.get('error')}: {str(result.get('text')).splitlines()[0][:400]}"
                f" [{result.get('seconds', 0):.1f} s], then {str(result.get('probe'))[:150]}"
            )


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
            print(
                f"{'FAILED' if problems else 'ok    '} {run.name} on {run.world} ranks, seed"
                f" {run.seed} (rank {run.failing}, {run.death}, "
                f"{'own' if run.own_store else 'agent'} store): {time.monotonic() - run.start:.1f} s",
                flush=True,
            )
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
    parser.add_argument("--differences", action="store_true", help="the programs of rank_differences.py")
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
        and (not options.differences or ENTRIES[n.split("/")[0]][0].kinds == ("disagrees",))
        and (not options.only or n in options.only or n.split("/")[0] in options.only)
    ]
    end = time.monotonic() + options.seconds
    todo = [(name, world, seed) for seed in range(first, last) for world in options.ranks for name in names]
    failures = run_all(todo, options.at_once, options.verbose, end)
    print(
        f"{len(names)} programs, {failures} failed; repeat with: {sys.argv[0]} --only NAME --ranks N"
        f" --seeds S:S+1"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
