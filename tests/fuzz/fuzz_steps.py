"""Compare random training steps, compiled with `flow.compile_step`, with eager mode: `make fuzz-steps`.

    python tests/fuzz/fuzz_steps.py --seeds 0:200               # random combinations of pieces
    python tests/fuzz/fuzz_steps.py --seeds 0:406 --alone       # each piece, model and optimizer alone
    python tests/fuzz/fuzz_steps.py --seeds 17:18 --verbose     # one program with its source
    python tests/fuzz/fuzz_steps.py --seeds 0:1 --pieces queue acc --model bn --location dict
    python tests/fuzz/fuzz_steps.py --seeds 0:20 --backend inductor

A program runs twice in eager mode and once compiled. After each of six calls, the fuzzer compares all that
the program can reach: variables, modules, optimizers, results, random generators, settings and files.

A program has one of these verdicts:

- program: equal, without a warning of eager mode;
- eager: equal, and a warning says why no program can hold the step;
- warned: the runs differ, and a warning of this package said so;
- DIFFER: the runs differ;
- CRASH: only the compiled step raises;
- unstable: the two eager runs differ;
- invalid: the program does not start in eager mode;
- skipped: under inductor, where values are compared within rounding, rounding might choose a branch.

The fuzzer shrinks a failing program to the fewest pieces, and writes it as a script.
"""

import argparse
import collections
import gc
import hashlib
import inspect
import re
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import step_worlds
import torch
from random_steps import LOCATIONS, MODELS, OPTIMIZERS, PIECES, Plan, plan_of_one_piece, sample_plan

from oneflow_autotest.summary import Progress

VERDICTS = ("program", "eager", "warned", "DIFFER", "CRASH", "unstable", "invalid", "skipped")
_EAGER = "runs in eager mode"
# A step is cut by lines, so that its source must stay on disk.
_SOURCES = tempfile.TemporaryDirectory(prefix="fuzz_steps")


@dataclass(frozen=True)
class Verdict:
    """The outcome of one program, and the facts that say why."""

    name: str
    details: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.name.isupper()


def write_source(text: str) -> Path:
    path = Path(_SOURCES.name) / f"step_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    path.write_text(text, encoding="utf-8")
    return path


def reasons_of(messages) -> tuple[str, ...]:
    """The warnings without the sentences that all of them share."""
    lines = (" | ".join(line.strip() for line in text.splitlines() if line.strip()) for text in messages)
    shared = r"no program can hold this call, so it runs in eager mode, with the same result: "
    return tuple(dict.fromkeys(re.sub(shared, "", line)[:400] for line in lines))


def differences_of(difference) -> tuple[str, ...]:
    call, facts = difference
    lines = [
        f"{path}: {step_worlds.describe(first)} in eager mode, {step_worlds.describe(second)} compiled"
        for path, (first, second) in facts.items()
    ]
    rest = [f"and {len(lines) - 4} more facts"] if len(lines) > 4 else []
    return (f"after call {call}:", *lines[:4], *rest)


def judge(plan: Plan, backend: str = "aten") -> Verdict:
    """Run one program in eager mode twice and compiled once."""
    near = backend != "aten"
    if near and plan.branches_on_values():
        return Verdict("skipped")
    path = write_source(plan.source())
    try:
        eager = step_worlds.run_program(path, plan.seed)
        again = step_worlds.run_program(path, plan.seed)
    except Exception as error:
        return Verdict("invalid", (f"{type(error).__name__}: {error}",))
    difference = step_worlds.find_differences(eager, again)
    if difference:
        return Verdict("unstable", tuple(list(difference[1])[:4]))
    try:
        compiled = step_worlds.run_program(path, plan.seed, backend)
    except Exception:
        return Verdict("CRASH", (traceback.format_exc(),))
    return compare(eager, compiled, near)


def compare(eager, compiled, near: bool) -> Verdict:
    of_eager = set(eager.messages)
    messages = [text for text in compiled.messages if text not in of_eager]
    for call, error in compiled.errors.items():
        if call not in eager.errors:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            return Verdict("CRASH", (f"call {call}", text, *reasons_of(messages)))
    difference = step_worlds.find_differences(eager, compiled, near)
    if difference:
        named = any(text.startswith("graph ") and _EAGER not in text for text in messages)
        return Verdict("warned" if named else "DIFFER", (*differences_of(difference), *reasons_of(messages)))
    return Verdict("eager" if any(_EAGER in text for text in messages) else "program", reasons_of(messages))


def shrink(plan: Plan, check, seconds: float = 120.0) -> Plan:
    """The plan with the fewest pieces, and the plainest model, optimizer and location, that fails `check`."""
    end = time.monotonic() + seconds

    def fails(smaller):
        return time.monotonic() < end and check(smaller)

    half = len(plan.pieces) // 2
    for pieces in (plan.pieces[:half], plan.pieces[half:]) if half > 1 else ():
        if fails(replace(plan, pieces=pieces)):
            plan = replace(plan, pieces=pieces)
            break
    for name in plan.pieces:
        smaller = replace(plan, pieces=tuple(piece for piece in plan.pieces if piece != name))
        if fails(smaller):
            plan = smaller
    for attribute, plain in (
        ("model", "mlp"),
        ("optimizer", "sgd"),
        ("location", "global"),
        ("detaches", True),
    ):
        if getattr(plan, attribute) != plain and fails(smaller := replace(plan, **{attribute: plain})):
            plan = smaller
    return plan


def script(plan: Plan, verdict: Verdict, backend: str) -> str:
    """A file that shows the difference, with nothing of this folder."""
    source = plan.source()
    assert "'''" not in source + str(plan), "the program is a string between three quotes"
    details = "\n".join(verdict.details).replace("\\", "/").replace('"""', "'''")
    worlds = inspect.getsource(step_worlds).replace(f'"""{step_worlds.__doc__}"""', "", 1).strip()
    return f'''"""{verdict.name}, backend {backend}, seed {plan.seed}: {plan}

{details[-1500:]}
"""

{worlds}


PROGRAM = r\'\'\'{source}\'\'\'


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.py")
        path.write_text(PROGRAM)
        eager, compiled = (run_program(path, {plan.seed}, backend) for backend in (None, {backend!r}))
    for message in compiled.messages:
        print("warning:", message)
    for call in compiled.errors.keys() - eager.errors.keys():
        print("only the compiled step raises, in call", call, repr(compiled.errors[call]))
    difference = find_differences(eager, compiled, {backend != "aten"})
    if difference:
        print("they differ after call", difference[0])
        for name, (first, second) in difference[1].items():
            print(f"  {{name}}: {{describe(first)}} in eager mode, {{describe(second)}} compiled")
    raise SystemExit(bool(difference))
'''


def report(plan: Plan, verdict: Verdict, backend: str, out: Path, seconds: float) -> Path:
    """Shrink a failure and write its script; return the script's path."""

    verdicts = {plan: verdict}

    def check(smaller):
        verdicts[smaller] = judge(smaller, backend)
        return verdicts[smaller].name == verdict.name

    smallest = shrink(plan, check, seconds)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"step_{backend}_{plan.seed}.py"
    path.write_text(script(smallest, verdicts[smallest], backend), encoding="utf-8")
    print(f"  shrunk to: {smallest}\n  script: {path}", flush=True)
    return path


def run_all(
    plans, backend="aten", out=Path("fuzz_output"), seconds=float("inf"), shrink_seconds=120.0, verbose=False
):
    """{piece: Counter of verdicts}, {verdict: programs}, and the plans that failed."""
    table, totals, failures = collections.defaultdict(collections.Counter), collections.Counter(), []
    end, progress = time.monotonic() + seconds, Progress("fuzz_steps", "programs", len(plans), 10)
    for count, plan in enumerate(plans):
        if time.monotonic() > end:
            break
        if verbose:
            print(plan.source())
        verdict = judge(plan, backend)
        totals[verdict.name] += 1
        for name in plan.names():
            table[name][verdict.name] += 1
        if verbose or verdict.name not in ("program", "skipped"):
            print(f"{plan.seed} {verdict.name}: {plan}", *verdict.details, sep="\n    ", flush=True)
        if verdict.failed:
            failures.append(plan)
            report(plan, verdict, backend, out, min(shrink_seconds, max(end - time.monotonic(), 1.0)))
        if count % 20 == 19:
            gc.collect()
        progress.add()
    return table, totals, failures


def print_table(table, totals):
    """A row for each piece."""
    print("| piece | " + " | ".join(VERDICTS) + " |")
    print("|---" * (1 + len(VERDICTS)) + "|")
    for name, counts in [*sorted(table.items()), ("**programs**", totals)]:
        print(f"| {name} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")


def chosen_plans(options) -> list[Plan]:
    """The plans of the seeds, with what the arguments fix."""
    sample = plan_of_one_piece if options.alone else sample_plan
    plans = [sample(seed) for seed in range(*map(int, options.seeds.split(":")))]
    fixed = {
        name: value
        for name in ("model", "optimizer", "location")
        if (value := getattr(options, name)) is not None
    }
    if options.pieces is not None:
        fixed["pieces"] = tuple(options.pieces)
    return [replace(plan, **fixed) for plan in plans]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:100", help="A:B")
    parser.add_argument("--backend", default="aten", choices=("aten", "inductor"))
    parser.add_argument("--alone", action="store_true", help="seeds count the pieces, and each runs alone")
    parser.add_argument("--pieces", nargs="*", choices=[*PIECES], metavar="PIECE", help="run these pieces")
    parser.add_argument("--model", choices=[*MODELS])
    parser.add_argument("--optimizer", choices=[*OPTIMIZERS])
    parser.add_argument("--location", choices=LOCATIONS, help="where the program keeps its state")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--shrink-seconds", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=Path("fuzz_output"))
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table, totals, failures = run_all(
        chosen_plans(options),
        options.backend,
        options.out,
        options.seconds,
        options.shrink_seconds,
        options.verbose,
    )
    print_table(table, totals)
    print(f"{sum(totals.values())} programs, {len(failures)} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
