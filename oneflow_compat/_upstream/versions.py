"""The installed version of torch, and the versions that this package was tested with."""

import torch

# Written by tests/tools/record_results.py
CHECKED: dict[str, str] = {  # version -> the tests that passed
    "2.13.0": "the whole suite",
    "2.15.0": "the whole suite",
}


def torch_is_before(version: str) -> bool:
    """Whether the installed torch is older than a version ("2.13"). A pre-release counts as its release."""
    return _release(torch.__version__) < _release(version)


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])
