"""torch models and torch optimizers in nn.Graph: ten training steps are bitwise equal to eager on the aten
backend.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow


class Pooled(nn.Module):
    """Attention over a sequence into one vector: a product with a row, whose strides eager recomputes."""

    def __init__(self):
        super().__init__()
        self.body, self.score, self.head, self.drop = (
            nn.Linear(16, 16),
            nn.Linear(16, 1),
            nn.Linear(16, 4),
            nn.Dropout(0.2),
        )

    def forward(self, x):
        x = self.drop(self.body(x))
        return self.head((F.softmax(self.score(x), dim=1).transpose(-1, -2) @ x).squeeze(-2))


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 8), nn.Linear(4, 4)

    def forward(self, x):
        mean, log = self.encode(x.mean(1)).chunk(2, -1)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * log).exp())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(16, 8, 2, dropout=0.3, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = (
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
            ),
            nn.Linear(16, 4),
        )

    def forward(self, x):
        return self.head(self.body(x).mean(1))


OPTIMIZERS = {
    "AdamW": dict(lr=1e-2, weight_decay=0.1),
    "SGD": dict(lr=0.1, momentum=0.9, nesterov=True),
    "NAdam": dict(lr=1e-2),
    "RMSprop": dict(lr=1e-3, momentum=0.5),
}


@pytest.mark.parametrize(
    "model, optimizer",
    list(zip([Pooled, Variational, Recurrent, Encoder], OPTIMIZERS, strict=True)),
    ids=["pooled", "variational", "recurrent", "encoder"],
)
def test_ten_steps(model, optimizer):
    torch.manual_seed(0)
    eager = model()
    graphed, x, y = copy.deepcopy(eager), torch.randn(4, 12, 16), torch.tensor([0, 3, 1, 2])
    rules = [
        getattr(torch.optim, optimizer)(m.parameters(), **OPTIMIZERS[optimizer]) for m in (eager, graphed)
    ]
    schedules = [torch.optim.lr_scheduler.StepLR(rule, 4, 0.5) for rule in rules]

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = graphed
            self.add_optimizer(rules[1], lr_sch=schedules[1])
            self.config.set_backend("aten")

        def build(self, x, y):
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            return loss

    torch.manual_seed(1)
    want = []
    for _ in range(10):
        rules[0].zero_grad()
        loss = F.cross_entropy(eager(x), y)
        loss.backward()
        rules[0].step()
        schedules[0].step()
        want.append(loss.item())
    torch.manual_seed(1)
    step = Step()
    assert [step(x, y).item() for _ in range(10)] == want
    assert all(torch.equal(a, b) for a, b in zip(eager.state_dict().values(), graphed.state_dict().values()))
