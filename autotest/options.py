"""class Options: how the cases of one test are checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Options:
    """How the cases of one test are checked."""

    auto_backward: object = True
    rtol: float | None = None
    atol: float | None = None
    check_graph: bool = True
    check_allclose: bool = True
    check_dtype: bool = False
    check_grad_use_random_data: bool = True
    include_complex: bool = False
    check_errors: str = "class"
    verbose: bool = False
