"""`lr_scale` of a parameter group: a factor on its rate, in eager steps and in graphs."""

import pytest

import oneflow as flow
import oneflow.nn as nn

# a weight of ones after three steps of gradient 1 with lr 0.1, lr_scale 0.5 and StepLR(2, 0.1): recorded from
# graphs of OneFlow 0.9.0
RECORDED = {
    "SGD": ({}, 0.895),
    "momentum": ({"momentum": 0.9}, 0.84145004),
    "AdamW": ({"weight_decay": 0.1}, 0.8848301),
    "LAMB": ({}, 0.8979875),
    "Adagrad": ({}, 0.9117579),
    "RMSprop": ({}, 0.11654685),
}


def trained(graph, kind, options):
    scaled, plain, x = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), flow.ones(1, 2)
    nn.init.ones_(scaled.weight), nn.init.ones_(plain.weight)
    optimizer = kind(
        [
            {"params": scaled.parameters(), "lr": 0.1, "lr_scale": 0.5},
            {"params": plain.parameters(), "lr": 0.1},
        ],
        **options,
    )
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_backend("aten")
            self.a, self.b = scaled, plain
            self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self, x):
            loss = (self.a(x) + self.b(x)).sum()
            loss.backward()
            return loss

    step = Train() if graph else None
    for _ in range(3):
        if graph:
            step(x)
            continue
        (scaled(x) + plain(x)).sum().backward()
        optimizer.step(), schedule.step(), optimizer.zero_grad()
    assert [round(g["lr"], 9) for g in optimizer.param_groups] == [0.01, 0.01]
    return scaled.weight[0, 0].item(), plain.weight[0, 0].item()


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name", RECORDED)
def test_a_group_learns_at_its_own_scale(name, graph):
    options, want = RECORDED[name]
    scaled, plain = trained(graph, getattr(flow.optim, "SGD" if name == "momentum" else name), options)
    assert scaled == pytest.approx(want, abs=2e-6) and plain < scaled


def test_the_rate_is_scaled_once_and_given_back_after_an_error():
    class Twice(flow.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    p = nn.Parameter(flow.ones(1))
    optimizer = Twice([{"params": [p], "lr": 0.5, "lr_scale": 0.5}])
    p.sum().backward()
    optimizer.step()
    assert p.item() == 0.75
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    optimizer.step()
    assert p.item() == 0.5
