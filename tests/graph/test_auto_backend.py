"""The default backend: aten at once, inductor when it pays."""
import shutil

import oneflow.nn as nn
import pytest
import torch
from oneflow._graph.backends import auto


def graph():
    class Double(nn.Graph):
        def build(self, x):
            return (x * 2).sin()

    made = Double()
    made.config.set_backend("auto")
    return made


def state_of(g):
    return g._engine._last.run


def test_a_short_program_called_a_few_times_is_never_compiled(monkeypatch):
    monkeypatch.setattr(auto.inductor, "compile", lambda *a: pytest.fail("compiled"))
    monkeypatch.setattr(auto, "LONG", 1e9)
    g = graph()
    for _ in range(20):
        g(torch.ones(3))
    assert state_of(g).backend == "aten"


@pytest.mark.parametrize("limits", [dict(LONG=0.0), dict(LONG=1e9, ENOUGH=0.0)])
def test_it_is_compiled_at_the_third_call_when_it_pays(monkeypatch, limits):
    seen = []
    monkeypatch.setattr(auto.inductor, "compile", lambda program, config: seen.append(program) or (lambda *v: (v[0] + 100,)))
    for name, value in limits.items():
        monkeypatch.setattr(auto, name, value)
    g = graph()
    outs = [g(torch.zeros(1)).item() for _ in range(4)]
    assert outs == [0.0, 0.0, 100.0, 100.0] and len(seen) == 1 and state_of(g).backend == "inductor"


@pytest.mark.parametrize("spent, backend", [(1.0, "aten"), (4.0, "inductor")])
def test_many_short_operators_are_compiled_once_they_took_as_long_as_the_compiler_will(monkeypatch, spent, backend):
    monkeypatch.setattr(auto.inductor, "compile", lambda *a: lambda *v: (v[0],))
    for name, value in dict(LONG=0.0, ENOUGH=0.0, MANY=1, SHORT=1e9, COMPILED=1.5).items():  # two operators: three seconds
        monkeypatch.setattr(auto, name, value)
    g = graph()
    g(torch.zeros(1)), g(torch.zeros(1))
    state_of(g).spent = spent
    g(torch.zeros(1))
    assert state_of(g).backend == backend


def test_when_inductor_fails_aten_goes_on_with_one_warning(monkeypatch):
    def broken(program, config):
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(auto.inductor, "compile", broken)
    monkeypatch.setattr(auto, "LONG", 0.0)
    g = graph()
    g(torch.zeros(1)), g(torch.zeros(1))
    with pytest.warns(UserWarning, match="no compiler today"):
        assert g(torch.zeros(1)).item() == 0.0
    assert g(torch.zeros(1)).item() == 0.0 and state_of(g).backend == "aten"


@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_switch_keeps_the_numbers(monkeypatch):
    monkeypatch.setattr(auto, "LONG", 0.0)
    g, x = graph(), torch.linspace(0, 1, 64)
    outs = [g(x) for _ in range(4)]
    assert state_of(g).backend == "inductor"
    assert torch.allclose(outs[0], outs[3], rtol=1e-6, atol=1e-7)  # sin of inductor's vector library and of ATen's, one ulp apart
