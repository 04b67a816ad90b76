"""Sharded checkpoints: rate beside the disk's, peak memory, and how long an asynchronous save stops the
program.

    python tests/benchmarks/checkpoints.py --gib 1.5                    # one process
    python -m oneflow.distributed.launch --nproc_per_node 2 tests/benchmarks/checkpoints.py --gib 1.5
    ... --folder PATH          where to write (the current folder)

Each round writes the bytes of the checkpoint with plain write() and fsync(), and then saves the checkpoint;
then it reads the files with plain read(), and then loads the checkpoint. Files are dropped from the page
cache before a read. Every rank writes and reads at the same time. Prints one line of JSON on rank 0: the
median of the rounds. "memory" is the growth of the process's peak, as a part of the rank's shard: a save
streams, and a load into given tensors needs no second copy.
"""

import argparse
import json
import os
import shutil
import statistics
import time

import torch

import oneflow as flow

RANK, WORLD = flow.env.get_rank(), flow.env.get_world_size()
BLOCK = 16 << 20


def state_of(size, placement):
    """64 tensors, split over the ranks, of `size` bytes in all."""
    rows = size // 64 // 4 // 1024 // WORLD
    split = flow.sbp.split(0)
    return {f"layer{i}.weight": flow.randn(rows, 1024).to_global(placement, split) for i in range(64)}


def timed(call):
    if WORLD > 1:
        flow.comm.barrier()
    began = time.perf_counter()
    result = call()
    if WORLD > 1:
        flow.comm.barrier()
    return time.perf_counter() - began, result


def drop_from_cache(folder):
    for name in os.listdir(folder):
        handle = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def plain_write(path, arrays):
    """Write a new file, and then remove the former one, as a save does."""
    with open(path + ".new", "wb", buffering=0) as file:
        for array in arrays:
            for begin in range(0, len(array), BLOCK):
                file.write(array[begin : begin + BLOCK])
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def plain_read(path, buffer):
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def peak_growth(call):
    """The growth of the peak of resident memory during a call, in bytes."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = resident("VmHWM")
    call()
    return resident("VmHWM") - before


def resident(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def rounds_of_io(options, state, shard, arrays):
    folder, raw = os.path.join(options.folder, "checkpoint"), os.path.join(options.folder, f"raw-{RANK}")
    seconds = {name: [] for name in ("write", "save", "read", "load")}
    buffer = memoryview(bytearray(BLOCK))
    for _ in range(options.rounds):
        seconds["write"].append(timed(lambda: plain_write(raw, arrays))[0])
        seconds["save"].append(timed(lambda: flow.save(state, folder, layout="sharded"))[0])
        own = [n for n in os.listdir(folder) if n.startswith(f"rank-{RANK}-")][0]
        drop_from_cache(folder)
        seconds["read"].append(timed(lambda: plain_read(os.path.join(folder, own), buffer))[0])
        drop_from_cache(folder)
        seconds["load"].append(timed(lambda: flow.load(folder, into=state, check_crc=False))[0])
    memory = {
        "save": peak_growth(lambda: flow.save(state, folder, layout="sharded")) / shard,
        "load": peak_growth(lambda: flow.load(folder, into=state)) / shard,
    }
    rates = {f"{k} MB/s": round(shard * WORLD / statistics.median(v) / 1e6) for k, v in seconds.items()}
    return rates, {f"memory of {k}": round(v, 3) for k, v in memory.items()}


def asynchronous(options, state):
    """The time that each asynchronous save stops the program, over the time of the save."""
    folder, parts = os.path.join(options.folder, "checkpoint"), []
    for _ in range(2 * options.rounds + 1):
        stall, pending = timed(lambda: flow.save(state, folder, layout="sharded", asynchronous=True))
        rest, _ = timed(pending.wait)
        parts.append((stall, stall / (stall + rest)))
    (first, first_part), *later = parts
    return {
        "stall s": round(statistics.median(s for s, _ in later), 3),
        "stall %": round(100 * statistics.median(p for _, p in later), 1),
        "first stall s": round(first, 3),
        "first stall %": round(100 * first_part, 1),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=".")
    options = parser.parse_args()
    options.folder = os.path.join(options.folder, "checkpoint-benchmark")
    os.makedirs(options.folder, exist_ok=True)
    state = state_of(int(options.gib * (1 << 30)), flow.placement.all("cpu"))
    locals_ = [t.to_local().detach() for t in state.values()]
    shard = sum(t.nbytes for t in locals_)
    arrays = [memoryview(t.reshape(-1).view(torch.uint8).numpy()) for t in locals_]
    rates, memory = rounds_of_io(options, state, shard, arrays)
    result = {
        "ranks": WORLD,
        "GB": round(shard * WORLD / 1e9, 2),
        **rates,
        **memory,
        **asynchronous(options, state),
    }
    if RANK == 0:
        print(json.dumps(result))
        shutil.rmtree(options.folder)


main()
