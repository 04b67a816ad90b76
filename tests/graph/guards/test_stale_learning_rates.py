"""A learning rate that build() reads is an input of the program, or a graph follows its changes."""

import numpy as np
import pytest
import torch
from graph_cases import graph_of
from stale_state_cases import Net, assert_follows, option

# -- options of optimizers as inputs of the program ----------------------------------------------------------


def rate(model):
    return model.optimizer_of_build[0].param_groups[0]["lr"]


def programs_of_schedule(scale, make_optimizer=None):
    """The programs that a schedule makes while build() scales by the learning rate."""
    torch.manual_seed(1)
    model = Net(scale)
    optimizer = (make_optimizer or (lambda m: torch.optim.SGD(m.parameters(), lr=0.1)))(model)
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, model=model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for _ in range(5):
        graph(torch.randn(6, 4))
        schedule.step()
    return len(graph._engine.programs)


LIVE = [
    lambda m, y: y * rate(m),
    lambda m, y: y / (1 - rate(m) ** 2) + 2 ** rate(m) - rate(m),
    lambda m, y: y * sum(g["lr"] * i for i, g in enumerate(m.optimizer_of_build[0].param_groups, 1)),
    lambda m, y: y * dict(m.optimizer_of_build[0].param_groups[0].items())["lr"],
    lambda m, y: torch.add(y, y, alpha=rate(m)).clamp(min=-rate(m)) + torch.full((4,), rate(m)),
    lambda m, y: y.clone().mul_(rate(m)) if rate(m) > 1e-9 else y,
    lambda m, y: y * (1 - rate(m) ** 2) / (1 + m.optimizer_of_build[0].param_groups[0]["momentum"]),
    lambda m, y: y * float(rate(m)),
    lambda m, y: y * int(rate(m) * 100),
]


@pytest.mark.parametrize(
    "scale",
    LIVE,
    ids=["product", "power", "sum", "items", "operators", "branch", "two options", "float", "int"],
)
def test_one_program_serves_a_schedule_that_build_reads(scale):
    assert_follows(
        lambda model, optimizer: None,
        make=lambda: Net(scale),
        schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    )
    assert programs_of_schedule(scale) == 1
    assert_follows(option("lr", 0.01), make=lambda: Net(scale))


def as_float_in_try(rate):
    try:
        return float(f"{rate}")
    except Exception:
        return 5.0


@pytest.mark.parametrize(
    "scale",
    [
        lambda m, y: y * float(f"{rate(m):.4f}"),
        lambda m, y: y * (3 if isinstance(rate(m), float) else 1),
        lambda m, y: y * float(np.float32(rate(m))),
        lambda m, y: y * as_float_in_try(rate(m)),
        lambda m, y: y * {0.1: 2.0}.get(rate(m), 3.0),
        lambda m, y: torch.nn.functional.dropout(y, p=0.0 * rate(m)),
        lambda m, y: y * (2 if rate(m) < 0.06 else 1),
        lambda m, y: y + torch.tensor(m.optimizer_of_build[0].param_groups[0].get("lr")),
    ],
    ids=[
        "text",
        "isinstance",
        "numpy",
        "suppressed",
        "key",
        "option of an operator",
        "branch",
        "tensor",
    ],
)
def test_a_learning_rate_that_build_needs_as_a_number_is_followed(scale):
    assert_follows(
        lambda model, optimizer: None,
        make=lambda: Net(scale),
        schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    )
    assert programs_of_schedule(scale) > 1
    assert_follows(option("lr", 0.01), make=lambda: Net(scale))


@pytest.mark.parametrize("value", [1, 2])
def test_a_learning_rate_of_another_type_is_followed(value):
    assert_follows(option("lr", value), make=lambda: Net(LIVE[0]))


def test_a_graph_explains_that_build_needs_a_learning_rate_as_a_number():
    model = Net(lambda m, y: y * float(f"{rate(m)}"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.optimizer_of_build = [optimizer]

    def build(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    graph = graph_of(build, optimizer, model=model)
    graph(torch.randn(6, 4))
    assert (
        "because build() needs it as a number" in graph.explain()
        and "test_stale_learning_rates.py" in graph.explain()
    )


def test_an_error_of_build_leaves_the_options_of_its_optimizer_as_they_were():
    def fails(m, y):
        raise ValueError(f"refused {rate(m) > 0}")

    model = Net(fails)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.optimizer_of_build = [optimizer]
    graph = graph_of(lambda x: model(x).sum().backward(), optimizer, model=model)
    with pytest.raises(ValueError, match="refused True"):
        graph(torch.randn(6, 4))
    assert type(optimizer.param_groups[0]["lr"]) is float and optimizer.param_groups[0]["lr"] == 0.1
