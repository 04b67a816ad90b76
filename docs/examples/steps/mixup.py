"""mixup: each batch is mixed with itself in another order, by a weight that NumPy samples from a Beta distribution.

    python docs/examples/steps/mixup.py
"""
import numpy as np
import torch
from torch import nn

import oneflow as flow

CLASSES, BATCH = 5, 64


def mixup_data(x, y, alpha=0.4):
    """Mixed inputs, the two targets of each row, and the weight of the first."""
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index], y, y[index], lam


def mixup_criterion(criterion, prediction, y_a, y_b, lam):
    return lam * criterion(prediction, y_a) + (1 - lam) * criterion(prediction, y_b)


def sample_clusters(centers, count):
    labels = torch.randint(CLASSES, (count,))
    return centers[labels] + torch.randn(count, centers.shape[1]), labels


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    np.random.seed(0)
    centers = 2 * torch.randn(CLASSES, 8)
    model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    def train_step(x, y):
        inputs, targets_a, targets_b, lam = mixup_data(x, y)
        outputs = model(inputs)
        loss = mixup_criterion(criterion, outputs, targets_a, targets_b, lam)
        predicted = outputs.argmax(1)
        correct = lam * predicted.eq(targets_a).sum().item() + (1 - lam) * predicted.eq(targets_b).sum().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item(), correct

    train_step = compile_step(train_step)
    losses, correct = [], 0.0
    for _ in range(steps):
        loss, hits = train_step(*sample_clusters(centers, BATCH))
        losses.append(loss)
        correct += hits
    return losses, [*model.parameters(), *model.buffers(), torch.tensor(correct)]


if __name__ == "__main__":
    losses, left = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {left[-1] / BATCH / len(losses):.1%} right")
