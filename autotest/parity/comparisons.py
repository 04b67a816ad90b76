"""Running one check of a row, and comparing the results of both libraries."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..compare import compare_values
from ..errors import Mismatch
from ..pair import Pair, tensors_of
from ..runner import Options
from . import snippets
from .arguments import copied, trained_leaves
from .differences import KnownDifferences, changes, is_same
from .table import Failure, Refused, form_only, put, repeat

if TYPE_CHECKING:
    import torch

    from .table import Row

Sample = TypeVar("Sample")
# A graph gives what eager gives.
NEVER_EXPLAINED = ("graph",)


class Comparisons:
    """The comparisons of one pair of libraries.

    `explain(name)` gives the id of a documented difference, or "". `known` holds what differs by it.
    """

    def __init__(
        self,
        pair: Pair,
        explain: Callable[[str], str] = lambda name: "",
        backend: str = "aten",
        known: KnownDifferences | None = None,
    ) -> None:
        import torch

        self.pair, self.explain, self.backend, self.torch = pair, explain, backend, torch
        self.known = known or {}
        self.options = Options(check_dtype=True)

    @property
    def candidate_name(self) -> str:
        return getattr(self.pair.candidate, "__name__", "candidate")

    # ------------------------------------------------------------------ cells
    def cell(self, row: Row, column: str, check: Callable[[], bool | str | None]) -> None:
        """Run a check and store its result; the check returns True for pass, None if it does not apply."""
        try:
            applies = check()
        except Failure as e:
            self.put_failure(row, column, e)
        except Refused as e:
            put(row, column, "refused", str(e)[:300], e.script)
        except Exception as e:
            detail = f"the check itself raised {type(e).__name__}: {e}"
            put(row, column, "fail", detail, traceback.format_exc()[-1500:])
        else:
            if applies is not None:
                put(row, column, applies if isinstance(applies, str) else "pass")

    def put_failure(self, row: Row, column: str, failure: Failure) -> None:
        """Store a failure, as a documented difference if it is exactly the known one of this cell."""
        explanation = self.explain(row["name"]) if column not in NEVER_EXPLAINED else ""
        if not explanation:
            return put(row, column, "fail", failure.detail, failure.script)
        known = self.known.get(row["name"], {}).get("eager" if column == "cuda" else column)
        if known is not None and is_same(known, failure.differences):
            script = snippets.difference_snippet(failure.script, failure.result) if failure.script else ""
            put(row, column, "differs", f"{explanation}: {failure.detail}", script)
        else:
            detail = changes(known, failure.differences, explanation)
            put(row, column, "fail", f"{detail}\n{failure.detail}", failure.script)
        row["cells"][column] |= {"differences": failure.differences, "explanation": explanation}

    def each(
        self, samples: Iterable[tuple[str, Sample]], check: Callable[[Sample], bool | None]
    ) -> bool | None:
        """Run a check on every sample. A failure has the differences of all samples, and a refusal of one
        sample hides no failure of another one.

        Return None if the check applies to no sample.
        """
        failures: list[Failure] = []
        refusals: list[Refused] = []
        applies = False
        for label, s in samples:
            try:
                applies = bool(check(s)) or applies
            except Failure as e:
                e.differences = [d | {"sample": d["sample"] or label} for d in e.differences]
                failures.append(e)
            except Refused as e:
                refusals.append(e)
        if failures:
            first = failures[0]
            first.differences = [d for e in failures for d in e.differences]
            raise first
        if refusals:
            raise refusals[0]
        return True if applies else None

    def devices(self, row: Row, check: Callable[[str], bool | None]) -> None:
        repeat(row, "cpu", "eager")
        if self.torch.cuda.is_available():
            self.cell(row, "cuda", lambda: check("cuda"))

    # ------------------------------------------------------------------ comparisons
    def guarded(self, call: Callable[[], Any], name: str, script: str = "") -> Any:
        """Return the result of a call. An error of the call is a failure of the row."""
        try:
            return call()
        except Exception as e:
            raise Failure(f"{name} raised {type(e).__name__}: {str(e)[:300]}", script, e) from None

    def same(self, a: Any, b: Any, what: str, script: str, values: bool = True) -> None:
        try:
            compare_values(self.pair, a, b, what, self.options, ("torch", "here"), values)
        except Mismatch as e:
            raise Failure(str(e), script, b) from None

    def backward(self, out: object, leaves: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
        """Return the gradients of the leaves for fixed output gradients; None if nothing requires one."""
        outs = [t for t in tensors_of(out, lambda t: isinstance(t, self.torch.Tensor)) if t.requires_grad]
        if not outs or not leaves:
            return None
        # snippet_parts.py has the same gradients: a script of a known difference holds their result.
        fixed = [self.torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t) for t in outs]
        return list(self.torch.autograd.grad(outs, leaves, fixed, allow_unused=True))

    def graph_of(
        self,
        row: Row,
        function: Callable[..., Any],
        args: Sequence[Any],
        modules: Sequence[torch.nn.Module],
        script: str,
    ) -> bool | None:
        """Run function(*tensors) eagerly and as a graph of the candidate, with gradients; compare.

        Return None if eager mode raises.
        """
        torch = self.torch
        eager_args = copied(args)
        states = [copy.deepcopy(m.state_dict()) for m in modules]
        torch.manual_seed(0)
        try:
            out = function(*eager_args)
            eager_gradients = self.backward(out, trained_leaves(eager_args, modules)) or []
        except Exception:
            return None
        for m, s in zip(modules, states):
            m.load_state_dict(s)
        graph_args = copied(args)
        torch.manual_seed(0)
        try:
            outputs, gradients = self.graph_with_gradients(function, modules)(*graph_args)
        except Exception as e:
            refusals = self.pair.graph_refusals
            if isinstance(e, NotImplementedError) or any(c.__name__ in refusals for c in type(e).__mro__):
                refusal = snippets.refusal_snippet(script, e)
                raise Refused(f"{type(e).__name__}: {str(e).splitlines()[0]}", refusal) from None
            raise Failure(f"the graph raised {type(e).__name__}: {str(e)[:300]}", script) from None
        eager_outputs = tensors_of(out, self.pair.is_candidate_tensor)
        self.same(eager_outputs, outputs, "the graph's result", script, values=not form_only(row))
        self.same([g for g in eager_gradients if g is not None], gradients, "the graph's gradient", script)
        return True

    def graph_with_gradients(
        self, function: Callable[..., Any], modules: Sequence[torch.nn.Module]
    ) -> Callable[..., Any]:
        """Return a graph that runs `function` and its backward, and returns (tensors of the result,
        gradients).
        """
        comparisons = self

        class ParityGraph(self.pair.candidate.nn.Graph):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                if hasattr(self.config, "set_backend"):
                    self.config.set_backend(comparisons.backend)
                if hasattr(self.config, "eager_calls"):
                    self.config.eager_calls(False)  # an eager call would be compared with itself
                for i, m in enumerate(modules):
                    setattr(self, f"module{i}", m)

            def build(self, *graph_inputs: Any) -> Any:
                result = function(*graph_inputs)
                gradients = comparisons.backward(result, trained_leaves(graph_inputs, modules))
                tensors = list(tensors_of(result, comparisons.pair.is_candidate_tensor))
                return tensors, [g for g in gradients or [] if g is not None]

        return ParityGraph()
