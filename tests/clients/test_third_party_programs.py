"""The table of tests/clients/third_party.py: programs of public libraries train equally in eager mode and in
a graph, and failures are reported.
"""

import pytest
import third_party

import oneflow as flow
from oneflow import nn

QUICK = ("einops", "safetensors", "vit-pytorch SimpleViT")


@pytest.mark.parametrize(
    "program",
    [
        p if p.name.startswith(QUICK) else pytest.param(p, marks=pytest.mark.slow)
        for p in third_party.PROGRAMS
    ],
    ids=lambda p: p.name,
)
def test_program_trains_alike_in_both_modes(program):
    if third_party.version_of(program.package) is None:
        pytest.skip(f"needs {program.package}")
    assert third_party.row(program, "aten")["result"] == "equal"


def test_a_program_with_other_losses_in_a_graph_fails(monkeypatch):
    def make():
        layer = nn.Linear(2, 1)

        def loss(model, x):
            return model(x).sum() + (1.0 if flow._oneflow_internal.lazy_mode.is_enabled() else 0.0)

        return third_party.Training(layer, [(flow.ones(1, 2),)], loss)

    monkeypatch.setattr(third_party, "PROGRAMS", (third_party.Program("other losses", "torch", make),))
    assert third_party.row(third_party.PROGRAMS[0], "aten")["result"] == "FAILED: losses differ"
    assert third_party.main([]) == 1


def test_a_library_that_is_not_installed_is_listed():
    program = third_party.Program("none", "no-such-library-anywhere", lambda: None)
    assert third_party.row(program, "aten")["result"] == "missing: pip install no-such-library-anywhere"


def test_a_module_that_a_library_lacks_is_listed():
    def make():
        import no_such_module_anywhere  # noqa: F401

    assert (
        third_party.row(third_party.Program("lacks", "torch", make), "aten")["result"]
        == "missing: pip install no_such_module_anywhere"
    )
