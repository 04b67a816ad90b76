"""Scripts that repeat one sample of a cell and run as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..printing import SourceWriter
from ..script_parts import HELPERS

if TYPE_CHECKING:
    import torch

    from .samples import ModuleSample, OperatorSample

IMPORTS = "import numpy as np\nimport torch\nimport {candidate} as flow\n\n"
OUTPUT_GRADIENTS = '''
def tensors_of(x):
    if isinstance(x, torch.Tensor):
        return [x]
    x = list(x.values()) if isinstance(x, dict) else x
    return [t for e in x for t in tensors_of(e)] if isinstance(x, (tuple, list)) else []


def backward(out):
    """Run backward from every output, with fixed gradients."""
    outputs = [t for t in tensors_of(out) if t.requires_grad]
    gradients = [np.random.default_rng((99, i)).uniform(size=tuple(t.shape)) for i, t in enumerate(outputs)]
    torch.autograd.backward(outputs, [torch.tensor(g).to(t.dtype) for g, t in zip(gradients, outputs)])

'''


class NamingWriter(SourceWriter):
    """Write each tensor as a name, t0, t1, ..., and keep the lines that make them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def tensor(self, t: torch.Tensor, requires_grad: bool = False) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {super().tensor(t, bool(t.requires_grad))}")
        return name

    def arguments(self, args: Iterable[object], kwargs: dict[str, object]) -> str:
        return ", ".join([self.value(a) for a in args] + [f"{k}={self.value(v)}" for k, v in kwargs.items()])

    @property
    def names(self) -> list[str]:
        return [line.partition(" ")[0] for line in self.lines]


def function_snippet(
    candidate: str,
    reference_call: str | None,
    candidate_call: str,
    sample: OperatorSample,
    column: str = "eager",
) -> str:
    """Return a script that calls a function of both libraries on a sample, with gradients or as a graph if
    `column` says so.
    """
    writer = NamingWriter()
    arguments = writer.arguments((sample.input, *sample.args), sample.kwargs)
    if column == "graph":
        return _graph(candidate, writer, [], f"{candidate_call}({arguments})")
    sides = ([f"(torch, {reference_call})"] if reference_call else []) + [f"(flow, {candidate_call})"]
    lines = ["torch.manual_seed(0)", *writer.lines, f"out = function({arguments})", "print(out)"]
    return _loop(
        candidate,
        f"for lib, function in ({', '.join(sides)},):",
        lines,
        writer.names,
        column,
        sample_tensors=writer.lines,
    )


def module_snippet(candidate: str, name: str, sample: ModuleSample, column: str = "eager") -> str:
    """Return a script that runs a module of both libraries on a sample, with the same weights."""
    writer = NamingWriter()
    build = writer.arguments(sample.init_args, sample.init_kwargs)
    arguments = writer.arguments(sample.args, sample.kwargs)
    if column == "graph":
        return _graph(candidate, writer, [f"module = flow.{name}({build})"], f"module({arguments})")
    lines = [
        "torch.manual_seed(0)",
        *writer.lines,
        f"weights = torch.{name}({build.replace('lib.', 'torch.')}).state_dict()",
        f"m = lib.{name}({build})",
        "m.load_state_dict(weights, strict=False)",
        "torch.manual_seed(0)",
        f"out = m({arguments})",
        "print(out)",
    ]
    if column == "gradient":
        lines += ["backward(out)", "print([p.grad for p in m.parameters()])"]
    return _loop(candidate, "for lib in (torch, flow):", lines, [], column)


def expression_snippet(
    candidate: str, sources: tuple[str, str], helpers: list[str], column: str = "eager"
) -> str:
    """Return a script that evaluates an expression of each library; `helpers` are the functions that they
    use.
    """
    reference, own = sources
    head = (
        IMPORTS.format(candidate=candidate)
        + (OUTPUT_GRADIENTS if column == "gradient" else "")
        + "\n"
        + "\n\n".join(helpers)
    )
    body = ["torch.manual_seed(0)", "out = evaluate(lib)", "print(out)"]
    if column == "gradient":
        body += ["backward(out)", "print([t.grad for t in scope.tensors if t.requires_grad])"]
    if column == "graph":
        body = [
            "lib = flow",
            "",
            "",
            "class Program(flow.nn.Graph):",
            "    def build(self):",
            "        return evaluate(flow)",
            "",
            "",
            "print(evaluate(flow))",
            "print(Program()())",
        ]
        return f"{head}\n\n{_function(own)}\n" + "\n".join(body) + "\n"
    if reference == own:
        return f"{head}\n\n{_function(own)}\nfor lib in (torch, flow):\n    " + "\n    ".join(body) + "\n"
    return (
        f"{head}\n\n{_function(reference)}\nlib = torch\n"
        + "\n".join(body)
        + f"\n\n\n{_function(own)}\nlib = flow\n"
        + "\n".join(body)
        + "\n"
    )


def _function(source: str) -> str:
    return f"def evaluate(lib):\n    scope.__init__()\n    return {source}\n\n"


def _loop(
    candidate: str,
    head: str,
    lines: list[str],
    names: list[str],
    column: str,
    sample_tensors: list[str] | None = None,
) -> str:
    start = IMPORTS.format(candidate=candidate).replace(
        "import numpy as np\n", "" if column != "gradient" else "import numpy as np\n"
    )
    if column == "gradient":
        start += OUTPUT_GRADIENTS + "\n"
        differentiable = [n for n, line in zip(names, sample_tensors or []) if "requires_grad=True" in line]
        if names:
            lines = [*lines, "backward(out)", *(f"print({n}.grad)" for n in differentiable)]
    if any("np." in line or "unpack(" in line for line in lines) and "import numpy" not in start:
        start = "import numpy as np\n" + start
    body = "\n".join([head, *(f"    {line}" for line in lines)])
    return start + _unpack(body) + body + "\n"


def _graph(candidate: str, writer: NamingWriter, before: list[str], call: str) -> str:
    names = ", ".join(writer.names)
    setup = [*before, *writer.lines]
    body = "\n".join(
        [
            "lib = flow",
            "torch.manual_seed(0)",
            *setup,
            "",
            "",
            "class Program(flow.nn.Graph):",
            "    def __init__(self):",
            "        super().__init__()",
            *(["        self.module = module"] if before else []),
            "",
            f"    def build(self{', ' + names if names else ''}):",
            f"        return {call}",
            "",
            "",
            f"print({call})",
            f"print(Program()({names}))",
        ]
    )
    return IMPORTS.format(candidate=candidate) + _unpack(body) + body + "\n"


def _unpack(body: str) -> str:
    if "unpack(" not in body:
        return ""

    return HELPERS["unpack"] + "\n\n"
