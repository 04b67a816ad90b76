"""The parity suite: every documented name of OneFlow, against torch.

    python tests/parity/run.py [--jobs N] [--out parity_output] [--only REGEX] [--update-baseline]

writes parity.json and parity.html, and compares with baseline.json: a cell that got worse
fails the run; one that got better asks for `--update-baseline`.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from oneflow._method import own_attribute
from oneflow_autotest.parity import page, snippets, table
from oneflow_autotest.summary import Progress


def names():
    return [n for n in json.loads((HERE / "names.json").read_text())]


def resolve(lib, path):
    member = lib
    for part in path.split("."):
        member = getattr(member, part, None)
    return member


def explainer():
    """name -> ids of the documented differences that are about it."""
    from oneflow._tables.differences import DIFFERENCES

    known = {}
    for id, row in DIFFERENCES.items():
        for name in row["names"]:
            known.setdefault(name, []).append(id)
    return lambda name: ", ".join(known.get(name, known.get(name.replace("oneflow.Tensor.", "oneflow."), [])))


class Suite:
    def __init__(self, backend="aten"):
        import torch

        import oneflow
        from oneflow_autotest.pair import Pair
        from oneflow_autotest.parity.checks import Checker

        self.flow, self.torch = oneflow, torch
        self.checker = Checker(Pair(torch, oneflow, ("torch", "oneflow")), explainer(), backend)

    def row(self, name, kind):
        from oneflow_autotest.parity import samples

        group, short = name.rpartition(".")[0], name.removeprefix("oneflow.")
        row = table.new_row(name, group)
        from written import LEFT_OUT, WRITTEN

        method = short.removeprefix("Tensor.") if short.startswith("Tensor.") else None
        op = samples.operators().get(method or short) or (
            samples.operators().get(method[:-1]) if method and method.endswith("_") else None
        )
        info = (
            samples.modules().get(short.removeprefix("nn."))
            if short.count(".") == 1 and short.startswith("nn.")
            else None
        )
        if name in WRITTEN:
            self.written(row, WRITTEN[name])
        elif info is not None:
            row["scripts"]["identity"] = identity_snippet(self.torch, short)
            self.checker.module(row, info, resolve(self.torch, short), resolve(self.flow, short))
        elif op is not None:
            self.operator(row, op, short, method)
        if not table.executed(row):
            row["cells"].clear()
            row["left_out"] = next((why for pattern, why in LEFT_OUT if re.search(pattern, name)), "no case")
        return row

    def operator(self, row, op, short, method):
        torch, flow = self.torch, self.flow
        paths = [path for path in (method or short, op.name, f"Tensor.{op.name}") if function_of(torch, path)]
        plain = function_of(torch, paths[0]) if paths else op.op
        reference_call = f"torch.{paths[0]}" if paths else None
        row["scripts"]["identity"] = identity_snippet(torch, short)
        if method is None:
            return self.checker.function(
                row, op, plain, resolve(flow, short), (reference_call, f"flow.{short}")
            )
        own = own_attribute(flow.Tensor, method)
        if method.endswith("_") and not op.name.endswith("_"):
            of = function_of(torch, op.name) or getattr(torch.Tensor, op.name, None)
            if of is None:  # in-place only
                self.checker.function(row, op, op.op, own, in_place_call(torch, method))
            else:
                reference = of if method in RESHAPING else fitting(of)
                self.checker.function(
                    row,
                    op,
                    reference,
                    lambda t, *a, **k: own(t.clone(), *a, **k),
                    in_place_call(torch, method),
                )
            return self.method_identity(row, own)
        self.checker.function(row, op, plain, own, (reference_call, f"flow.Tensor.{method}"))
        self.method_identity(row, own)

    def method_identity(self, row, own):
        """A method is torch's unless our tables put it there; the eager cell holds it against the function."""
        if "identity" in row["cells"]:
            ours = hasattr(own, "__oneflow_original__") or str(getattr(own, "__module__", "")).startswith(
                "oneflow"
            )
            table.put(row, "identity", "own" if ours else "same")

    def written(self, row, code):
        """An expression on both libraries (or ours against its reference), and as a graph."""
        from helpers import evaluate, helpers_of

        from oneflow_autotest.parity.table import Failure

        checker = self.checker
        ours, reference = code if isinstance(code, tuple) else (code, code)
        short = row["name"].removeprefix("oneflow.")
        uses = helpers_of(ours, reference)
        scripts = {
            column: snippets.expression_snippet("oneflow", (reference, ours), uses, column)
            for column in ("eager", "gradient", "graph")
        }
        row["scripts"] |= scripts | {"identity": identity_snippet(self.torch, short)}
        there = resolve(self.torch, short)
        table.put(
            row, "identity", "same" if there is not None and there is resolve(self.flow, short) else "own"
        )

        def eager():
            expected, _ = evaluate(reference, self.torch)
            try:
                actual, _ = evaluate(ours, self.flow)
            except Exception as e:
                raise Failure(f"raised {type(e).__name__}: {str(e)[:300]}", scripts["eager"]) from None
            checker.same(plain(expected), plain(actual), "the result", scripts["eager"])
            return True

        def gradient():
            pairs = []
            for text, lib in ((reference, self.torch), (ours, self.flow)):
                out, sampled = evaluate(text, lib)
                leaves = unique([t for t in sampled if t.requires_grad])
                pairs.append(checker.backward(out, leaves))
            if pairs[0] is None or len(pairs[0]) != len(pairs[1] or []):
                return None
            checker.same(pairs[0], pairs[1], "the gradient", scripts["gradient"])
            return True

        def graph():
            out, sampled = evaluate(ours, self.flow)
            if not tensors_in(out) or any(
                w in ours
                for w in (
                    "backward",
                    "manual(",
                    "hooked",
                    "kept",
                    "graded",
                    "trained",
                    "clipped",
                    "set_",
                    "to_global",
                )
            ):
                return None
            checker.graph_of(row, lambda *a: evaluate(ours, self.flow, a)[0], sampled, (), scripts["graph"])
            return True

        checker.cell(row, "reference" if isinstance(code, tuple) else "eager", eager)
        checker.cell(row, "gradient", gradient)
        checker.cell(row, "graph", graph)
        table.put(row, "cpu", table.status(row, "reference" if isinstance(code, tuple) else "eager"))


def plain(x):
    """Results such as dtypes and devices by their names, so that two libraries' can be compared."""
    if isinstance(x, (tuple, list)):
        return type(x)(plain(e) for e in x) if type(x) in (tuple, list) else [plain(e) for e in x]
    return str(x) if type(x).__name__ in ("dtype", "device") else x


def identity_snippet(torch, short):
    """A script that shows whether the name is torch's own object."""
    shown = f"oneflow.{short} is torch.{short}" if resolve(torch, short) is not None else f"oneflow.{short}"
    return f"import oneflow\nimport torch\n\nprint({shown})\n"


def in_place_call(torch, method):
    """Source text of an in-place method of both libraries, on a copy because a leaf that requires a gradient cannot be written."""
    call = "(lambda t, *args, **kwargs: {}.Tensor." + method + "(t.clone(), *args, **kwargs))"
    return call.format("torch") if hasattr(torch.Tensor, method) else None, call.format("flow")


def golden_snippet(record):
    """A script that replays one recorded call; it runs in the root of the repository, where the recorded numbers are."""
    comment = "".join(f"# {line}\n" for line in record["code"].splitlines())
    return (
        f"{comment}import runpy\nimport sys\n\nsys.argv = ['replay.py', 'oneflow', '-v', '--only', {'^' + re.escape(record['id']) + '$'!r}]\n"
        "runpy.run_path('tests/golden/calls/replay.py', run_name='__main__')\n"
    )


RESHAPING = ("squeeze_", "unsqueeze_", "as_strided_", "t_", "transpose_", "swapaxes_", "swapdims_")


def function_of(lib, path):
    function = resolve(lib, path)
    return function if callable(function) else None


def fitting(function):
    """The out-of-place function, refusing where an in-place one cannot store the result; comparisons store 0 and 1."""
    import torch

    def run(t, *args, **kwargs):
        out = function(t, *args, **kwargs)
        out = out.to(t.dtype) if out.dtype == torch.bool else out
        if out.shape != t.shape or out.dtype != t.dtype:
            raise RuntimeError("the result does not fit into the tensor")
        return out

    return run


def tensors_in(x):
    from oneflow_autotest.parity.samples import tensors

    return tensors(x)


def unique(tensors):
    out = []
    for t in tensors:
        if not any(t is u for u in out):
            out.append(t)
    return out


def golden(rows):
    """The calls recorded from real OneFlow, for each name they mention."""
    file = HERE.parent / "core" / "test_golden_calls.py"
    if not file.exists():
        return
    spec = importlib.util.spec_from_file_location("golden_calls", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = {r["name"]: r for r in rows}
    outcomes = {}
    for key, record in module.CASES.items():
        with contextlib.redirect_stdout(io.StringIO()):
            wrong = module.problems(key)
        status = "pass" if not wrong else "differs" if key in module.WHY else "fail"
        detail = "" if not wrong else f"{module.WHY.get(key, '')}: {record['code']}: {wrong[0]}"[:300]
        for name in mentioned(record["code"]):
            if name in known:
                outcomes.setdefault(name, []).append((status, detail, golden_snippet(record)))
    for name, results in outcomes.items():
        worst = min(results, key=lambda r: table.RANK[r[0]])
        table.put(known[name], "golden", worst[0], worst[1] or f"{len(results)} recorded calls", worst[2])
        known[name]["left_out"] = ""  # the recorded calls are its case


def mentioned(code):
    out = {f"oneflow.{n}" for n in re.findall(r"\bflow\.([A-Za-z_][\w.]*)", code)}
    out |= {f"oneflow.nn.functional.{n}" for n in re.findall(r"\bF\.(\w+)", code)} | {
        f"oneflow.nn.{n}" for n in re.findall(r"\bnn\.(\w+)", code)
    }
    return out | {f"oneflow.Tensor.{n}" for n in re.findall(r"\)\.(\w+)\(", code)}


def shard(args):
    """One part of the rows, as JSON on the way; progress on stderr."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    suite, rows = Suite(args.backend), []
    for name, kind, _ in wanted(args)[args.shard :: args.jobs]:
        try:
            rows.append(suite.row(name, kind))
        except Exception as e:
            row = table.new_row(name, name.rpartition(".")[0])
            table.put(row, "eager", "fail", f"the suite raised {type(e).__name__}: {e}")
            rows.append(row)
        print("\x01", end="", flush=True)
    table.save(rows, Path(args.out) / f"shard{args.shard}.json")


def wanted(args):
    return [n for n in names() if not args.only or re.search(args.only, n[0])]


def run(args):
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    progress = Progress("parity", "names", len(wanted(args)), 100)
    base = [
        sys.executable,
        __file__,
        "--out",
        str(out),
        "--jobs",
        str(args.jobs),
        "--backend",
        args.backend,
    ] + (["--only", args.only] if args.only else [])
    parts = [
        subprocess.Popen(
            base + ["--shard", str(i)], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for i in range(args.jobs)
    ]
    import selectors

    watch = selectors.DefaultSelector()
    for p in parts:
        watch.register(p.stdout, selectors.EVENT_READ)
    while watch.get_map():
        for key, _ in watch.select():
            got = os.read(key.fd, 4096)
            if not got:
                watch.unregister(key.fileobj)
            progress.add(got.count(b"\x01"))
    if any(p.wait() for p in parts):
        raise SystemExit("a shard of the parity suite did not finish")
    rows = [r for i in range(args.jobs) for r in table.load(out / f"shard{i}.json")]
    golden(rows)
    for i in range(args.jobs):
        (out / f"shard{i}.json").unlink()
    rows.sort(key=lambda r: r["name"])
    table.save(rows, out / "parity.json")
    page.write(rows, out / "parity.html", title="OneFlow on PyTorch: parity")
    return report(rows, args)


def report(rows, args):
    counts, executed = table.counts(rows)
    print(
        f"{len(rows)} documented names, {executed} run, {len(rows) - executed} left out ({args.out}/parity.html)"
    )
    for column in table.COLUMNS:
        print(
            f"  {column:<10} "
            + ", ".join(f"{n} {s}" for s, n in sorted(counts[column].items()) if s != "none")
        )
    for row in rows:
        for column, cell in row["cells"].items():
            if cell["status"] == "fail" and column != "cpu":
                print(
                    f"FAIL {row['name']} [{column}] {(cell.get('detail') or cell['status']).splitlines()[0][:160]}"
                )
    stored = HERE / "baseline.json"
    if args.update_baseline:
        new = (json.loads(stored.read_text()) if args.only and stored.exists() else {}) | table.baseline_of(
            rows
        )
        text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(new.items()))
        stored.write_text("{\n" + text + "\n}\n")
        print(f"baseline written: {stored}")
        return 0
    baseline = json.loads(stored.read_text()) if stored.exists() else {}
    if args.only:
        baseline = {k: v for k, v in baseline.items() if re.search(args.only, k)}
    worse, better = table.compare(rows, baseline)
    for line in worse:
        print(f"REGRESSION {line}")
    if better:
        print(
            f"{len(better)} cells are better than the baseline ({better[0]}{', ...' if len(better) > 1 else ''}); store it with --update-baseline"
        )
    return 1 if worse else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--out", default="parity_output")
    p.add_argument("--only", default="")
    p.add_argument("--backend", default="aten")
    p.add_argument("--update-baseline", action="store_true")
    p.add_argument("--shard", type=int, default=None, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.shard is not None:
        return shard(args)
    raise SystemExit(run(args))


if __name__ == "__main__":
    main()
