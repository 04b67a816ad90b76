"""The guard fuzzer: a fixed corpus of changes that graphs follow, and self-tests with a planted missed
change.
"""

import collections

import fuzz_guards
import pytest
import torch
from guard_facts import ANNOUNCED, FACTS
from guard_worlds import BODIES, MODELS, Program, World, same


@pytest.mark.parametrize("seed", [1003, 1006])
def test_changed_modules_and_optimizers_are_followed(seed):
    results = list(fuzz_guards.run_program(seed, trials=3, share=0.0))
    assert results and all(not result.isupper() for _, result in results), results


def test_programs_draw_every_kind():
    programs = [Program(seed) for seed in range(400)]
    assert set(BODIES) <= {p.body for p in programs} <= {*BODIES, *MODELS}
    assert {f.kind for p in programs for f in p.facts} == {f.kind for f in (*FACTS, *ANNOUNCED)}
    assert len({c.__name__ for c in fuzz_guards.CHANGES}) == len(fuzz_guards.CHANGES) > 35


def test_a_missed_change_is_silent_and_a_named_one_is_warned():
    first, second = [torch.zeros(2)], [torch.ones(2)]
    assert not same(first, second) and same(first, [torch.zeros(2)])
    assert fuzz_guards.verdict((first, None), (second, None), ["graph G: K3_ is fixed"], ("K3_",)) == "warned"
    assert fuzz_guards.verdict((first, None), (second, None), ["graph G: K3_ is fixed"], ("K4_",)) == "SILENT"
    assert fuzz_guards.verdict((first, None), (None, KeyError("weight")), [], ()) == "UNREADABLE"


def test_a_program_whose_guard_is_off_is_found(monkeypatch):
    """As if no guard looked at what build() read, or at optimizers."""
    from oneflow._graph.guards import optimizers
    from oneflow._graph.guards.checkers import checker_of
    from oneflow._graph.guards.guard_set import GuardSet

    monkeypatch.setattr(GuardSet, "check", lambda self, rebind: None)
    monkeypatch.setattr(optimizers, "checker_of", lambda guards: checker_of([]))
    results = collections.Counter(
        result for seed in (1000, 1006) for _, result in fuzz_guards.run_program(seed, trials=3, share=0.0)
    )
    assert results["SILENT"] + results["UNREADABLE"]


def test_a_step_that_only_rounding_decides_is_not_compared():
    """Attention's key bias has the gradient zero up to rounding; Adam makes a whole step of it."""
    torch.manual_seed(0)
    world = World.__new__(World)
    world.model = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    world.optimizer = torch.optim.Adam(world.model.parameters(), lr=0.01)
    x = torch.randn(2, 3, 4)
    world.model(x, x, x)[0].square().sum().backward()
    (bias,) = (s for t, s in zip(world.tensors(), world.rounding_steps()) if t is world.model.in_proj_bias)
    assert bias.tolist() == [False] * 4 + [True] * 4 + [False] * 4

    def values(query, key):
        return [torch.zeros(()), torch.zeros(()), torch.tensor([query] * 4 + [key] * 4 + [0.0] * 4)]

    def verdict(first, second):
        return fuzz_guards.verdict((first, None), (second, None), [], (), 1e-2, [bias])

    assert verdict(values(0.0, 0.05), values(0.0, -0.05)) == "same"
    assert verdict(values(0.0, 0.05), values(0.1, 0.05)) == "SILENT"


def test_a_seed_is_a_program():
    assert Program(11).source() == Program(11).source() != Program(12).source()
    eager, again = World(Program(11), "eager"), World(Program(11), "eager")
    assert same(eager.call(), again.call())
