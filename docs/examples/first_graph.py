"""A first graph: forward, backward and update of a small classifier as one program."""
import oneflow as flow
import oneflow.nn as nn


class TrainStep(nn.Graph):
    def __init__(self, model, loss, optimizer):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(optimizer)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


flow.manual_seed(0)
x = flow.randn(1024, 20)
y = (x[:, :10].sum(1) > x[:, 10:].sum(1)).long()

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = TrainStep(model, nn.CrossEntropyLoss(), optimizer)

for epoch in range(5):
    losses = [step(x[i:i + 64], y[i:i + 64]).item() for i in range(0, 1024, 64)]
    print(f"epoch {epoch}: loss {losses[-1]:.4f}")
