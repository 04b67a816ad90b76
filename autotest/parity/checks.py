"""Filling the row of a function or of a module: both libraries on the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .comparisons import Comparisons
from .function_checks import FunctionChecks
from .module_checks import ModuleChecks
from .table import put

if TYPE_CHECKING:
    import torch

    from .samples import ModuleInfo, OpInfo
    from .table import Row


class Checker(Comparisons):
    """The checks of one pair of libraries."""

    def function(
        self,
        row: Row,
        op: OpInfo,
        reference: Callable[..., Any],
        candidate: Callable[..., Any],
        call: tuple[str, str] | None = None,
    ) -> None:
        """Check a function (or a tensor method called as one) on torch's samples.

        call: source text of the reference's and the candidate's function for the scripts.
        """
        short = row["name"].removeprefix("oneflow.")
        call = call or (f"torch.{short}", f"flow.{short}")
        FunctionChecks(self, row, op, reference, candidate, call).fill()

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
        put(row, "identity", "same" if reference is candidate else "own")
        ModuleChecks(self, row, info, reference, candidate).fill()
