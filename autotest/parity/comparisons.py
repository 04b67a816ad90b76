"""Running one check of a row, and comparing the results of both libraries."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..backward import output_gradient
from ..case import Case
from ..compare import compare_values
from ..errors import Mismatch
from ..pair import Pair, tensors_of
from ..runner import Options
from .arguments import copied, trained_leaves
from .table import Failure, Refused, form_only, put

if TYPE_CHECKING:
    import torch

    from .table import Row


class Comparisons:
    """The comparisons of one pair of libraries.

    `explain(name)` gives the id of a documented difference, or "".
    """

    def __init__(
        self, pair: Pair, explain: Callable[[str], str] = lambda name: "", backend: str = "aten"
    ) -> None:
        import torch

        self.pair, self.explain, self.backend, self.torch = pair, explain, backend, torch
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
            # A graph gives what eager gives.
            explanation = self.explain(row["name"]) if column != "graph" else ""
            detail = f"{explanation}: {e.detail}" if explanation else e.detail
            put(row, column, "differs" if explanation else "fail", detail, e.script)
        except Refused as e:
            put(row, column, "refused", str(e)[:300])
        except Exception as e:
            detail = f"the check itself raised {type(e).__name__}: {e}"
            put(row, column, "fail", detail, traceback.format_exc()[-1500:])
        else:
            if applies is not None:
                put(row, column, applies if isinstance(applies, str) else "pass")

    def devices(self, row: Row, check: Callable[[str], bool | None]) -> None:
        put(row, "cpu", row["cells"].get("eager", {"status": "none"})["status"])
        if self.torch.cuda.is_available():
            self.cell(row, "cuda", lambda: check("cuda"))

    # ------------------------------------------------------------------ comparisons
    def guarded(self, call: Callable[[], Any], name: str, script: str = "") -> Any:
        """Return the result of a call. An error of the call is a failure of the row."""
        try:
            return call()
        except Exception as e:
            raise Failure(f"{name} raised {type(e).__name__}: {str(e)[:300]}", script) from None

    def same(self, a: Any, b: Any, what: str, script: str, values: bool = True) -> None:
        try:
            compare_values(self.pair, a, b, what, self.options, ("torch", "here"), values)
        except Mismatch as e:
            raise Failure(str(e), script) from None

    def backward(self, out: object, leaves: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
        """Return the gradients of the leaves for fixed output gradients; None if nothing requires one."""
        outs = [t for t in tensors_of(out, lambda t: isinstance(t, self.torch.Tensor)) if t.requires_grad]
        if not outs or not leaves:
            return None

        case = Case(self.pair, self.options, seed=99)
        gradients = [output_gradient(case, t, i).to(t.device) for i, t in enumerate(outs)]
        return list(self.torch.autograd.grad(outs, leaves, gradients, allow_unused=True))

    def graph_of(
        self,
        row: Row,
        function: Callable[..., Any],
        args: Sequence[Any],
        modules: Sequence[torch.nn.Module],
        script: str,
    ) -> None:
        """Run function(*tensors) eagerly and as a graph of the candidate, with gradients; compare."""
        torch = self.torch
        eager_args = copied(args)
        states = [copy.deepcopy(m.state_dict()) for m in modules]
        torch.manual_seed(0)
        try:
            out = function(*eager_args)
        except Exception:
            return
        eager_gradients = self.backward(out, trained_leaves(eager_args, modules)) or []
        for m, s in zip(modules, states):
            m.load_state_dict(s)
        graph_args = [
            a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        torch.manual_seed(0)
        try:
            outputs, gradients = self.graph_with_gradients(function, modules)(*graph_args)
        except Exception as e:
            refusals = self.pair.graph_refusals
            if isinstance(e, NotImplementedError) or any(c.__name__ in refusals for c in type(e).__mro__):
                raise Refused(f"{type(e).__name__}: {str(e).splitlines()[0]}") from None
            raise Failure(f"the graph raised {type(e).__name__}: {str(e)[:300]}", script) from None
        eager_outputs = tensors_of(out, self.pair.is_candidate_tensor)
        self.same(eager_outputs, outputs, "the graph's result", script, values=not form_only(row))
        self.same([g for g in eager_gradients if g is not None], gradients, "the graph's gradient", script)

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
                    self.config.eager_calls(False)  # such a call would be compared with itself
                for i, m in enumerate(modules):
                    setattr(self, f"module{i}", m)

            def build(self, *graph_inputs: Any) -> Any:
                result = function(*graph_inputs)
                gradients = comparisons.backward(result, trained_leaves(graph_inputs, modules))
                tensors = list(tensors_of(result, comparisons.pair.is_candidate_tensor))
                return tensors, [g for g in gradients or [] if g is not None]

        return ParityGraph()
