"""A full training step as one program, bitwise equal to eager (aten): optimizers, schedules, dropout,
buffers.
"""

import pytest
import torch
from graph_cases import assert_same_training
from torch import nn

import oneflow as flow


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def batches(count=10):
    torch.manual_seed(1)
    return [(torch.randn(6, 4), torch.randint(0, 2, (6,))) for _ in range(count)]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "asgd_averaging": lambda p: torch.optim.ASGD(p, lr=0.01, t0=2),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "flow_sgd": lambda p: flow.optim.SGD(p, lr=0.1, momentum=0.9),
    "flow_adam": lambda p: flow.optim.Adam(p, lr=0.01),
    "flow_adamw": lambda p: flow.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "flow_adagrad": lambda p: flow.optim.Adagrad(p, lr=0.01),
    "flow_adadelta": lambda p: flow.optim.Adadelta(p, lr=0.5),
    "flow_rmsprop": lambda p: flow.optim.RMSprop(p, lr=0.01),
    "flow_lamb": lambda p: flow.optim.LAMB(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_trains_as_eager(name):
    assert_same_training(small_model(), OPTIMIZERS[name], loss_of, batches())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_update_leaves_the_gradient_that_build_returns(name):
    parameters = nn.ParameterList([torch.tensor([1.0, -2.0]), torch.tensor([3.0])])

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.parameters_of_step = parameters
            self.add_optimizer(OPTIMIZERS[name](parameters.parameters()))
            self.config.set_backend("aten")

        def build(self, factor):
            sum((p * factor).sum() for p in parameters).backward()
            return [p.grad for p in parameters]

    graph = Step()
    for factor in (1.5, -0.5):
        first, second = graph(torch.tensor(factor))
        assert first.tolist() == [factor, factor] and second.tolist() == [factor]


@pytest.mark.parametrize("name", ["adam", "nadam", "radam", "asgd", "asgd_averaging"])
def test_numbers_in_the_state_go_on_in_another_program(name):
    """A batch of another size makes a second program, which starts with what the first one counted."""
    graph = assert_same_training(
        small_model(),
        OPTIMIZERS[name],
        loss_of,
        [tuple(t[: 6 - k % 3] for t in b) for k, b in enumerate(batches())],
    )
    assert len(graph._engine.programs) >= 2


SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=12),
    "warmup": lambda o: flow.optim.lr_scheduler.WarmUpLR(
        flow.optim.lr_scheduler.StepLR(o, 4), warmup_iters=5
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedule_trains_as_eager_in_one_program(name):
    graph = assert_same_training(
        small_model(), OPTIMIZERS["sgd_momentum"], loss_of, batches(), SCHEDULERS[name]
    )
    assert len(graph._engine.programs) == (2 if name == "one_cycle" else 1), (
        "a changed learning rate must not capture again"
    )
