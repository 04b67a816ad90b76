"""A pytest plugin that runs one file of another project's tests on one side, and writes what each test did.

    UPSTREAM=settings.json python -m pytest -p upstream_side FILE

The side "oneflow" turns the drop-in import on before any file of the suite is imported, except for OneFlow's
own tests. The side "torch" never imports oneflow. The journal has one JSON line when a test starts and one
when it ends, so a test that ends the process is known, and the next process continues after it.
"""

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upstream_adapters import add_missing_names

SETTINGS: dict[str, Any] = json.loads(Path(os.environ["UPSTREAM"]).read_text(encoding="utf-8"))
JOURNAL = Path(SETTINGS["journal"])
_errors: dict[str, list[str]] = {}  # test -> the class of its error, and the classes above it
_results: dict[str, list[str]] = {}
# The result of a test is the first of these that one of its phases or subtests has.
RANKS = ("timeout", "error", "failed", "xpassed", "xfailed", "skipped", "passed")


def enable_side() -> None:
    """Adapt the helpers of the suite, then turn the drop-in import on for this side."""
    add_missing_names(SETTINGS["adapter"])
    if SETTINGS["device"]:
        os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = SETTINGS["device"]
        _instantiate_for(SETTINGS["device"])
    if SETTINGS["drop_in"]:
        import oneflow.mock_torch

        oneflow.mock_torch.enable()


def _instantiate_for(device: str) -> None:
    """Make torch's generator of tests for each device ignore `only_for`, which names another device."""
    from torch.testing._internal import common_device_type

    instantiate = common_device_type.instantiate_device_type_tests

    def instantiate_for_device(*args: Any, **options: Any) -> None:
        instantiate(*args, **{**options, "only_for": device})

    common_device_type.instantiate_device_type_tests = instantiate_for_device


enable_side()


def write_line(**entry: object) -> None:
    """Append one line to the journal at once, because the test may end the process."""
    with JOURNAL.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def seed_generators() -> None:
    """Seed the random numbers, so that both sides sample the same values."""
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def position_of(test_id: str, seed: int) -> int:
    """Return a random number below 2**64 that depends on the name of a test and the seed only."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{test_id}".encode()).digest()[:8], "big")


def is_sampled(test_id: str, fraction: float, seed: int) -> bool:
    """Whether a test belongs to the sample."""
    return position_of(test_id, seed) < fraction * 2**64


def pytest_collectstart() -> None:
    seed_generators()


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        text = str(report.longrepr)[-2000:]
        result = "skipped" if needs_missing_package(text) else "error"
        write_line(id=report.nodeid, result=result, error="not collected", text=text)


def needs_missing_package(text: str) -> bool:
    """Whether a file cannot be imported because a package other than torch and oneflow is not installed."""
    package = re.search(r"ModuleNotFoundError: No module named '(\w+)", text)
    return package is not None and package[1] not in ("torch", "oneflow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only, done = SETTINGS["only"], {*SETTINGS["done"]}
    items[:] = [
        item
        for item in items
        if item.nodeid not in done
        and (
            item.nodeid in only
            if only is not None
            else is_sampled(item.nodeid, SETTINGS["sample"], SETTINGS["seed"])
        )
    ]
    if SETTINGS.get("budget"):
        items.sort(key=lambda item: position_of(item.nodeid, SETTINGS["seed"]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    write_line(id=item.nodeid, started=True)
    seed_generators()
    start = time.monotonic()
    result = yield
    results = _results.pop(item.nodeid, ["passed"])
    properties = dict(item.user_properties)
    classes = _errors.pop(item.nodeid, [properties.get("outcome", "")])
    write_line(
        id=item.nodeid,
        result=min(results, key=RANKS.index),
        error=classes[0],
        bases=classes[1:],
        details=properties.get("details", []),
        note=properties.get("note", ""),
        seconds=round(time.monotonic() - start, 2),
    )
    SETTINGS["spent"] = SETTINGS.get("spent", 0) + time.monotonic() - start
    if SETTINGS.get("budget") and SETTINGS["spent"] > SETTINGS["budget"]:
        item.session.shouldstop = "the time of the sample is over"
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    result = report.outcome
    if hasattr(report, "wasxfail"):
        result = {"skipped": "xfailed", "passed": "xpassed"}.get(result, result)
    if result == "failed":
        is_timeout = call.excinfo is not None and "Timeout (>" in str(call.excinfo.value)
        result = "timeout" if is_timeout else "failed" if report.when == "call" else "error"
        _errors.setdefault(
            item.nodeid, [cls.__name__ for cls in call.excinfo.type.__mro__] if call.excinfo else []
        )
    _results.setdefault(item.nodeid, []).append(result)
    return report
