"""Random training programs, eager against nn.Graph: python tests/fuzz/fuzz.py --backend inductor --seeds 0:100

Each program is generated from its seed and trains three steps in eager mode and in a graph, in a separate
process. Results, parameters and buffers must agree. A failing program is shrunk and written to --out as a
script. The exit status is 1 if any program failed.
"""

import argparse
import collections
import os
import pickle
import select
import signal
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from drawing import draw_program
from shrinking import script, shrink
from training import train

from oneflow_autotest.summary import Progress

STEPS = 3
# a program that decides by values is not saved, which the message says
NO_FAILURE = (
    "slow",
    "not run",
    "UnsupportedError: saving",
)
# relative to the largest element (inductor leaves bfloat16 numbers between fused operators as wide as they were), for programs of a few dozen operators whose rounding errors grow with them; the aten backend has eager's bits
# but in the gradients of products of elements (docs/graph.md), and where options change the program
# of the first that the program or its dtype has
TOLERANCE = {
    "dtype=torch.bfloat16": 0.05,
    "bfloat16": 4e-3,
    "float32": 1e-3,
    ".float()": 1e-3,
    "": 1e-8,
}


def difference(program, backend, dtype, options="", reopen=False):
    """The first difference between eager and the graph, or None."""
    torch.set_default_dtype(dtype)
    tolerance = next(t for name, t in TOLERANCE.items() if name in f"{program.source()} dtype={dtype}")
    try:
        expected = train(*program.load(), STEPS, reopen=reopen)
    except (
        Exception
    ) as error:  # generated for the values of its seed: with other values a size or an index may be invalid
        return f"not run: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    try:
        actual = train(*program.load(), STEPS, backend, options, reopen)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    for name, e in expected.items():
        f = actual.get(name)
        if f is None or f.shape != e.shape or f.dtype != e.dtype:
            return f"{name}: {tuple(e.shape)} {e.dtype} in eager, {f if f is None else (tuple(f.shape), f.dtype)} in the graph"
        if torch.equal(e, f) or e.numel() == 0:
            continue
        wide = torch.complex128 if e.is_complex() else torch.float64
        e, f = e.to(wide), f.to(wide)
        apart = ((e - f).abs() / (1 + e.abs().nan_to_num().max())).max().item()
        same_nan = torch.equal(e.isnan(), f.isnan())
        if (
            not same_nan
            or (backend == "aten" and not options and "prod(" not in program.source())
            or apart > tolerance
        ):
            return f"{name}: {apart:.3g} apart (relative to the largest), first {e.flatten()[0]:.8g} in eager, {f.flatten()[0]:.8g} in the graph"
    return None


def in_child(function, limit):
    """The function's result, computed in a separate process; "crash ..." or "slow" if there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read)
        warnings.simplefilter("ignore")
        try:
            result = function()
        except BaseException as error:
            result = error
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], limit)
        data = pipe.read() if ready else None
    if data is None:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if data is None:
        return "slow"
    if not data:
        return f"crash: signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "crash"
    result = pickle.loads(data)
    if isinstance(result, BaseException):
        raise result
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:50", help="first:end")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32", "bfloat16"])
    parser.add_argument("--length", type=int, default=24, help="statements of a program")
    parser.add_argument("--sizes", default="1,2,3,4,5,7,8,16,17", help="what sizes are drawn from")
    parser.add_argument("--unknown", action="store_true", help="programs with sizes that depend on values")
    parser.add_argument(
        "--branches", action="store_true", help="programs with branches that depend on values"
    )
    parser.add_argument(
        "--options",
        default="",
        help="statements on `graph`, such as graph.config.set_gradient_accumulation_steps(2)",
    )
    parser.add_argument(
        "--reopen",
        action="store_true",
        help="save each graph before its last call, which what is loaded takes",
    )
    parser.add_argument("--limit", type=float, default=240, help="seconds a program may take")
    parser.add_argument("--shrink", type=float, default=600, help="seconds to make a failing program smaller")
    parser.add_argument("--out", default="fuzz_output")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    check = lambda program: in_child(
        lambda: difference(program, args.backend, dtype, args.options, args.reopen), args.limit
    )
    first, end = map(int, args.seeds.split(":"))
    outcomes, progress = collections.Counter(), Progress("fuzz", "programs", end - first, 10)
    for seed in range(first, end):
        begin = time.time()
        program = in_child(
            lambda: draw_program(
                seed, args.length, tuple(map(int, args.sizes.split(","))), args.unknown, args.branches
            ),
            args.limit,
        )
        if isinstance(program, str):
            print(f"{seed}: not run: eager has a {program} while it is drawn", flush=True)
            outcomes["not run"] += 1
            progress.add()
            continue
        said = check(program)
        outcomes["equal" if not said else "no failure" if said.startswith(NO_FAILURE) else "different"] += 1
        if said:
            print(
                f"{seed}: {said} ({len(program.statements)} statements, {time.time() - begin:.0f} s)",
                flush=True,
            )
        if said and not said.startswith(NO_FAILURE):
            small = shrink(program, check, args.shrink)
            path = Path(args.out) / f"seed{seed}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                script(small, check(small) or said, STEPS, args.backend, dtype, args.options, args.reopen)
            )
            print(f"  {len(small.statements)} statements: {path}", flush=True)
    print(
        f"{end - first} programs: "
        + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    )
    return 1 if outcomes["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
