"""Random calls of every custom operator: python tests/fuzz/fuzz_ops.py --seeds 0:100000

A seed is a call (operator_calls.py) of tensors between protected pages (guarded.py), made in a child process.
A call may be accepted or refused. It fails if the process ends, if it takes longer than --limit seconds, if
an error does not name the operator, the argument and the value found, if the result depends on the layout of
the arguments, if the fake kernel gives another shape, stride or dtype, or if the gradient raises. A failure
prints its seed and the command that repeats it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from guarded import Arena
from operator_calls import BUILDERS, Call, TensorSpec, draw
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from oneflow._kernels import _ext, gradients
from oneflow_autotest.summary import Progress

CALLS_A_CHILD = 2000
MEMORY = 1 << 28  # that a child may allocate in addition to its initial memory
TOO_LARGE = (
    "can't allocate memory",
    "bad_alloc",
    "Storage size calculation overflowed",
    "Stride calculation overflowed",
    "out of memory",
)
NO_TENSOR = "There were no tensor arguments"  # an empty list of tensors: torch finds no kernel to call
ROUNDS_BY_LAYOUT = ("mm", "bmm", "convolution")  # sums whose order follows the layout


@dataclasses.dataclass(frozen=True)
class Outcome:
    # accepted, refused, too large; the others are failures: crash, slow, unnamed error, layout, fake kernel,
    # gradient
    kind: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in ("accepted", "refused", "too large")


def operators(device: str) -> list[str]:
    """The operators with a kernel for this device, in the order of their names."""
    key = device.upper()
    return sorted(n for n in BUILDERS if torch._C._dispatch_has_kernel_for_dispatch_key(f"oneflow::{n}", key))


class Caller:
    """Makes the calls; its arenas are used again by every call."""

    def __init__(self, device: str):
        self.device = device
        self.arenas = [Arena() for _ in range(48)] if device == "cpu" else []

    def arguments(self, call: Call, seed: int) -> list:
        generator = torch.Generator().manual_seed(seed)
        arenas = iter(self.arenas)

        def make(spec: TensorSpec) -> torch.Tensor:
            values, arena = spec.fill(generator), next(arenas, None)
            memory = (
                values.to(self.device)
                if arena is None
                else arena.tensor(values, bool(torch.randint(0, 2, (1,), generator=generator)))
            )
            return memory.as_strided(spec.shape, spec.strides())

        return tree_map_only(TensorSpec, make, list(call.values))

    def outcome(self, call: Call, seed: int) -> Outcome:
        op = getattr(torch.ops.oneflow, call.operator).default
        try:
            arguments = self.arguments(call, seed)
        except RuntimeError as error:
            return Outcome("too large", f"torch has no such tensor: {error}")
        # others have no copy, or no strides
        small = all(max(x.shape, default=0) < 1 << 20 and x.numel() < 1 << 20 for x in _tensors(arguments))
        copies = tree_map_only(torch.Tensor, _dense_copy, arguments) if small else None
        try:
            result = op(*arguments)
            if self.device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            return refusal(op, error)
        checks = [_fake_difference if seed % 8 == 0 else _layout_difference]
        checks += [_gradient_error] if seed % 3 == 0 and call.operator in gradients.AUTOGRAD else []
        for check in checks if copies is not None else []:
            try:
                difference = check(call, op, arguments, copies, result)
            except (RuntimeError, MemoryError) as error:  # the check itself needs memory
                return refusal(op, error)
            if difference:
                return Outcome(check.__name__[1:].replace("_", " "), difference)
        return Outcome("accepted")


def _dense_copy(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)


def refusal(op, error: Exception) -> Outcome:
    """Whether an error names the operator, an argument, and what was found."""
    message = str(error).split("\n")[0]
    if any(words in message for words in TOO_LARGE) or isinstance(error, MemoryError):
        return Outcome("too large", message)
    if isinstance(error, NotImplementedError) and message.startswith(NO_TENSOR):
        return Outcome("refused", message)
    prefix = f"{op._schema.name}: "
    argument = message[len(prefix) :].split(" ")[0].split("[")[0]
    named = (
        message.startswith(prefix)
        and argument in {a.name for a in op._schema.arguments}
        and "found" in message
    )
    return Outcome("refused" if named else "unnamed error", f"{type(error).__name__}: {message}")


def _tensors(value) -> list[torch.Tensor]:
    return [
        x
        for item in (value if isinstance(value, (list, tuple)) else [value])
        for x in (item if isinstance(item, list) else [item])
        if isinstance(x, torch.Tensor)
    ]


def _layout_difference(call: Call, op, arguments, copies, result) -> str:
    """Where the results, or what is written in place, differ for arguments that lie densely in ordinary
    memory.
    """
    special = any(isinstance(v, TensorSpec) and v.values == "special" for v in call.values)
    if special and call.operator.startswith(ROUNDS_BY_LAYOUT):
        return ""
    pairs = list(zip(_tensors(result), _tensors(op(*copies))))
    pairs += [
        pair
        for a, x, y in zip(op._schema.arguments, arguments, copies)
        if a.alias_info is not None and a.alias_info.is_write
        for pair in zip(_tensors([x]), _tensors([y]))
    ]
    for i, (actual, expected) in enumerate(pairs):
        if not actual.is_floating_point():
            same = torch.equal(actual, expected)
        else:
            tolerance = 2e-2 if actual.dtype in (torch.bfloat16, torch.float16) else 1e-3
            same = torch.allclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        if not same:
            return f"result {i} is not that of dense copies of the arguments"
    return ""


def _fake_difference(call: Call, op, arguments, copies, result) -> str:
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fakes = tree_map_only(torch.Tensor, mode.from_tensor, copies)
        try:
            fake = op(*fakes)
        except Exception as error:
            return f"the fake kernel raises {type(error).__name__}: {str(error).splitlines()[0]}"
    for i, (actual, expected) in enumerate(zip(_tensors(fake), _tensors(result))):
        described = [(tuple(t.shape), t.stride(), t.dtype) for t in (actual, expected)]
        if expected.numel() and described[0] != described[1] or described[0][::2] != described[1][::2]:
            return f"result {i} is {described[0]} of the fake kernel, {described[1]} of the operator"
    return ""


def _gradient_error(call: Call, op, arguments, copies, result) -> str:
    leaves = tree_map_only(torch.Tensor, lambda x: x.detach().requires_grad_(x.is_floating_point()), copies)
    try:
        out = [x for x in _tensors(op(*leaves)) if x.requires_grad]
        torch.autograd.backward(out, [torch.randn_like(x) for x in out])
    except NotImplementedError as error:
        return "" if str(error).startswith("oneflow::") else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    wrong = [x for x in _tensors(leaves) if x.grad is not None and x.grad.shape != x.shape]
    return f"a gradient of {tuple(wrong[0].shape)} has shape {tuple(wrong[0].grad.shape)}" if wrong else ""


# --------------------------------------------------------------------------- child processes
def _limit_memory():
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _child(run: Callable[[int], Outcome], seeds: Iterable[int], progress: mmap.mmap, pipe: int):
    """Run the seeds; the seed at work is in `progress`, each outcome a line in the pipe."""
    for seed in seeds:
        progress[:8] = struct.pack("q", seed)
        try:
            outcome = run(seed)
        except Exception as error:
            outcome = Outcome("crash", f"{type(error).__name__}: {error}")
        line = json.dumps([seed, *dataclasses.astuple(outcome)]) + "\n"
        os.write(pipe, line.encode())


def run_in_children(
    run: Callable[[int], Outcome],
    seeds: range,
    limit: float,
    deadline: float = float("inf"),
    a_child: int = CALLS_A_CHILD,
):
    """Yield (seed, outcome) of each seed, whatever a call does to its process."""
    progress = mmap.mmap(-1, 8)
    at = seeds.start
    while at < seeds.stop and time.monotonic() < deadline:
        batch = range(at, min(at + a_child, seeds.stop))
        progress[:8] = struct.pack("q", at)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                _limit_memory()
                _child(run, batch, progress, writer)
                os._exit(0)
            finally:
                os._exit(3)
        os.close(writer)
        yield from _outcomes(reader, child, limit, deadline)
        os.close(reader)
        _, status = os.waitpid(child, 0)
        at = batch.stop
        if status and time.monotonic() < deadline:
            at = struct.unpack("q", progress[:8])[0]
            number = os.waitstatus_to_exitcode(status)
            yield (
                at,
                Outcome("slow", f"more than {limit:g} s")
                if number == -signal.SIGKILL
                else Outcome(
                    "crash", signal.Signals(-number).name if number < 0 else f"exit status {number}"
                ),
            )
            at += 1


def _outcomes(reader: int, child: int, limit: float, deadline: float):
    """The outcomes a child reports, until it ends; a child that reports nothing for `limit` seconds
    is ended.
    """
    rest = b""
    while True:
        ready, _, _ = select.select([reader], [], [], min(limit, max(deadline - time.monotonic(), 0)))
        if not ready:
            return os.kill(child, signal.SIGKILL)
        data = os.read(reader, 1 << 16)
        if not data:
            return None
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            seed, kind, detail = json.loads(line)
            yield seed, Outcome(kind, detail)


# --------------------------------------------------------------------------- the command
def fuzz(
    seeds: range,
    device: str = "cpu",
    limit: float = 30.0,
    seconds: float = float("inf"),
    only: list[str] | None = None,
):
    """Yield (seed, call, outcome) of each seed."""
    names = only or operators(device)
    caller = Caller(device)
    torch.set_num_threads(1)
    FakeTensorMode()  # imports much of torch, here and not in every child
    for seed, outcome in run_in_children(
        lambda seed: caller.outcome(draw(seed, names), seed), seeds, limit, time.monotonic() + seconds
    ):
        yield seed, draw(seed, names), outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="0:10000", help="first:last")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds that a call may take")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--operators", nargs="*", help="only these")
    parser.add_argument("--verbose", action="store_true", help="print every call")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if _ext.status() != "loaded":
        raise SystemExit(f"the kernel library is {_ext.status()}")
    first, last = map(int, options.seeds.split(":"))
    kinds: collections.Counter = collections.Counter()
    accepted: collections.Counter = collections.Counter()
    progress = Progress("fuzz_ops", "calls", last - first, 1000)
    for seed, call, outcome in fuzz(
        range(first, last), options.device, options.limit, options.seconds, options.operators
    ):
        progress.add()
        kinds[outcome.kind] += 1
        accepted[call.operator] += outcome.kind == "accepted"
        if outcome.failed or options.verbose:
            extra = f" --operators {' '.join(options.operators)}" if options.operators else ""
            print(f"seed {seed}: {outcome.kind}: {outcome.detail}\n    {call}")
            print(
                (
                    f"    repeat: python tests/fuzz/fuzz_ops.py --seeds {seed}:{seed + 1} --device"
                    f" {options.device}{extra}"
                ),
                flush=True,
            )
    print(
        f"{sum(kinds.values())} calls of {len(accepted)} operators: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    )
    print("accepted: " + ", ".join(f"{name} {n}" for name, n in sorted(accepted.items())))
    return int(any(Outcome(kind).failed for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
