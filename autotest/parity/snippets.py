"""Scripts that repeat one sample of a cell, assert what the cell claims, and run as they are.

A script ends in a call of agree(). `difference_snippet` and `refusal_snippet` replace this line if the cell
claims a documented difference, or a graph that refuses the sample.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..printing import SourceWriter
from .samples import has_own_layout
from .snippet_parts import AGREE, PARTS, with_parts

if TYPE_CHECKING:
    import torch

    from .samples import ModuleSample, OperatorSample

LEAVES_OF_MODULE = "list(module.parameters())"
GRAPH_RESULTS = (
    "return tensors_of(out), [g for g in gradients_of(out, leaves) if g is not None] if leaves else []"
)


class NamingWriter(SourceWriter):
    """Write each tensor as a name, t0, t1, ..., and keep the lines that make them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.leaves: list[str] = []  # names of the tensors that require a gradient

    def tensor(self, t: torch.Tensor, requires_grad: bool = False) -> str:
        name = f"t{len(self.lines)}"
        source = super().tensor(t, bool(t.requires_grad))
        if has_own_layout(t):
            source = f"with_strides({source}, {t.stride()}, {t.storage_offset()})"
        self.lines.append(f"{name} = {source}")
        if t.requires_grad:
            self.leaves.append(name)
        return name

    def arguments(self, args: Iterable[object], kwargs: dict[str, object]) -> str:
        return ", ".join([self.value(a) for a in args] + [f"{k}={self.value(v)}" for k, v in kwargs.items()])

    @property
    def names(self) -> str:
        return ", ".join(line.partition(" ")[0] for line in self.lines)


def function_snippet(
    candidate: str,
    calls: tuple[str, str],
    sample: OperatorSample,
    column: str = "eager",
    values: bool = True,
    operator: str = "",
) -> str:
    """Return a script that calls a function of both libraries on a sample.

    calls: source text of both functions; the first may use `operator`, the row of torch's table that the
    argument of this name chooses. values: False if the values may differ.
    """
    writer = NamingWriter()
    arguments = writer.arguments((sample.input, *sample.args), sample.kwargs)
    if column == "graph":
        return _graph(candidate, writer, "", f"{calls[1]}({arguments})", values)
    body = ["torch.manual_seed(0)", *writer.lines, f"out = function({arguments})", "return out"]
    if column == "gradient":
        body[-1] = f"return gradients_of(out, [{', '.join(writer.leaves)}])"
    end = AGREE
    if column == "reference":
        end = f"assert isinstance(actual, torch.Tensor), actual\n{AGREE}"
        end = end.replace("expected)", "expected.to(actual.dtype), (1e-06, 1e-08))")
    if column == "errors":
        end = f"assert isinstance(expected, Exception), expected\n{AGREE}"
    text = (
        _function("run(lib, function)", body)
        + (f"operator = operators()[{operator!r}]\n" if operator else "")
        + f"expected, actual = outcome(run, torch, {calls[0]}), outcome(run, flow, {calls[1]})\n"
    )
    return _script(candidate, text, end, values)


def module_snippet(candidate: str, name: str, sample: ModuleSample, column: str = "eager") -> str:
    """Return a script that runs a module of both libraries on a sample, with the same weights."""
    writer = NamingWriter()
    build = writer.arguments(sample.init_args, sample.init_kwargs)
    arguments = writer.arguments(sample.args, sample.kwargs)
    if column == "graph":
        module = f"flow.{name}({build}).train({sample.training})"
        return _graph(candidate, writer, module, f"module({arguments})")
    body = [
        "torch.manual_seed(0)",
        *writer.lines,
        f"weights = torch.{name}({build.replace('lib.', 'torch.')}).state_dict()",
        f"module = lib.{name}({build}).train({sample.training})",
        "module.load_state_dict(weights, strict=False)",
        "torch.manual_seed(0)",
        f"out = module({arguments})",
        f"return gradients_of(out, {LEAVES_OF_MODULE})" if column == "gradient" else "return out",
    ]
    text = _function("run(lib)", body) + "expected, actual = outcome(run, torch), outcome(run, flow)\n"
    return _script(candidate, text, AGREE)


def expression_snippet(
    candidate: str, sources: tuple[str, str], helpers: list[str], column: str = "eager"
) -> str:
    """Return a script that evaluates an expression of each library; `helpers` are the functions that they
    use.
    """
    reference, own = sources
    text = "\n\n".join(helpers) + "\n\n" + _expression("evaluate", own, column)
    if column == "graph":
        text += _function("results(*tensors)", ["out = evaluate(flow, tensors)", *_graph_end("tensors")])
        text += _program("", "*tensors")
        body = [
            "evaluate(flow)",
            "fresh = [t.detach().clone().requires_grad_(t.requires_grad) for t in scope.tensors]",
            "return (Program() if as_graph else results)(*fresh)",
        ]
        text += _function("run(as_graph)", body)
        text += "expected, actual = outcome(run, False), outcome(run, True)\n"
        return _script(candidate, text, AGREE)
    evaluate_reference = "evaluate"
    if reference != own:
        evaluate_reference = "evaluate_in_torch"
        text += _expression(evaluate_reference, reference, column)
    text += f"expected, actual = outcome({evaluate_reference}, torch), outcome(evaluate, flow)\n"
    return _script(candidate, text, AGREE)


def difference_snippet(script: str, result: object) -> str:
    """Return the script of a documented difference: the candidate gives this result, and it differs."""
    if isinstance(result, Exception):
        known = hasattr(builtins, type(result).__name__)
        source = f"{type(result).__name__ if known else 'Exception'}()"
    else:
        source = SourceWriter().value(result)
    before, _, rest = script.rpartition("agree(actual")
    end = ["lib = torch", f"recorded = {source}"]
    if "unpack(" in source and "def unpack" not in before:
        end.insert(0, PARTS["unpack"])
    if "np." in "".join(end) and "import numpy as np" not in before:
        end.insert(0, "import numpy as np")
    end += [
        "agree(actual, recorded)",
        f"difference = outcome(agree, actual{rest.rstrip()}",
        'assert isinstance(difference, AssertionError), "no difference is left"',
    ]
    return before + "\n".join(end) + "\n"


def refusal_snippet(script: str, error: Exception) -> str:
    """Return the script of a graph that refuses a sample: the error has this class."""
    before = script.rpartition("agree(actual")[0]
    return before + f"assert type(actual).__name__ == {type(error).__name__!r}, actual\n"


def _expression(name: str, source: str, column: str) -> str:
    """Return a function that evaluates an expression; the helpers read `lib` as a global variable."""
    body = [
        "global lib",
        "lib = library",
        "scope.__init__(arguments)",
        "torch.manual_seed(0)",
        f"out = {source}",
        "return out",
    ]
    if column == "gradient":
        body[-1] = "return gradients_of(out, [t for t in scope.tensors if t.requires_grad])"
    return _function(f"{name}(library, arguments=None)", body)


def _graph(candidate: str, writer: NamingWriter, module: str, call: str, values: bool = True) -> str:
    """Return a script that compares a graph with eager mode: results and gradients.

    module: source text of the module that `call` uses, or "".
    """
    names = writer.names
    modules = ["module"] if module else []
    leaves = f"({names},)" if names else "()"
    parameters = ", ".join([*modules, names] if names else modules)
    text = _function(f"results({parameters})", [f"out = {call}", *_graph_end(leaves, bool(module))])
    text += _program(module, names)
    body = ["torch.manual_seed(0)", "lib = flow", *writer.lines]
    if module:
        body += [f"module = {module}", "torch.manual_seed(0)"]
        body += [f"return Program(module)({names}) if as_graph else results({parameters})"]
    else:
        body += [f"return (Program() if as_graph else results)({names})"]
    text += _function("run(as_graph)", body)
    text += "expected, actual = outcome(run, False), outcome(run, True)\n"
    return _script(candidate, text, AGREE, values)


def _graph_end(tensors: str, has_module: bool = False) -> list[str]:
    """Return the last lines of the function that a graph runs: its tensors, and their gradients."""
    leaves = f"[t for t in {tensors} if t.requires_grad]"
    if has_module:
        leaves += " + [p for p in module.parameters() if p.requires_grad]"
    return [f"leaves = {leaves}", GRAPH_RESULTS]


def _program(module: str, parameters: str) -> str:
    """Return the class of a graph that calls results()."""
    own = ", ".join(filter(None, ["self.module" if module else "", parameters]))
    return "\n".join(
        [
            "class Program(flow.nn.Graph):",
            f"    def __init__(self{', module' if module else ''}):",
            "        super().__init__()",
            '        self.config.set_backend("aten")',
            "        self.config.eager_calls(False)",
            *(["        self.module = module"] if module else []),
            "",
            f"    def build(self{', ' + parameters if parameters else ''}):",
            f"        return results({own})",
            "",
            "",
            "",
        ]
    )


def _function(head: str, body: list[str]) -> str:
    return "\n".join([f"def {head}:", *(f"    {line}" for line in body), "", "", ""])


def _script(candidate: str, text: str, end: str, values: bool = True) -> str:
    """Return the script: imports, the parts that it uses, its text, and its assertion."""
    text = with_parts(f'{text}print(expected, actual, sep="\\n")\n{end}\n', values)
    imports = ["import torch", f"import {candidate} as flow"]
    if re.search(r"\bnp\.", text):
        imports.insert(0, "import numpy as np")
    if "operators()" in text:
        imports.append("from oneflow_autotest.parity.samples import operators")
    return "\n".join(imports) + "\n\n\n" + text
