"""Eager training: dataset, loader, network, loss, optimizer, accuracy.

    python docs/examples/eager_training.py
"""
from sklearn.datasets import load_digits

import oneflow as flow
import oneflow.nn as nn
from oneflow.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(self.flatten(x))


def loaders(batch_size=32):
    """Training and test loader of the 8x8 digits."""
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(flow.tensor(images / 16, dtype=flow.float32).reshape(-1, 8, 8), flow.tensor(labels, dtype=flow.int64))
    train, test = flow.utils.data.random_split(data, [1500, len(data) - 1500], generator=flow.Generator().manual_seed(0))
    return DataLoader(train, batch_size=batch_size, shuffle=True, drop_last=True), DataLoader(test, batch_size=batch_size)


def train_epoch(model, loader, loss_fn, optimizer):
    """Train on every batch; return the mean loss."""
    model.train()
    losses = []
    for images, labels in loader:
        loss = loss_fn(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with flow.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


def main(epochs=4):
    flow.manual_seed(0)
    train, test = loaders()
    model = Net()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    score = 0.0
    for epoch in range(epochs):
        loss = train_epoch(model, train, loss_fn, optimizer)
        score = accuracy(model, test)
        print(f"epoch {epoch}: mean loss {loss:.3f}, test accuracy {score:.1%}")
    return score


if __name__ == "__main__":
    main()
