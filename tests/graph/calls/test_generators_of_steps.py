"""A step that seeds a generator, or sets or reads its state, samples and returns what eager mode does."""

import pytest
import torch

import oneflow as flow

pytestmark = [
    pytest.mark.eager_calls,
    pytest.mark.filterwarnings("ignore:.*no program can hold this call"),
]


def seeds(generator, seed):
    generator.manual_seed(seed)
    return torch.rand(2, generator=generator)


def samples_again(generator, seed):
    state = generator.get_state()
    first = torch.rand(2, generator=generator)
    generator.set_state(state)
    return first, torch.rand(2, generator=generator)


def samples_from_a_copy(generator, seed):
    return torch.rand(2, generator=generator.clone_state())


def asks_for_the_seed(generator, seed):
    before = torch.initial_seed()
    torch.manual_seed(-seed)
    return before, torch.initial_seed(), torch.rand(2)


def asks_for_a_seed_in_a_state(generator, seed):
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    torch.set_rng_state(state)
    return torch.initial_seed(), torch.rand(2)


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize(
    "step", [seeds, samples_again, samples_from_a_copy, asks_for_the_seed, asks_for_a_seed_in_a_state]
)
def test_seeds_and_states_are_those_of_eager_mode(step, is_default):
    def results(compile_step):
        torch.manual_seed(1)
        generator = torch.default_generator if is_default else torch.Generator().manual_seed(7)
        run = compile_step(lambda x, seed: (x, step(generator, seed)))
        found = [repr(run(torch.ones(1), seed)) for seed in (1, 2, 1, 1)]
        return found, generator.get_state().tolist()

    assert results(lambda step: flow.compile_step(step, backend="aten")) == results(lambda step: step)


def test_a_step_that_seeds_at_random_does_so_in_each_call():
    step = flow.compile_step(lambda x: x * torch.seed(), backend="aten")
    seen = set()
    for _ in range(3):
        step(torch.ones(1))
        seen.add(torch.initial_seed())
    assert len(seen) == 3
