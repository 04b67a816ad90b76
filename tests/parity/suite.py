"""The rows of the parity suite: every documented name of OneFlow, with the checks that apply to it."""

import contextlib
import importlib.util
import io
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from oneflow._method import own_attribute
from oneflow_autotest.parity import differences, snippets, table

KNOWN = HERE / "known_differences.json"
# names of one function whose row in the table of differences has the other name
ALIASES = {"greater": "gt", "greater_equal": "ge", "negative": "neg", "not_equal": "ne"}
# what a name takes beyond torch, where no row of the table of differences is about it
TAKES_MORE = {
    "linalg.cross": "tensors of different numbers of dimensions broadcast",
    "nn.functional.avg_pool2d": "divisor_override=0 means none",
    "nn.functional.avg_pool3d": "divisor_override=0 means none",
}


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

    def explain(name):
        short = name.removeprefix("oneflow.").removeprefix("Tensor.")
        choices = (name, f"oneflow.{short}", f"oneflow.{ALIASES.get(short)}")
        rows = next((known[choice] for choice in choices if choice in known), [])
        more = [TAKES_MORE[short]] if short in TAKES_MORE else []
        return ", ".join(rows + more)

    return explain


def known_differences():
    """Return {"cells": {name: {column: differences}}, "calls": {recorded call: differences}}."""
    return json.loads(KNOWN.read_text()) if KNOWN.exists() else {"cells": {}, "calls": {}}


class Suite:
    def __init__(self, backend="aten", known=None):
        import torch

        import oneflow
        from oneflow_autotest.pair import Pair
        from oneflow_autotest.parity.checks import Checker

        self.flow, self.torch = oneflow, torch
        known = known_differences()["cells"] if known is None else known
        self.checker = Checker(Pair(torch, oneflow, ("torch", "oneflow")), explainer(), backend, known)

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
            self.checker.module(row, info, resolve(self.torch, short), resolve(self.flow, short))
        elif op is not None:
            self.operator(row, op, short, method)
        if "identity" in row["cells"]:
            row["scripts"]["identity"] = identity_snippet(self.torch, row)
        if not table.executed(row):
            row["cells"].clear()
            row["left_out"] = next((why for pattern, why in LEFT_OUT if re.search(pattern, name)), "no case")
        return row

    def operator(self, row, op, short, method):
        torch, flow = self.torch, self.flow
        paths = [path for path in (method or short, op.name, f"Tensor.{op.name}") if function_of(torch, path)]
        plain, reference_call = op.op, "operator.op"
        if paths:
            plain, reference_call = function_of(torch, paths[0]), f"torch.{paths[0]}"
        if op.name == "where":  # torch's samples have the order of the method
            plain, reference_call = torch.Tensor.where, "torch.Tensor.where"
        if method is None:
            function, call = resolve(flow, short), f"flow.{short}"
            if short == "where":
                function = lambda t, condition, *rest: flow.where(condition, t, *rest)
                call = "(lambda t, condition, *rest: flow.where(condition, t, *rest))"
            return self.checker.function(row, op, plain, function, (reference_call, call))
        own = own_attribute(flow.Tensor, method)
        if method.endswith("_") and not op.name.endswith("_"):
            of = function_of(torch, op.name) or getattr(torch.Tensor, op.name, None)
            if of is None:  # in-place only
                self.checker.function(row, op, op.op, own, in_place_call(torch, method))
            else:
                reference = on_a_copy(of) if method in RESHAPING else fitting(of)
                self.checker.function(
                    row,
                    op,
                    reference,
                    lambda t, *a, **k: own(t.clone(), *a, **k),
                    in_place_call(torch, method),
                )
        else:
            # torch.Tensor.name is torch's own object: only the call of a tensor's method reaches OneFlow's
            call = f"(lambda t, *args, **kwargs: t.{method}(*args, **kwargs))"
            self.checker.function(row, op, plain, own, (reference_call, call))
        self.method_identity(row, own)

    def method_identity(self, row, own):
        """A method is torch's unless our tables put it there; the eager cell holds it against the
        function.
        """
        if "identity" in row["cells"]:
            table.put(row, "identity", "own" if is_own(own) else "same")

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
        row["scripts"] |= scripts | {"reference": scripts["eager"]}
        if short.startswith("Tensor."):  # torch.Tensor is oneflow.Tensor
            own = is_own(own_attribute(self.flow.Tensor, short.removeprefix("Tensor.")))
        else:
            there = resolve(self.torch, short)
            own = there is None or there is not resolve(self.flow, short)
        table.put(row, "identity", "own" if own else "same")

        def eager():
            expected, _ = evaluate(reference, self.torch)
            try:
                actual, _ = evaluate(ours, self.flow)
            except Exception as e:
                raise Failure(f"raised {type(e).__name__}: {str(e)[:300]}", scripts["eager"], e) from None
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
            run = lambda *a: evaluate(ours, self.flow, a)[0]
            return checker.graph_of(row, run, sampled, (), scripts["graph"])

        checker.cell(row, "reference" if isinstance(code, tuple) else "eager", eager)
        checker.cell(row, "gradient", gradient)
        checker.cell(row, "graph", graph)
        table.repeat(row, "cpu", "reference" if isinstance(code, tuple) else "eager")


def plain(x):
    """Results such as dtypes and devices by their names, so that two libraries' can be compared."""
    if isinstance(x, (tuple, list)):
        return type(x)(plain(e) for e in x) if type(x) in (tuple, list) else [plain(e) for e in x]
    return str(x) if type(x).__name__ in ("dtype", "device") else x


def is_own(method):
    """Whether a method or a property of tensors is OneFlow's."""
    function = method.fget if isinstance(method, property) else method
    of_this_package = str(getattr(function, "__module__", "")).startswith("oneflow")
    return hasattr(function, "__oneflow_original__") or of_this_package


def identity_snippet(torch, row):
    """A script that asserts whether the name is torch's own object."""
    name, same = row["name"], table.status(row, "identity") == "same"
    short = name.removeprefix("oneflow.")
    text = "import oneflow\nimport torch\n"
    if short.startswith("Tensor."):
        method = short.removeprefix("Tensor.")
        return (
            f"{text}from oneflow._method import own_attribute\n\n"
            f"method = own_attribute(oneflow.Tensor, {method!r})\n"
            "method = method.fget if isinstance(method, property) else method\n"
            "own = hasattr(method, '__oneflow_original__')\n"
            "own = own or str(getattr(method, '__module__', '')).startswith('oneflow')\n"
            f"print(method)\nassert {'not own' if same else 'own'}, method\n"
        )
    text += f"\nprint({name})\n"
    if resolve(torch, short) is None:
        return text + f"assert {name} is not None\n"
    return text + f"assert {name} is {'' if same else 'not '}torch.{short}\n"


def in_place_call(torch, method):
    """Source text of an in-place method of both libraries, on a copy because a leaf that requires a gradient
    cannot be written.
    """
    call = "(lambda t, *args, **kwargs: {}*args, **kwargs))"
    reference = call.format(f"torch.Tensor.{method}(t.clone(), ")
    return reference if hasattr(torch.Tensor, method) else "operator.op", call.format(f"t.clone().{method}(")


def golden_snippet(record, known=""):
    """A script that replays one recorded call; it runs in the root of the repository, where the recorded
    numbers are.

    known: the text of a known difference.
    """
    comment = "".join(f"# {line}\n" for line in record["code"].splitlines())
    only = "^" + re.escape(record["id"]) + "$"
    text = (
        f"{comment}import runpy\n\nimport oneflow\n"
        f"from oneflow_autotest.parity.differences import same_text\n\n"
        "check = runpy.run_path('tests/golden/calls/replay.py')['check']\n"
        f"wrong = '; '.join(text for record, problems in check(oneflow, {only!r}) for text in problems)\n"
        "print(wrong)\n"
    )
    return text + f"assert same_text(' '.join(wrong.split())[:{differences.SHOWN}], {known!r}), wrong\n"


RESHAPING = ("squeeze_", "unsqueeze_", "as_strided_", "t_", "transpose_", "swapaxes_", "swapdims_")


def function_of(lib, path):
    function = resolve(lib, path)
    return function if callable(function) else None


def on_a_copy(function):
    return lambda t, *args, **kwargs: function(t.clone(), *args, **kwargs)


def fitting(function):
    """The out-of-place function, refusing where an in-place one cannot store the result; comparisons store 0
    and 1.
    """
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


def golden(rows, known):
    """Check the calls recorded from real OneFlow, for each name they mention.

    known: {recorded call: differences}. Return the same of this run, for the calls that differ on purpose.
    """
    file = HERE.parent / "core" / "test_golden_calls.py"
    if not file.exists():
        return {}
    spec = importlib.util.spec_from_file_location("golden_calls", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    by_name = {r["name"]: r for r in rows}
    outcomes, differing = {}, {}
    for key, record in module.CASES.items():
        names = [name for name in mentioned(record["code"]) if name in by_name]
        if not names:
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            wrong = module.problems(key)
        if wrong and key in module.WHY:
            differing[key] = [differences.difference("", " ".join("; ".join(wrong).split()), None)]
        outcome = golden_outcome(record, wrong, module.WHY.get(key), known.get(key), differing.get(key))
        for name in names:
            outcomes.setdefault(name, []).append(outcome)
    for name, results in outcomes.items():
        worst = min(results, key=lambda r: table.RANK[r[0]])
        table.put(by_name[name], "golden", worst[0], worst[1] or f"{len(results)} recorded calls", worst[2])
        by_name[name]["left_out"] = ""  # the recorded calls are its case
    return differing


def golden_outcome(record, wrong, row, known, differing):
    """Return (status, detail, script) of one recorded call; `row` is the documented difference about it."""
    if not wrong:
        return "pass", "", golden_snippet(record)
    detail = f"{record['code']}: {wrong[0]}"[:300]
    if row and known and differences.is_same(known, differing):
        return "differs", f"{row}: {detail}", golden_snippet(record, differing[0]["text"])
    if row:
        detail = f"{differences.changes(known, differing, row)}\n{detail}"
    return "fail", detail, golden_snippet(record)


def mentioned(code):
    out = {f"oneflow.{n}" for n in re.findall(r"\bflow\.([A-Za-z_][\w.]*)", code)}
    out |= {f"oneflow.nn.functional.{n}" for n in re.findall(r"\bF\.(\w+)", code)} | {
        f"oneflow.nn.{n}" for n in re.findall(r"\bnn\.(\w+)", code)
    }
    return out | {f"oneflow.Tensor.{n}" for n in re.findall(r"\)\.(\w+)\(", code)}
