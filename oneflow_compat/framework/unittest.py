"""Examples in docstrings as tests."""

from __future__ import annotations

import doctest

__all__ = ["check_multi_rank_docstr"]


def check_multi_rank_docstr(module):
    """Run the examples in the docstrings of `module` and of its functions and classes on every rank.

    AssertionError with the failing examples of this rank; each rank runs the same ones, so collectives meet.
    """
    import oneflow

    report: list = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module, module.__name__):
        runner.run(test, out=report.append)
    result = (
        runner.summarize(verbose=False)
        if not runner.failures
        else doctest.TestResults(runner.failures, runner.tries)
    )
    if result.failed:
        raise AssertionError(
            f"rank {oneflow.env.get_rank()}: {result.failed} of {result.attempted} examples of"
            f" {module.__name__} failed\n{''.join(report)}"
        )
    return result
