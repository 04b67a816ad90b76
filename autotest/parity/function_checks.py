"""The checks of a function: results, gradients, graph, NumPy, dtypes and devices, on torch's samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..compare import compare_numbers
from ..errors import Mismatch
from ..runner import Options
from . import snippets
from .arguments import as_numpy, copied, refilled
from .samples import OperatorSample, operator_samples, tensors
from .table import Failure, form_only, put

if TYPE_CHECKING:
    import torch

    from .comparisons import Comparisons
    from .samples import OpInfo
    from .table import Row

CallNames = tuple[str | None, str]  # source text of the reference's and the candidate's function
DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")
REFUSED = object()


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
        self.torch, self.is_same = comparisons.torch, reference is candidate
        self.reference = lambda s: reference(s.input, *s.args, **s.kwargs)
        self.candidate = lambda s: candidate(s.input, *s.args, **s.kwargs)

    def fill(self) -> None:
        """Run all checks that the function has samples for."""
        dtype = self.main_dtype()
        if dtype is None or not (samples := operator_samples(self.op, dtype)):
            return
        put(self.row, "identity", "same" if self.is_same else "own")
        cell, scripts = self.comparisons.cell, self.row["scripts"]
        for column in ("eager", "graph"):
            scripts[column] = self.script(samples[0], column)
        cell(self.row, "eager", lambda: self.agree(samples))
        of_graph = samples
        if self.op.supports_autograd and dtype in (self.torch.float32, self.torch.float64):
            of_graph = operator_samples(self.op, dtype, requires_grad=True)
            if of_graph:
                scripts["gradient"] = self.script(of_graph[0], "gradient")
            cell(self.row, "gradient", lambda: self.gradients(of_graph))
        cell(self.row, "graph", lambda: self.graph(of_graph[:2]))
        if getattr(self.op, "ref", None) is not None:
            cell(self.row, "reference", self.against_numpy)
        cell(self.row, "dtypes", self.dtypes)
        self.comparisons.devices(
            self.row, lambda device: self.agree(operator_samples(self.op, dtype, device=device))
        )

    def main_dtype(self) -> torch.dtype | None:
        """Return the dtype of most checks: float32, if the function takes it."""
        torch = self.torch
        choices = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
        return next((dtype for dtype in choices if dtype in self.op.dtypes), None)

    def script(self, s: OperatorSample, column: str = "eager") -> str:
        return snippets.function_snippet(self.comparisons.candidate_name, *self.call, s, column)

    def agree(self, samples: list[OperatorSample]) -> bool | None:
        """Compare the results of both sides."""
        ran = False
        for s in samples:
            a, b = self.both(s)
            if a is not REFUSED:
                ran = True
                self.comparisons.same(a, b, "the result", self.script(s), values=not form_only(self.row))
        return True if ran else None

    def both(self, s: OperatorSample) -> tuple[Any, Any]:
        """Return the results of both sides, or REFUSED twice if both raise."""
        self.torch.manual_seed(0)
        try:
            a = self.reference(copied(s))
        except Exception as e:
            a, refused = REFUSED, e
        self.torch.manual_seed(0)
        try:
            b = self.candidate(copied(s))
        except Exception as e:
            if a is REFUSED:
                return REFUSED, REFUSED
            raise Failure(f"raised {type(e).__name__}: {str(e)[:300]}", self.script(s)) from None
        if a is REFUSED:
            raise Failure(
                f"accepts what torch refuses with {type(refused).__name__}: {str(refused)[:200]}",
                self.script(s),
            )
        return a, b

    def gradients(self, samples: list[OperatorSample]) -> bool | None:
        """Compare the gradients of the tensors in the samples."""
        ran = False
        for s in samples:
            mine, theirs = copied(s), copied(s)
            self.torch.manual_seed(0)
            try:
                a = self.reference(theirs)
            except Exception:
                continue
            self.torch.manual_seed(0)
            b = self.comparisons.guarded(
                lambda: self.candidate(mine), self.row["name"], self.script(s, "gradient")
            )
            ga = self.comparisons.backward(a, [t for t in tensors(theirs) if t.requires_grad])
            gb = self.comparisons.backward(b, [t for t in tensors(mine) if t.requires_grad])
            if ga is not None:
                ran = True
                self.comparisons.same(ga, gb, "the gradient", self.script(s, "gradient"))
        return True if ran else None

    def graph(self, samples: list[OperatorSample]) -> bool | None:
        """Compare the candidate's graph with its eager mode."""
        ran = None
        for s in samples:
            leaves = tensors(s)
            if not leaves:
                continue
            ran = True
            self.comparisons.graph_of(
                self.row, lambda *a: self.candidate(refilled(s, a)), leaves, (), self.script(s, "graph")
            )
        return ran

    def against_numpy(self) -> bool | None:
        """Compare float64 results with the NumPy function that torch's table names."""
        torch, op = self.torch, self.op
        if torch.float64 not in op.dtypes:
            return None
        ran = None
        for s in operator_samples(op, torch.float64):
            try:
                args, kwargs = [as_numpy(a) for a in s.args], {k: as_numpy(v) for k, v in s.kwargs.items()}
                expected = op.ref(s.input.numpy(), *args, **kwargs)
                expected = torch.as_tensor(expected)
            except Exception:
                continue  # a form the NumPy function does not have
            try:
                result = self.candidate(copied(s))
            except Exception:
                continue  # judged by the eager cell
            if not isinstance(result, torch.Tensor) or result.shape != expected.shape:
                continue
            ran = True
            try:
                compare_numbers(
                    expected.to(result.dtype),
                    result.detach(),
                    "the result",
                    Options(rtol=1e-6, atol=1e-8),
                    ("NumPy", "here"),
                    "values",
                )
            except Mismatch as e:
                raise Failure(str(e), self.script(s)) from None
        return ran

    def dtypes(self) -> bool | None:
        """Compare the results for each dtype that torch's table names. List those that agree in the row."""
        torch, op, ran = self.torch, self.op, []
        for name in DTYPES:
            dtype = getattr(torch, name)
            if dtype in op.dtypes:
                samples = operator_samples(op, dtype, limit=2)
                try:
                    if self.agree(samples):
                        ran.append(name)
                except Failure as e:
                    raise Failure(f"{name}: {e.detail}", e.script) from None
        if not ran:
            return None
        self.row["dtypes"] = ran
        return True
