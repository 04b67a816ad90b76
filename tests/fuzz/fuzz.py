"""Random training programs, eager against nn.Graph.

    python tests/fuzz/fuzz.py --backend inductor --seeds 0:100

Each program is generated from its seed and trains three steps in eager mode and in a graph, in a separate
process. Results, gradients, parameters, buffers, inputs, optimizer state and random state must agree. With
--programs memory the programs are small and write memory in place. With --group N, N programs compile in one
graph, and a program that fails there is repeated alone. A failing program is shrunk and written to --out as a
script. The exit status is 1 if any program failed.
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib
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
from grouping import programs_keep_their_constants
from memory_programs import draw_memory_program
from shrinking import group_script, script, shrink, shrink_group
from training import Step, Trainee, train

from oneflow._graph.compile.inductor.out_of_reach import out_of_reach
from oneflow._graph.errors import CaptureError
from oneflow_autotest.summary import Progress

STEPS = 3
# A program that decides by values is not saved, which the message says.
NO_FAILURE = (
    "slow",
    "not compiled",
    "not captured",  # such a call runs in eager mode, unless the graph says otherwise
    "not run",
    "rounding",
    "UnsupportedError: saving",
)
ALONE = "sizes depend on values"  # a program that is compiled in parts, and never in one graph with others
# What the proof says of a compiled program. If that program equals eager, the proof is wrong.
REFUSAL = "the compiled program is wrong"
# Relative to the largest element. A program has a few dozen operators, and inductor leaves bfloat16 values
# between fused operators as wide as they were. The first name that the program or its dtype contains decides.
TOLERANCE = {
    "dtype=torch.bfloat16": 0.05,
    "dtype=torch.float16": 0.01,
    "bfloat16": 4e-3,
    "float32": 1e-3,
    ".float()": 1e-3,
    "": 1e-8,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the graphs of a run have in common."""

    backend: str
    dtype: torch.dtype
    options: str = ""
    reopen: bool = False

    def is_exact(self, program):
        """Whether eager's bits are promised; the gradient of cumprod has others (docs/graph/values.md)."""
        return self.backend == "aten" and not self.options and "cumprod(" not in program.source()


def differences(programs, settings):
    """The first difference between eager and the graph of each program that has one, by its position; or why
    there is no graph.
    """
    torch.set_default_dtype(settings.dtype)
    said = {i: problem for i, p in enumerate(programs) if (problem := eager_problem(p, settings))}
    if settings.backend != "aten" and len(programs) > 1:
        said |= {i: kind for i, p in enumerate(programs) if i not in said and (kind := apart_from_group(p))}
    rest = [i for i in range(len(programs)) if i not in said]
    if not rest:
        return said
    expected = train([programs[i].load() for i in rest], STEPS, reopen=settings.reopen)
    try:
        with programs_keep_their_constants() if len(rest) > 1 else contextlib.nullcontext():
            actual = train(
                [programs[i].load() for i in rest], STEPS, settings.backend, settings.options, settings.reopen
            )
    except Exception as error:
        kind = "not compiled" if "runs on the aten backend" in str(error) else type(error).__name__
        kind = "not captured" if isinstance(error, CaptureError) else kind
        return f"{kind}: {' '.join(str(error).split())[:400]}"
    for i, e, f in zip(rest, expected, actual):
        tolerance = tolerance_for(programs[i], settings)
        different = first_difference(e, f, tolerance)
        if different and tolerance and is_rounding(programs[i], different, e, f, settings):
            said[i] = f"rounding: {different}"
        elif different:
            said[i] = str(different)
    return said


def is_rounding(program, different, expected, actual, settings):
    """Whether eager mode differs as much after a change of the program's numbers in their last digits, or
    eager mode in float32 gives what the graph gives in a half type: inductor leaves values wide.
    """
    name = different.name
    if different.apart is None:
        return False
    nearby = nearby_values(program, nudged, settings)[name]
    if nearby.shape == expected[name].shape:
        if different.apart <= 10 * largest_error(expected[name], nearby):
            return True
    if settings.dtype not in (torch.float16, torch.bfloat16):
        return False
    with default_dtype(torch.float32):
        wide = nearby_values(program, widened, settings)[name]
    return wide.shape == actual[name].shape and largest_error(wide, actual[name]) <= different.apart / 10


def nearby_values(program, change, settings):
    """What eager mode computes, by name, with other parameters, buffers and inputs."""
    with default_dtype(settings.dtype):
        module, inputs, training, losses = program.load()
    if change is widened:
        module.float()
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            value.copy_(change(value))

    def changed_inputs():
        with default_dtype(settings.dtype):
            return [change(x) for x in inputs()]

    return train([(module, changed_inputs, training, losses)], STEPS, reopen=settings.reopen)[0]


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def widened(value):
    return value.float() if value.is_floating_point() else value


def nudged(value):
    """A tensor whose elements are up to one unit in the last place away, of integers the same."""
    if not (value.is_floating_point() or value.is_complex()):
        return value
    signs = torch.arange(value.numel()).cos().sign().reshape(value.shape)
    return value + value * signs * torch.finfo(value.dtype).eps


def eager_problem(program, settings):
    """Why eager does not train the program, which is generated for the values of its seed: with other values
    a size or an index may be invalid.
    """
    try:
        train([program.load()], STEPS, reopen=settings.reopen)
    except Exception as error:
        return f"not run: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def apart_from_group(program):
    """Why a program is not compiled in one graph with others: it keeps its group from being compiled, wholly
    or but for short parts.
    """
    try:
        trainee = Trainee(*program.load())
        step = Step([trainee], "aten", "")
        step([trainee.inputs()])
    except CaptureError as error:
        return f"not captured: {' '.join(str(error).split())[:200]}"
    except Exception:
        return None  # the comparison says what is wrong
    if out_of_reach(step.program.graph) is not None:
        return "not compiled"
    return ALONE if step.program.unknown_sizes else None


def tolerance_for(program, settings):
    """The relative error of a value that is no failure; 0 where eager's bits are promised."""
    text = f"{program.source()} dtype={settings.dtype}"
    return 0 if settings.is_exact(program) else next(t for name, t in TOLERANCE.items() if name in text)


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first value that differs, and by how much; None if by its shape or dtype."""

    name: str
    said: str
    apart: float | None = None

    def __str__(self):
        return f"{self.name}: {self.said}"


def first_difference(expected, actual, tolerance):
    for name, e in expected.items():
        f = actual.get(name)
        if f is None or f.shape != e.shape or f.dtype != e.dtype:
            described = f if f is None else (tuple(f.shape), f.dtype)
            return Difference(name, f"{tuple(e.shape)} {e.dtype} in eager, {described} in the graph")
        if torch.equal(e, f) or e.numel() == 0:
            continue
        apart = largest_error(e, f)
        if apart > (0 if "random state" in name else tolerance):
            first, other = e.flatten()[0], f.flatten()[0]
            return Difference(
                name,
                f"{apart:.3g} apart (relative to the largest), first {first:.8g} in eager, {other:.8g} in"
                " the graph",
                None if "random state" in name else apart,
            )
    return None


def largest_error(expected, actual):
    """The largest distance of two elements, relative to the largest element and 1."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    e, f = expected.to(wide), actual.to(wide)
    unequal = ~((e == f) | (e.isnan() & f.isnan()))
    if not unequal.any():
        return 0.0
    error = (e - f).abs() / (1 + e[e.isfinite()].abs().max() if e.isfinite().any() else 1)
    return error[unequal].nan_to_num(float("inf")).max().item()


def difference(program, backend, dtype, options="", reopen=False):
    """The first difference between eager and the graph of one program, or None."""
    said = differences([program], Settings(backend, dtype, options, reopen))
    return said if isinstance(said, str) else said.get(0)


def in_child(function, limit):
    """The function's result, computed in a separate process; "crash ..." or "slow" if there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(read)
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", f".*{REFUSAL}")  # a refusal is a difference
        # a group with a program that does not compile is halved until that program is alone
        warnings.filterwarnings("error", ".*runs on the aten backend")
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


class Run:
    """Compares programs in child processes, prints what differs, and writes the scripts."""

    def __init__(self, settings, args):
        self.settings, self.args = settings, args
        self.outcomes = collections.Counter()
        self.folder = Path(args.out)

    def check(self, *programs):
        """What `differences` says, or that the process ended or was slow."""
        limit = self.args.limit * (1 + len(programs) / 8)
        return in_child(lambda: differences(programs, self.settings), limit)

    def check_alone(self, program):
        said = self.check(program)
        return said if isinstance(said, str) else said.get(0)

    def compare(self, programs):
        """Compare a group. A group without a graph is halved until the programs that prevent it are alone."""
        said = self.check(*programs)
        if isinstance(said, str) and len(programs) > 1:
            print(f"no graph of {len(programs)} programs: {said[:200]}", flush=True)
            half = len(programs) // 2
            self.compare(programs[:half])
            self.compare(programs[half:])
            return
        if isinstance(said, str):
            said = {0: said}
        for i, program in enumerate(programs):
            if said.get(i) == ALONE:
                self.compare([program])
            else:
                self.report(program, said.get(i), programs)

    def report(self, program, said, group):
        failed = said and not said.startswith(NO_FAILURE)
        if failed and REFUSAL in said and not self.is_different_without_proof(program):
            self.outcomes["false alarm of the proof"] += 1
            print(f"{program.seed}: a false alarm: {said}", flush=True)
            self.write(f"alarm{program.seed}", script(program, said, STEPS, self.settings))
            return
        self.outcomes["different" if failed else "no failure" if said else "equal"] += 1
        if said:
            print(f"{program.seed}: {said} ({len(program.statements)} statements)", flush=True)
        if not failed:
            return
        alone = self.check_alone(program) if len(group) > 1 else said
        if alone and not alone.startswith(NO_FAILURE):
            small = shrink(program, self.check_alone, self.args.shrink)
            self.write(
                f"seed{program.seed}", script(small, self.check_alone(small) or alone, STEPS, self.settings)
            )
        else:
            small = shrink_group(program, group, self.check, self.args.shrink)
            print(
                f"  equal alone, different beside {', '.join(str(p.seed) for p in small if p is not program)}"
            )
            self.write(f"group{program.seed}", group_script(small, said, STEPS, self.settings))

    def is_different_without_proof(self, program):
        """Whether the compiled program that the proof refused differs from eager by more than rounding."""
        settings = dataclasses.replace(
            self.settings, options=self.settings.options + "\ngraph.config.verify('never')"
        )
        said = in_child(lambda: differences([program], settings), self.args.limit)
        return said if isinstance(said, str) else said.get(0)

    def write(self, name, text):
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.py"
        path.write_text(text)
        print(f"  {path}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:50", help="first:end, or seeds with commas")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32", "bfloat16", "float16"])
    parser.add_argument("--programs", default="networks", choices=["networks", "memory"])
    parser.add_argument("--group", type=int, default=1, help="programs of one graph")
    parser.add_argument("--length", type=int, help="statements of a program")
    parser.add_argument("--sizes", default="1,2,3,4,5,7,8,16,17", help="what sizes are drawn from")
    parser.add_argument("--random", action="store_true", help="memory programs with random numbers")
    parser.add_argument("--unknown", action="store_true", help="networks with sizes that depend on values")
    parser.add_argument(
        "--branches", action="store_true", help="networks with branches that depend on values"
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--shrink", type=float, default=600, help="seconds to make a failing program smaller")
    parser.add_argument("--out", default="fuzz_output")
    return parser.parse_args()


def seeds_of(text):
    if ":" in text:
        return range(*map(int, text.split(":")))
    return [int(seed) for seed in text.split(",")]


def draw(seed, args):
    sizes = tuple(map(int, args.sizes.split(",")))
    if args.programs == "memory":
        return draw_memory_program(seed, args.length or 8, sizes, args.random)
    return draw_program(seed, args.length or 24, sizes, args.unknown, args.branches)


def draw_group(seeds, args):
    """The programs of the seeds, made in one child process, or alone if a program ends it."""
    programs = in_child(lambda: [draw(seed, args) for seed in seeds], args.limit)
    if isinstance(programs, str):
        programs = [in_child(lambda: draw(seed, args), args.limit) for seed in seeds]
    return programs


def import_in_parent(settings):
    """Do imports once that every child would repeat. Nothing compiles here: a child has none of the
    threads.
    """
    differences([draw_memory_program(0)], Settings("aten", settings.dtype))
    if settings.backend != "aten":
        importlib.import_module("torch._inductor.compile_fx")


def main():
    args = arguments()
    dtype = getattr(torch, args.dtype)
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    run = Run(Settings(args.backend, dtype, args.options, args.reopen), args)
    import_in_parent(run.settings)
    seeds, end = seeds_of(args.seeds), time.monotonic() + args.seconds
    progress = Progress("fuzz", "programs", len(seeds), 10)
    for first in range(0, len(seeds), args.group):
        if time.monotonic() > end:
            print(f"stopped: continue with --seeds {seeds[first]}:{seeds[-1] + 1}")
            break
        group = seeds[first : first + args.group]
        programs = draw_group(group, args)
        for seed, program in zip(group, programs):
            if isinstance(program, str):
                print(f"{seed}: not run: eager has a {program} while it is drawn", flush=True)
                run.outcomes["not run"] += 1
        if programs := [p for p in programs if not isinstance(p, str)]:
            run.compare(programs)
        progress.add(len(group))
    print(
        f"{sum(run.outcomes.values())} programs: "
        + ", ".join(f"{count} {outcome}" for outcome, count in sorted(run.outcomes.items()))
    )
    return 1 if run.outcomes["different"] or run.outcomes["false alarm of the proof"] else 0


if __name__ == "__main__":
    sys.exit(main())
