"""The checks of a function: results, errors, gradients, graph, NumPy, dtypes and devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..compare import compare_numbers
from ..errors import Mismatch
from ..runner import Options
from . import snippets
from .arguments import as_numpy, copied, refilled
from .samples import OperatorSample, error_samples, operator_samples, strided_samples, tensors
from .table import Failure, form_only, put

if TYPE_CHECKING:
    import torch

    from .comparisons import Comparisons
    from .samples import OpInfo
    from .table import Row

CallNames = tuple[str, str]  # source text of the reference's and the candidate's function
DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")


class FunctionChecks:
    """The checks that fill the row of one function.

    A check returns True for pass, and None if it does not apply.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        row: Row,
        op: OpInfo,
        reference: Callable[..., Any],
        candidate: Callable[..., Any],
        call: CallNames,
    ) -> None:
        self.comparisons, self.row, self.op, self.call = comparisons, row, op, call
        self.scripted: set[str] = set()  # columns with a script whose result has elements
        self.torch, self.is_same = comparisons.torch, reference is candidate
        self.reference = lambda s: reference(s.input, *s.args, **s.kwargs)
        self.candidate = lambda s: candidate(s.input, *s.args, **s.kwargs)

    def fill(self) -> None:
        """Run all checks that the function has samples for."""
        dtype = self.main_dtype()
        if dtype is None or not (samples := operator_samples(self.op, dtype)):
            return
        put(self.row, "identity", "same" if self.is_same else "own")
        cell = self.comparisons.cell
        cell(self.row, "eager", lambda: self.agree(labelled(samples) + strided_samples(samples)))
        cell(self.row, "errors", self.errors)
        of_graph = samples
        if self.op.supports_autograd and dtype in (self.torch.float32, self.torch.float64):
            of_graph = operator_samples(self.op, dtype, requires_grad=True)
            with_strides = labelled(of_graph) + strided_samples(of_graph)
            cell(self.row, "gradient", lambda: self.comparisons.each(with_strides, self.gradient))
        strided = strided_samples(of_graph[:2])
        graphs = labelled(of_graph[:1]) + (strided[:1] or labelled(of_graph)[1:2])
        cell(self.row, "graph", lambda: self.comparisons.each(graphs, self.graph))
        if getattr(self.op, "ref", None) is not None:
            cell(self.row, "reference", self.against_numpy)
        cell(self.row, "dtypes", self.dtypes)
        self.comparisons.devices(
            self.row, lambda device: self.agree(labelled(operator_samples(self.op, dtype, device=device)))
        )

    def main_dtype(self) -> torch.dtype | None:
        """Return the dtype of most checks: float32, if the function takes it."""
        torch = self.torch
        choices = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
        return next((dtype for dtype in choices if dtype in self.op.dtypes), None)

    def script(self, s: OperatorSample, column: str = "eager") -> str:
        calls, operator = self.call, ""
        if column == "reference":
            calls, operator = ("numpy_result", calls[1]), self.op.name
        values = not form_only(self.row)
        return snippets.function_snippet(self.comparisons.candidate_name, calls, s, column, values, operator)

    def keep_script(self, column: str, s: OperatorSample, result: object) -> None:
        """Store the script of a sample that passes, for the first sample whose result has elements."""
        results = tensors(result)
        if column not in self.scripted and (not results or any(t.numel() for t in results)):
            self.scripted.add(column)
            self.row["scripts"].pop(column, None)
        self.row["scripts"].setdefault(column, self.script(s, column))

    def agree(self, samples: list[tuple[str, OperatorSample]], column: str = "eager") -> bool | None:
        """Compare the results of both sides."""
        return self.comparisons.each(samples, lambda s: self.agree_on(s, column))

    def agree_on(self, s: OperatorSample, column: str) -> bool | None:
        a, b = self.outcome(self.reference, s), self.outcome(self.candidate, s)
        script = self.script(s)
        if isinstance(b, Exception) and isinstance(a, Exception):
            return None
        if isinstance(b, Exception):
            raise Failure(f"raised {type(b).__name__}: {str(b)[:300]}", script, b)
        if isinstance(a, Exception):
            detail = f"accepts what torch refuses with {type(a).__name__}: {str(a)[:200]}"
            raise Failure(detail, script, b)
        self.comparisons.same(a, b, "the result", script, values=not form_only(self.row))
        self.keep_script(column, s, a)
        return True

    def outcome(self, call: Callable[[OperatorSample], Any], s: OperatorSample) -> Any:
        """Return the result of a call, or the error that it raises."""
        self.torch.manual_seed(0)
        try:
            return call(copied(s))
        except Exception as e:
            return e

    def errors(self) -> bool | None:
        """Check that the candidate refuses what torch refuses, with a related class of error."""
        samples = [(f"error input {i}", s) for i, s in enumerate(error_samples(self.op))]
        if ".Tensor." in self.row["name"]:  # a method needs a tensor
            samples = [(label, s) for label, s in samples if isinstance(s.input, self.torch.Tensor)]
        return self.comparisons.each(samples, self.error)

    def error(self, s: OperatorSample) -> bool | None:
        expected = self.outcome(self.reference, s)
        if not isinstance(expected, Exception):
            return None  # an error of another device, or of a form that this name does not have
        actual, script = self.outcome(self.candidate, s), self.script(s, "errors")
        if not isinstance(actual, Exception):
            detail = f"accepts what torch refuses with {type(expected).__name__}: {str(expected)[:200]}"
            raise Failure(detail, script, actual)
        if not isinstance(actual, type(expected)) and not isinstance(expected, type(actual)):
            detail = f"raised {actual!r}, torch raises {expected!r}"
            raise Failure(detail[:300], script, actual)
        self.keep_script("errors", s, expected)
        return True

    def gradient(self, s: OperatorSample) -> bool | None:
        """Compare the gradients of the tensors in a sample."""
        mine, theirs, script = copied(s), copied(s), self.script(s, "gradient")
        self.torch.manual_seed(0)
        try:
            a = self.reference(theirs)
            expected = self.comparisons.backward(a, [t for t in tensors(theirs) if t.requires_grad])
        except Exception:
            return None
        self.torch.manual_seed(0)
        name = self.row["name"]
        b = self.comparisons.guarded(lambda: self.candidate(mine), name, script)
        leaves = [t for t in tensors(mine) if t.requires_grad]
        gradients = self.comparisons.guarded(
            lambda: self.comparisons.backward(b, leaves), f"backward of {name}", script
        )
        if expected is None:
            return None
        self.comparisons.same(expected, gradients, "the gradient", script)
        self.keep_script("gradient", s, [g for g in expected if g is not None])
        return True

    def graph(self, s: OperatorSample) -> bool | None:
        """Compare the candidate's graph with its eager mode."""
        leaves = tensors(s)
        if not leaves:
            return None
        call = lambda *a: self.candidate(refilled(s, a))
        if not self.comparisons.graph_of(self.row, call, leaves, (), self.script(s, "graph")):
            return None
        self.keep_script("graph", s, self.outcome(self.candidate, s))
        return True

    def against_numpy(self) -> bool | None:
        """Compare float64 results with the NumPy function that torch's table names."""
        if self.torch.float64 not in self.op.dtypes:
            return None
        samples = labelled(operator_samples(self.op, self.torch.float64))
        return self.comparisons.each(samples, self.near_numpy)

    def near_numpy(self, s: OperatorSample) -> bool | None:
        torch = self.torch
        try:
            args, kwargs = [as_numpy(a) for a in s.args], {k: as_numpy(v) for k, v in s.kwargs.items()}
            expected = torch.as_tensor(self.op.ref(s.input.numpy(), *args, **kwargs))
        except Exception:
            return None  # a form the NumPy function does not have
        result = self.outcome(self.candidate, s)
        if not isinstance(result, torch.Tensor) or result.shape != expected.shape:
            return None  # judged by the eager cell
        options, script = Options(rtol=1e-6, atol=1e-8), self.script(s, "reference")
        expected, names = expected.to(result.dtype), ("NumPy", "here")
        try:
            compare_numbers(expected, result.detach(), "the result", options, names, "values")
        except Mismatch as e:
            raise Failure(str(e), script, result) from None
        self.keep_script("reference", s, result)
        return True

    def dtypes(self) -> bool | None:
        """Compare the results for each dtype that torch's table names. List those that agree in the row."""
        torch, op = self.torch, self.op
        ran: list[str] = []

        def agree(name: str) -> bool | None:
            samples = labelled(operator_samples(op, getattr(torch, name), limit=2))
            if not self.agree([(f"{name}, {label}", s) for label, s in samples], "dtypes"):
                return None
            ran.append(name)
            return True

        names = [(name, name) for name in DTYPES if getattr(torch, name) in op.dtypes]
        if not self.comparisons.each(names, agree):
            return None
        self.row["dtypes"] = ran
        return True


def labelled(samples: list[OperatorSample]) -> list[tuple[str, OperatorSample]]:
    """Return (label, sample) pairs."""
    return [(f"sample {i}", s) for i, s in enumerate(samples)]
