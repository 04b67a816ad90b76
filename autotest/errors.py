"""The errors that a comparison raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .case import Step


class Mismatch(AssertionError):
    """The two sides differ. `check` names the check that found it, `mode` is "eager" or "graph".

    `report` is the text that follows the message.
    """

    mode, report = "eager", ""
    # how far the candidate is, in ULP; inf for a difference that has no size
    distance = float("inf")
    # {dtype: (rtol, atol)} by which the printed script sees the difference, if the usual ones hide it
    tolerance: dict[str, tuple[float, float]] | None = None
    # the step of the case whose result differs, if the check knows it
    differing_step: Step | None = None

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"{check}: {message}")
        self.check = check


class PyTorchDoesNotSupportError(Exception):
    """The reference refused the call; inside `autotest`, another case is sampled."""

    def __init__(self, exc: Exception) -> None:
        super().__init__(exc)
        self.exc = exc

    def __str__(self) -> str:
        return f"PyTorch error: {self.exc}"


class BothDoNotSupportError(PyTorchDoesNotSupportError):
    """Both sides refused the call: they agree, and the case does not count as a run."""

    def __init__(self, th_exc: Exception, of_exc: Exception) -> None:
        super().__init__(th_exc)
        self.th_exc, self.of_exc = th_exc, of_exc

    def __str__(self) -> str:
        return f"PyTorch error: {self.th_exc}\nOneFlow error: {self.of_exc}"


class OneFlowGraphBuildOrRunError(Mismatch):
    """The program runs eagerly, but not as a graph."""

    def __init__(self, exc: Exception) -> None:
        super().__init__(
            "graph raised", f"the program runs eagerly, but its graph raised {type(exc).__name__}: {exc}"
        )
        self.exc = exc
