"""Training steps of libraries for PyTorch through flow.compile_step: aten gives the bits of eager mode."""

import pytest
from compiled import compared, state_of
from library_programs import PROGRAMS
from op_samples import seed_all


def make_training(name):
    """Return a step, a function that returns the state, and the arguments of the calls."""
    seed_all(3)
    training = PROGRAMS[name]()
    model, optimizer = training.model.train(), training.optimizer([*training.model.parameters()])

    def step(*batch):
        optimizer.zero_grad()
        loss = training.loss(model, *batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (
        step,
        lambda: [*model.state_dict().values(), *state_of(optimizer)],
        training.batches,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_step(name, record_property):
    _, _, batches = make_training(name)
    calls = [lambda batch=batch: tuple(t.clone() for t in batch) for batch in batches]
    record_property("note", compared(lambda: make_training(name)[:2], calls))
