"""Run a program whose checks of values raise what eager mode raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..program.checks import class_of_message, makes_checks
from ..program.program import CompiledFunction, Program


def with_checks(program: Program, run: CompiledFunction) -> CompiledFunction:
    """Return `run`, whose failed checks raise an error of the class that build() raises in eager mode.

    The assertions of a program raise a RuntimeError, so the error is of that class, too.
    """
    if not makes_checks(program.graph):
        return run

    def run_checked(*values: Any) -> Sequence[Any]:
        try:
            return run(*values)
        except RuntimeError as error:
            error_class = class_of_message(str(error))
            if error_class is None:
                raise
            raise _also_runtime_error(error_class)(str(error)) from None

    return run_checked


def _also_runtime_error(error_class: type[Exception]) -> type[Exception]:
    if issubclass(error_class, RuntimeError):
        return error_class
    return type(error_class.__name__, (error_class, RuntimeError), {"__module__": __name__})
