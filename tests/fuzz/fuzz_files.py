"""Hostile and damaged files, each loaded in a child process with limits of memory and time.

    python tests/fuzz/fuzz_files.py --seeds 0:1000 --seconds 600

First the hostile corpus (`HOSTILE`), then damaged files: every format of `FORMATS`, cut at each sixteenth, then one damage
for each seed (flipped bits, declared sizes, cuts, swapped and repeated ranges). A child process loads the
file and uses the result. A load passes if it raises an error derived from `oneflow.CheckpointError` that
names the file, or returns content; for a format with checksums the content must be correct. Any other outcome
is printed with the command that repeats it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import gc
import itertools
import os
import pathlib
import pickle
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child has no other threads
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "files"))
import hostile_files
import numpy as np
import torch
from file_damage import damage, parts_of
from file_formats import ANY, FORMATS, read_hub_zip
from files_util import assert_same_bits

from oneflow._data import records
from oneflow._file_safety.errors import CheckpointError

torch.set_num_threads(1)
SECONDS, WAIT = 20, 300  # for one file: of the processor, and by the clock
MEMORY = 224 << 20  # bytes a load may take on top of FACTOR times the size of its file
FACTOR = 80
BATCH = 32  # files that one child loads; those without a good outcome are loaded again, each in its own child
GOOD = ("loaded", "refused")
ERRORS = (CheckpointError, records.CorruptRecord)

# Each is a function folder -> iterable of (name, path). A new family of hostile files is one line here.
HOSTILE = {
    "files": hostile_files.hostile,
}


# --------------------------------------------------------------------------- one file in a child
def use(value, depth=0, budget=None) -> None:
    """Touch what a load gave, so that memory that is not there crashes here."""
    budget = [2000] if budget is None else budget
    budget[0] -= 1
    if depth > 20 or budget[0] < 0:
        return
    if isinstance(value, torch.nn.Module):
        repr(value) if not _is_cyclic(value) else None
        value = dict(value.__dict__)
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and 0 < value.numel() <= 1 << 16:
            value.detach().clone() if value.layout is torch.strided else value.detach().coalesce() if value.layout is torch.sparse_coo else value.detach().to_dense()
    elif isinstance(value, np.ndarray | np.generic):
        value.tobytes()
    elif isinstance(value, np.dtype):
        repr(value)
    elif isinstance(value, dict):
        for key, item in list(value.items())[:100]:
            use(key, depth + 1, budget)
            use(item, depth + 1, budget)
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        for item in list(value)[:100]:
            use(item, depth + 1, budget)


def _is_cyclic(module) -> bool:
    return any(child is module for child in module._modules.values())


_WRITES = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
    "ctypes.dlopen",
    "os.remove",
    "os.rename",
    "shutil.rmtree",
    "webbrowser.open",
    "pty.spawn",
)


def _watch(read_is_hub, seen) -> None:
    """Record imports of modules that no loader needs, and calls that change the system."""
    allowed = (
        "oneflow",
        "torch",
        "numpy",
        "safetensors",
        "zipfile",
        "encodings",
        "json",
        "tarfile",
        "lzma",
        "bz2",
        "_bz2",
        "_lzma",
        "xxhash",
        "flatbuffers",
        "_strptime",
        "pathlib",
        "uuid",
        "fractions",
        "decimal",
    )

    def hook(event, arguments):
        if (
            event == "import"
            and arguments[0].split(".")[0] not in allowed
            and arguments[0] not in sys.modules
        ):
            seen.append(f"import {arguments[0]}")
        elif (
            event in _WRITES
            and not read_is_hub
            or event in ("exec", "compile")
            and not str(getattr(arguments[0], "co_filename", arguments[-1])).startswith(
                ("/", "<frozen", "<string>", "<attrs", "<@beartype")
            )
        ):
            seen.append(f"{event} {arguments!r:.80}")

    sys.addaudithook(hook)


def _limit(memory) -> None:
    """Bound the memory that this process maps from here on."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))


def _child(items, results) -> None:
    """Load (form, path, expected) one after another, and write each outcome to the pipe."""
    warnings.simplefilter("ignore")
    gc.freeze()  # garbage of the parent, collected during a load, would hide what the load takes
    faulthandler.disable()  # the parent reports a crash; pytest's handler would print all threads
    seen: list[str] = []
    _watch(any(form.read is read_hub_zip for form, _, _ in items), seen)
    limits = [MEMORY + FACTOR * _size(path) for _, path, _ in items]
    _limit(4 * max(limits))
    for (form, path, expected), limit in zip(items, limits):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor
        signal.alarm(WAIT)
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # the peak counts from here, not from the memory that pytest's process once had
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        outcome, detail = _load(form, path, expected)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if grown > limit and outcome in GOOD:
            outcome, detail = "memory", f"{grown >> 20} MiB, {limit >> 20} MiB are allowed"
        if seen or os.path.exists(hostile_files.MARKER):
            outcome, detail = "executed", "; ".join(seen)
        body = pickle.dumps((outcome, detail[:400], grown, time.perf_counter() - started))
        os.write(results, len(body).to_bytes(4, "little") + body)


def _load(form, path, expected):
    """(kind, detail) of the outcome of one load."""
    try:
        value = form.read(path)
        use(value)
        if expected is None or not form.checked:
            return "loaded", ""
        return _compared(value, expected if form.counted else expected[: len(value)])
    except (*ERRORS, pickle.UnpicklingError, FileNotFoundError, IsADirectoryError) as error:
        return ("refused" if path.name in str(error) else "unnamed"), f"{type(error).__name__}: {error}"
    except BaseException as error:
        return "raw", f"{type(error).__name__}: {error}"


def _size(path) -> int:
    return 0 if path.is_symlink() else sum(p.stat().st_size for p in parts_of(path))


def _compared(value, expected):
    try:
        assert_same_bits(value, expected)
    except (AssertionError, KeyError, RuntimeError, ValueError) as error:
        return "wrong", f"other content: {error!r:.200}"
    return "loaded", ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one file, with details; `grown` and `seconds` are the memory and time of its load."""

    kind: str
    detail: str
    grown: int = 0
    seconds: float = 0.0


def load_in_children(items) -> list[Outcome]:
    """Load (form, path, expected) in one forked process; those without a good outcome again, each in its own."""
    outcomes, _ = _forked(items)
    return [
        o if o is not None and o.kind in GOOD else load_in_child(*item) for item, o in zip(items, outcomes)
    ]


def load_in_child(form, path, expected=None) -> Outcome:
    """Load one file in a forked process."""
    (outcome,), status = _forked([(form, path, expected)])
    if outcome is not None:
        return outcome
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
    return Outcome("late" if name in ("SIGPROF", "SIGALRM", "SIGKILL") else "crashed", name)


def _forked(items):
    """(the outcome of each item or None, how the child ended)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            _child(items, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    body = b""
    while select.select([ours], [], [], 2 * WAIT)[0]:
        part = os.read(ours, 1 << 16)
        if not part:
            break
        body += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(ours)
    status = os.waitpid(child, 0)[1]
    outcomes: list[Outcome | None] = []
    while body:
        size = int.from_bytes(body[:4], "little")
        outcomes.append(Outcome(*pickle.loads(body[4 : 4 + size])))
        body = body[4 + size :]
    return outcomes + [None] * (len(items) - len(outcomes)), status


# --------------------------------------------------------------------------- runs
class Tally:
    """Counts outcomes by family, and keeps and prints the bad ones."""

    def __init__(self):
        self.counts, self.bad, self.most, self.longest = collections.Counter(), [], 0, 0.0

    def add(self, family, name, outcome: Outcome) -> None:
        self.counts[family, outcome.kind] += 1
        self.most, self.longest = max(self.most, outcome.grown), max(self.longest, outcome.seconds)
        if outcome.kind not in GOOD:
            self.bad.append((family, name, outcome))
            print(f"BAD {family}, {name}: {outcome.kind}: {outcome.detail}", flush=True)

    def print(self) -> None:
        for (family, kind), count in sorted(self.counts.items()):
            print(f"{family:24} {kind:10} {count}")
        print(
            f"{sum(self.counts.values())} files, {len(self.bad)} bad; at most {self.most >> 20} MiB and {self.longest:.1f} s for a file"
        )


def warm_up(folder) -> dict:
    """Write and read a file of each format here, so that a child imports nothing; {format: (folder, content)}."""
    references = {}
    for name, form in FORMATS.items():
        home = folder / "good" / name
        home.mkdir(parents=True)
        form.write(home / "file")
        references[name] = home, form.read(home / "file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are new
        torch.nested.nested_tensor([torch.ones(1)])
    torch.eye(2).to_sparse().to_dense()
    return references


def _load_all(cases, tally) -> None:
    """Load (family, name, (form, path, expected)) in batches."""
    batch = []
    for case in cases:
        batch.append(case)
        if len(batch) == BATCH:
            _load_batch(batch, tally)
            batch = []
    if batch:
        _load_batch(batch, tally)


def _load_batch(batch, tally) -> None:
    for (family, name, _), outcome in zip(batch, load_in_children([item for _, _, item in batch])):
        tally.add(family, name, outcome)
    if sys.stdout.isatty():
        print(f"{sum(tally.counts.values())} files", end="\r", flush=True)


def hostile_cases(folder, every=1):
    """The hostile corpora; `every`: each n-th file."""
    for family, generate in HOSTILE.items():
        home = folder / "hostile" / family
        home.mkdir(parents=True)
        for i, (name, path) in enumerate(generate(home)):
            if i % every == 0:
                yield family, name, (ANY, path, None)


def cut_cases(references, folder, every=1):
    """Every file of every format, cut at each sixteenth."""
    for name, (home, content) in references.items():
        for part in range(len(parts_of(home / "file"))):
            for sixteenth in range(0, 16, every):
                path = _copy(home, folder)
                victim = parts_of(path)[part]
                body = victim.read_bytes()
                victim.write_bytes(body[: len(body) * sixteenth // 16])
                yield f"cut {name}", f"{victim.name} at {sixteenth}/16", (FORMATS[name], path, content)


_copies = itertools.cycle(range(2 * BATCH))


def _copy(home, folder) -> pathlib.Path:
    target = folder / f"damaged{next(_copies)}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(home, target)
    return target / "file"


def seed_cases(references, folder, seeds, until=float("inf")):
    """One damaged file for each seed, of a format that the seed chooses."""
    for seed in seeds:
        if time.monotonic() > until:
            print(f"stopped before seed {seed}")
            return
        rng = random.Random(seed)
        name = rng.choice(list(FORMATS))
        home, content = references[name]
        path = _copy(home, folder)
        how = damage(path, rng)
        repeat = (
            f"seed {seed}, {how} (python tests/fuzz/fuzz_files.py --seeds {seed}:{seed + 1} --no-hostile)"
        )
        yield f"damaged {name}", repeat, (FORMATS[name], path, content)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:200", help="first:last of the damaged files")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--no-hostile", action="store_true", help="only the seeds")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    until, tally, here = time.monotonic() + options.seconds, Tally(), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        folder = pathlib.Path(folder)
        references = warm_up(folder)
        if not options.no_hostile:
            _load_all(itertools.chain(hostile_cases(folder), cut_cases(references, folder)), tally)
        _load_all(seed_cases(references, folder, range(int(first), int(last)), until), tally)
        os.chdir(here)
    tally.print()
    return int(bool(tally.bad))


if __name__ == "__main__":
    sys.exit(main())
