"""Early stopping: training ends once the validation loss has not improved for a while, with the best weights.

    python docs/examples/steps/early_stopping.py
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow


class EarlyStopping:
    """Counts the steps without a better loss, and keeps the weights of the best one."""

    def __init__(self, patience=5, delta=0.0):
        self.patience, self.delta = patience, delta
        self.best_loss, self.best_weights, self.counter, self.stops = float("inf"), None, 0, False

    def __call__(self, loss, model):
        if loss < self.best_loss - self.delta:
            self.best_loss, self.counter = loss, 0
            self.best_weights = copy.deepcopy(model.state_dict())
        else:
            self.counter += 1
            self.stops = self.counter >= self.patience


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    truth = torch.randn(8, 1)
    x, x_valid = torch.randn(32, 8), torch.randn(64, 8)
    y, y_valid = (rows @ truth + torch.randn(len(rows), 1) for rows in (x, x_valid))
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))  # it soon learns the noise of 32 rows
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    early_stopping = EarlyStopping()

    def train_step(x, y):
        model.train()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            valid_loss = F.mse_loss(model(x_valid), y_valid)
        early_stopping(valid_loss.item(), model)
        return loss.item(), valid_loss.item()

    train_step = compile_step(train_step)
    losses = []
    for _ in range(steps):
        losses.append(train_step(x, y))
        if early_stopping.stops:
            break
    model.load_state_dict(early_stopping.best_weights)
    return losses, list(model.parameters())


if __name__ == "__main__":
    losses, _ = main()
    print(f"{len(losses)} steps: loss {losses[0][0]:.4f} -> {losses[-1][0]:.4f}, validation {losses[0][1]:.4f} -> {losses[-1][1]:.4f}")
