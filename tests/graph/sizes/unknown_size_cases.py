"""Networks and training loops for tests of value-dependent sizes."""

import copy

import torch
import torch.nn.functional as F

import oneflow as flow


def batches():
    """Masks with some rows, none, all and one, as numbers to compare."""
    torch.manual_seed(1)
    numbers = [torch.rand(12) + shift for shift in (0, 0, 0, -1, 1)] + [
        F.one_hot(torch.tensor(7), 12).float()
    ]
    return [(torch.randn(12, 6), torch.randint(0, 5, (12,)), n) for n in numbers]


def trained(model, loss_of, data, make=lambda p: torch.optim.AdamW(p, lr=0.01)):
    """(eager's losses and state, the graph's, the graph) of a training by loss_of(model, *batch) on each
    batch.
    """
    other = copy.deepcopy(model)
    optimizers = make(model.parameters()), make(other.parameters())

    class G(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = other
            self.add_optimizer(optimizers[1])
            self.config.set_backend("aten")

        def build(self, *batch):
            loss = loss_of(self.m, *batch)
            loss.backward()
            return loss

    graph = G()
    expected = eager_losses(optimizers[0], lambda *batch: loss_of(model, *batch), data)
    torch.manual_seed(2)
    got = [graph(*batch).detach() for batch in data]
    return expected + list(model.state_dict().values()), got + list(other.state_dict().values()), graph


def seeded(kind):
    torch.manual_seed(0)
    return kind()


def eager_losses(optimizer, loss_of, batches):
    torch.manual_seed(2)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


class Positive(flow.nn.Graph):
    def __init__(self, function, backend="aten"):
        super().__init__()
        self.function = function
        self.config.set_backend(backend)

    def build(self, x):
        return self.function(x)
