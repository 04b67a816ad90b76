"""Filling the cells of one row: both libraries on the same arguments."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..case import Case
from ..check import output_gradient, tensors_of
from ..compare import compare_numbers, compare_values
from ..errors import Mismatch
from ..pair import Module, Pair
from ..runner import Options
from . import snippets
from .arguments import as_numpy, copied, refilled, trained_leaves
from .samples import OperatorSample, module_samples, operator_samples, tensors
from .table import Failure, Refused, form_only, put

if TYPE_CHECKING:
    import torch

    from .samples import ModuleInfo, ModuleSample, OpInfo
    from .table import Row

CallNames = tuple[str | None, str]  # source text of the reference's and the candidate's function
OnSample = Callable[[OperatorSample], Any]
DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")


class Checker:
    """The checks of one pair of libraries; `explain(name)` gives the id of a documented difference or ""."""

    def __init__(
        self, pair: Pair, explain: Callable[[str], str] = lambda name: "", backend: str = "aten"
    ) -> None:
        import torch

        self.pair, self.explain, self.backend, self.torch = pair, explain, backend, torch
        self.options = Options(check_dtype=True)

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

    def function(
        self,
        row: Row,
        op: OpInfo,
        reference: Callable[..., Any],
        candidate: Callable[..., Any],
        call: tuple[str | None, str] | None = None,
    ) -> None:
        """Check a function (or a tensor method called as one) on torch's samples.

        call: source text of the reference's and the candidate's function for the scripts; None as the first
            if it has no name.
        """
        short = row["name"].removeprefix("oneflow.")
        call = call or (f"torch.{short}", f"flow.{short}")
        torch = self.torch
        f32 = (
            torch.float32
            if torch.float32 in op.dtypes
            else next(
                (d for d in (torch.float64, torch.int64, torch.bool, torch.complex64) if d in op.dtypes), None
            )
        )
        if f32 is None:
            return
        samples = operator_samples(op, f32)
        if not samples:
            return
        put(row, "identity", "same" if reference is candidate else "own")
        row["scripts"]["eager"] = self.script(row, samples[0], call)
        row["scripts"]["graph"] = self.script(row, samples[0], call, "graph")
        run = lambda f, s: f(s.input, *s.args, **s.kwargs)
        self.cell(
            row,
            "eager",
            lambda: self.agree(row, samples, lambda s: run(reference, s), lambda s: run(candidate, s), call),
        )
        if op.supports_autograd and f32 in (torch.float32, torch.float64):
            with_grad = operator_samples(op, f32, requires_grad=True)
            if with_grad:
                row["scripts"]["gradient"] = self.script(row, with_grad[0], call, "gradient")
            self.cell(
                row,
                "gradient",
                lambda: self.gradients(
                    row, with_grad, lambda s: run(reference, s), lambda s: run(candidate, s), call
                ),
            )
            self.cell(row, "graph", lambda: self.graph(row, with_grad[:2], lambda s: run(candidate, s), call))
        else:
            self.cell(row, "graph", lambda: self.graph(row, samples[:2], lambda s: run(candidate, s), call))
        if getattr(op, "ref", None) is not None:
            self.cell(
                row, "reference", lambda: self.against_numpy(row, op, lambda s: run(candidate, s), call)
            )
        self.cell(
            row,
            "dtypes",
            lambda: self.dtypes(row, op, lambda s: run(reference, s), lambda s: run(candidate, s), call),
        )
        self.devices(
            row,
            lambda device: self.agree(
                row,
                operator_samples(op, f32, device=device),
                lambda s: run(reference, s),
                lambda s: run(candidate, s),
                call,
            ),
        )

    def devices(self, row: Row, check: Callable[[str], bool | None]) -> None:
        put(row, "cpu", row["cells"].get("eager", {"status": "none"})["status"])
        if self.torch.cuda.is_available():
            self.cell(row, "cuda", lambda: check("cuda"))

    def module(
        self,
        row: Row,
        info: ModuleInfo,
        reference: Callable[..., torch.nn.Module],
        candidate: Callable[..., torch.nn.Module],
    ) -> None:
        """Check a module class: forward and gradients with the reference's weights, in training and
        evaluation mode.
        """
        torch = self.torch
        put(row, "identity", "same" if reference is candidate else "own")
        samples = [
            s for training in (True, False) for s in module_samples(info, torch.float32, training=training)
        ]
        if not samples:
            return

        for column in ("eager", "gradient", "graph"):
            row["scripts"][column] = self.module_script(row, samples[0], column)

        def build(s: ModuleSample, device: str = "cpu") -> tuple[Module, Module]:
            torch.manual_seed(0)
            r = reference(*s.init_args, **s.init_kwargs)
            c = candidate(*s.init_args, **s.init_kwargs)
            self.pair.copy_state(r, c)
            return r.to(device), c.to(device)

        def forward(s: ModuleSample, device: str = "cpu") -> tuple[Any, ...]:
            sides, results = build(s, device), []
            for m in sides:
                args, kwargs = copied((s.args, s.kwargs), device)
                torch.manual_seed(0)
                results.append(m(*args, **kwargs))
            return *sides, *results

        def eager(device: str = "cpu") -> bool | None:
            for s in samples:
                r, c, a, b = self.guarded(
                    s, lambda: forward(s, device), row["name"], self.module_script(row, s)
                )
                self.same(a, b, "the output", self.module_script(row, s))
            return True

        def gradient() -> bool | None:
            some = False
            for s in samples:
                r, c, a, b = self.guarded(
                    s, lambda: forward(s), row["name"], self.module_script(row, s, "gradient")
                )
                ga, gb = self.backward(a, list(r.parameters())), self.backward(b, list(c.parameters()))
                some = some or bool(ga)
                self.same(ga, gb, "the gradient of a parameter", self.module_script(row, s, "gradient"))
            return True if some else None

        def graph() -> bool | None:
            for s in samples[:2]:
                _, c = build(s)
                script = self.module_script(row, s, "graph")
                self.graph_of(row, lambda *a: c(*a, **s.kwargs), s.args, [c], script)
            return True

        self.cell(row, "eager", eager)
        self.cell(row, "gradient", gradient)
        self.cell(row, "graph", graph)
        self.devices(row, eager)

    # ------------------------------------------------------------------ checks
    def agree(
        self,
        row: Row,
        samples: list[OperatorSample],
        reference: OnSample,
        candidate: OnSample,
        call: CallNames,
    ) -> bool | None:
        ran = False
        for s in samples:
            a, b = self.both(row, s, reference, candidate, call)
            if a is not REFUSED:
                ran = True
                self.same(a, b, "the result", self.script(row, s, call), values=not form_only(row))
        return True if ran else None

    def both(
        self,
        row: Row,
        s: OperatorSample,
        reference: OnSample,
        candidate: OnSample,
        call: CallNames,
    ) -> tuple[Any, Any]:
        self.torch.manual_seed(0)
        try:
            a = reference(copied(s))
        except Exception as e:
            a, refused = REFUSED, e
        self.torch.manual_seed(0)
        try:
            b = candidate(copied(s))
        except Exception as e:
            if a is REFUSED:
                return REFUSED, REFUSED
            raise Failure(f"raised {type(e).__name__}: {str(e)[:300]}", self.script(row, s, call)) from None
        if a is REFUSED:
            raise Failure(
                f"accepts what torch refuses with {type(refused).__name__}: {str(refused)[:200]}",
                self.script(row, s, call),
            )
        return a, b

    def gradients(
        self,
        row: Row,
        samples: list[OperatorSample],
        reference: OnSample,
        candidate: OnSample,
        call: CallNames,
    ) -> bool | None:
        ran = False
        for s in samples:
            mine, theirs = copied(s), copied(s)
            self.torch.manual_seed(0)
            try:
                a = reference(theirs)
            except Exception:
                continue
            self.torch.manual_seed(0)
            b = self.guarded(s, lambda: candidate(mine), row["name"], self.script(row, s, call, "gradient"))
            ga = self.backward(a, [t for t in tensors(theirs) if t.requires_grad])
            gb = self.backward(b, [t for t in tensors(mine) if t.requires_grad])
            if ga is not None:
                ran = True
                self.same(ga, gb, "the gradient", self.script(row, s, call, "gradient"))
        return True if ran else None

    def graph(
        self,
        row: Row,
        samples: list[OperatorSample],
        candidate: OnSample,
        call: CallNames,
    ) -> bool | None:
        ran = None
        for s in samples:
            leaves = tensors(s)
            if not leaves:
                continue
            ran = True
            self.graph_of(
                row, lambda *a: candidate(refilled(s, a)), leaves, (), self.script(row, s, call, "graph")
            )
        return ran

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
        checker = self

        class ParityGraph(self.pair.candidate.nn.Graph):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                if hasattr(self.config, "set_backend"):
                    self.config.set_backend(checker.backend)
                for i, m in enumerate(modules):
                    setattr(self, f"module{i}", m)

            def build(self, *graph_inputs: Any) -> Any:
                result = function(*graph_inputs)
                gradients = checker.backward(result, trained_leaves(graph_inputs, modules))
                tensors = list(tensors_of(result, checker.pair.is_candidate_tensor))
                return tensors, [g for g in gradients or [] if g is not None]

        return ParityGraph()

    def against_numpy(self, row: Row, op: OpInfo, candidate: OnSample, call: CallNames) -> bool | None:
        """float64 against the NumPy function torch's table names."""
        torch = self.torch
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
                result = candidate(copied(s))
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
                raise Failure(str(e), self.script(row, s, call)) from None
        return ran

    def dtypes(
        self,
        row: Row,
        op: OpInfo,
        reference: OnSample,
        candidate: OnSample,
        call: CallNames,
    ) -> bool | None:
        torch, ran = self.torch, []
        for name in DTYPES:
            dtype = getattr(torch, name)
            if dtype in op.dtypes:
                samples = operator_samples(op, dtype, limit=2)
                try:
                    if self.agree(row, samples, reference, candidate, call):
                        ran.append(name)
                except Failure as e:
                    raise Failure(f"{name}: {e.detail}", e.script) from None
        if not ran:
            return None
        row["dtypes"] = ran
        return True

    # ------------------------------------------------------------------ helpers
    def guarded(self, sample: object, call: Callable[[], Any], name: str, script: str = "") -> Any:
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

    def script(self, row: Row, s: OperatorSample, call: CallNames, column: str = "eager") -> str:
        return snippets.function_snippet(self.candidate_name, *call, s, column)

    def module_script(self, row: Row, s: ModuleSample, column: str = "eager") -> str:
        return snippets.module_snippet(self.candidate_name, row["name"].removeprefix("oneflow."), s, column)

    @property
    def candidate_name(self) -> str:
        return getattr(self.pair.candidate, "__name__", "candidate")


REFUSED = object()
