"""Settings of a run: environment variables, and what the pytest plugin sets instead; options of a test."""

from __future__ import annotations

import os
from dataclasses import dataclass

# name: (default, meaning); the only place of the package that reads the environment
VARIABLES = {
    "ONEFLOW_TEST_CPU_ONLY": ("", "sample only the CPU as a device"),
    "ONEFLOW_TEST_VERBOSE": ("", "print every step of the program as it runs, and the graph's debug output"),
    "ONEFLOW_TEST_TENSOR_SIZE_LIMIT_MB": ("32", "refuse larger tensors in a case"),
    "ONEFLOW_TEST_N": ("", "valid cases per test, instead of the test's own n"),
    "ONEFLOW_TEST_SECONDS": ("", "time of a test; it ends after the case in which the time is over"),
    "ONEFLOW_TEST_SEED": (
        "",
        "seed of the sampled cases; date: that of today; empty: fixed in CI, a new one elsewhere",
    ),
    "ONEFLOW_TEST_LIKE": (
        "",
        "how cases are sampled: kernels (what breaks kernels), oneflow (OneFlow's defaults); empty: as the"
        " test says",
    ),
    "ONEFLOW_TEST_GRAPH": ("on", "on, off or all: the graph check as the test asks, never, or always"),
    "ONEFLOW_TEST_GRAPH_BACKEND": ("aten", "backend of the graphs: aten, inductor, ..."),
    "ONEFLOW_TEST_ERRORS": (
        "class",
        "class: both sides must raise related classes; any: both must raise; no: a refusal of the reference"
        " is enough",
    ),
    "ONEFLOW_TEST_SHRINK_SECONDS": ("10", "stop shrinking a failure after this time"),
    "ONEFLOW_TEST_DATABASE": (
        "",
        "folder of failing examples; empty: Hypothesis's default, none in CI; none: never",
    ),
    "ONEFLOW_TEST_FAILURES": ("autotest_failures", "folder of the scripts of failures; none: no files"),
    "ONEFLOW_TEST_HISTORY": ("", "file to which each run of pytest adds a line for each test"),
    "ONEFLOW_QUIET": ("", "1: no progress lines of parity and fuzz runs"),
    "CI": ("", "set by CI services"),
    "GITHUB_ACTIONS": ("", "set by GitHub; failures are annotated at the line of the test"),
    "WORLD_SIZE": (
        "1",
        "set by the launcher; with several ranks, all sample the same cases, and a failure is not shrunk",
    ),
    "PYTEST_CURRENT_TEST": ("", "set by pytest"),
    "ONEFLOW_PROFILE_WARMUP_NUM": ("10", "calls of a profiled operator before measuring"),
    "ONEFLOW_PROFILE_RUN_NUM": ("1000", "measured calls of a profiled operator"),
    "ONEFLOW_PROFILE_CSV": ("op_prof", "file that python -m oneflow.autoprof writes, without its ending"),
    "ONEFLOW_PROFILE_VERBOSE": ("", "print the profiler's tables"),
}

CHOICES = {
    "ONEFLOW_TEST_GRAPH": ("on", "off", "all"),
    "ONEFLOW_TEST_ERRORS": ("class", "any", "no"),
    "ONEFLOW_TEST_LIKE": ("", "kernels", "oneflow"),
}

overrides: dict[str, str] = {}  # set by the pytest plugin and by tests


def get(name: str) -> str:
    value = overrides[name] if name in overrides else os.environ.get(name, VARIABLES[name][0])
    if value not in CHOICES.get(name, (value,)):
        raise ValueError(
            f"environment variable {name} must be one of {', '.join(CHOICES[name])}, found {value!r}"
        )
    return value


def get_int(name: str, default: int | None = None) -> int:
    value = get(name)
    if value == "" and default is not None:
        return default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"environment variable {name} must be a whole number, found {value!r}") from None


def get_float(name: str) -> float:
    """Return a number; 0 for an empty value."""
    value = get(name)
    try:
        return float(value or 0)
    except ValueError:
        raise ValueError(f"environment variable {name} must be a number, found {value!r}") from None


def is_set(name: str) -> bool:
    """True for any value but the empty one, "0", "false", "off" and "no"."""
    return get(name).lower() not in ("", "0", "false", "off", "no")


def several_ranks() -> bool:
    """Every rank must draw the same cases."""
    return get_int("WORLD_SIZE") > 1


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
    like: str = "kernels"
    gradcheck: bool = False
