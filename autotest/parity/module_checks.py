"""The checks of a module class: results, gradients and graph, with the reference's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..pair import Module
from . import snippets
from .arguments import copied
from .samples import changed, module_samples, transposed

if TYPE_CHECKING:
    import torch

    from .comparisons import Comparisons
    from .samples import ModuleInfo, ModuleSample
    from .table import Row


class ModuleChecks:
    """The checks that fill the row of one module class.

    A check returns True for pass, and None if it does not apply.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        row: Row,
        info: ModuleInfo,
        reference: Callable[..., torch.nn.Module],
        candidate: Callable[..., torch.nn.Module],
    ) -> None:
        self.comparisons, self.row, self.torch = comparisons, row, comparisons.torch
        self.reference, self.candidate = reference, candidate
        self.labelled = [
            (f"{mode} sample {i}", sample)
            for mode in ("training", "evaluation")
            for i, sample in enumerate(module_samples(info, self.torch.float32, training=mode == "training"))
        ]
        if self.labelled:
            label, sample = self.labelled[0]
            strided = sample._replace(args=changed(transposed, sample.args))
            self.labelled.append((f"{label}, transposed", strided))

    def fill(self) -> None:
        """Run all checks, if torch has samples of the module."""
        if not self.labelled:
            return
        for column in ("eager", "gradient", "graph"):
            self.row["scripts"][column] = self.script(self.labelled[0][1], column)
        self.comparisons.cell(self.row, "eager", self.eager)
        self.comparisons.cell(self.row, "gradient", self.gradient)
        self.comparisons.cell(self.row, "graph", self.graph)
        self.comparisons.devices(self.row, self.eager)

    def build(self, s: ModuleSample, device: str = "cpu") -> tuple[Module, Module]:
        """Return the modules of both sides with the same weights."""
        self.torch.manual_seed(0)
        reference = self.reference(*s.init_args, **s.init_kwargs)
        candidate = self.candidate(*s.init_args, **s.init_kwargs)
        self.comparisons.pair.copy_state(reference, candidate)
        return reference.to(device).train(s.training), candidate.to(device).train(s.training)

    def forward(self, s: ModuleSample, device: str = "cpu") -> tuple[Any, ...]:
        """Return the modules of both sides, and their results."""
        sides, results = self.build(s, device), []
        for module in sides:
            args, kwargs = copied((s.args, s.kwargs), device)
            self.torch.manual_seed(0)
            results.append(module(*args, **kwargs))
        return *sides, *results

    def eager(self, device: str = "cpu") -> bool | None:
        def agree(s: ModuleSample) -> bool:
            script = self.script(s)
            _, _, a, b = self.comparisons.guarded(lambda: self.forward(s, device), self.row["name"], script)
            self.comparisons.same(a, b, "the output", script)
            return True

        return self.comparisons.each(self.labelled, agree)

    def gradient(self) -> bool | None:
        def agree(s: ModuleSample) -> bool:
            script = self.script(s, "gradient")
            r, c, a, b = self.comparisons.guarded(lambda: self.forward(s), self.row["name"], script)
            expected = self.comparisons.backward(a, list(r.parameters()))
            gradients = self.comparisons.backward(b, list(c.parameters()))
            self.comparisons.same(expected, gradients, "the gradient of a parameter", script)
            return bool(expected)

        return self.comparisons.each(self.labelled, agree)

    def graph(self) -> bool | None:
        def agree(s: ModuleSample) -> bool | None:
            _, module = self.build(s)
            run = lambda *args: module(*args, **s.kwargs)
            return self.comparisons.graph_of(self.row, run, s.args, [module], self.script(s, "graph"))

        return self.comparisons.each(self.labelled[:2], agree)

    def script(self, s: ModuleSample, column: str = "eager") -> str:
        name = self.row["name"].removeprefix("oneflow.")
        return snippets.module_snippet(self.comparisons.candidate_name, name, s, column)
