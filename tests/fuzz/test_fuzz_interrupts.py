"""The fuzzer of interrupts: some of its seeds, and a test of what it compares."""

import fuzz_interrupts
import torch


def test_an_interrupted_call_changes_nothing_or_does_all():
    verdicts = [verdict for *_, verdict, _ in fuzz_interrupts.fuzz(range(12))]
    assert len(verdicts) == 12
    assert set(verdicts) <= {"nothing", "whole"}


def test_differences_name_what_differs():
    one = {"a": torch.zeros(2), "b": 1, "c": None}
    assert fuzz_interrupts.differences(one, {"a": torch.zeros(2), "b": 2, "c": torch.ones(1)}) == ["b", "c"]
