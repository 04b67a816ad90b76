"""LBFGS: optimizer.step() calls a closure several times, which computes the loss and its gradients again.

    python docs/examples/steps/lbfgs.py
"""
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 64).unsqueeze(1)
    y = torch.sin(2 * x) + 0.05 * torch.randn_like(x)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=10)
    evaluations = 0

    def train_step(x, y):
        def closure():
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    train_step = compile_step(train_step)
    losses = [train_step(x, y) for _ in range(steps)]
    return losses, [*model.parameters(), torch.tensor(evaluations)]


if __name__ == "__main__":
    losses, left = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {left[-1]} evaluations")
