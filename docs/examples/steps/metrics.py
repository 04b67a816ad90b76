"""Meters of the loss and of two accuracies, which the step updates, as in the ImageNet example of PyTorch.

    python docs/examples/steps/metrics.py
"""
import torch
from torch import nn

import oneflow as flow

CLASSES, BATCH = 10, 64


class AverageMeter:
    """The last value and the average of all values."""

    def __init__(self, name):
        self.name = name
        self.val, self.avg, self.sum, self.count = 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.val:.3f} ({self.avg:.3f})"


def accuracy(output, target, topk):
    """The percentage of rows whose target is among the k largest outputs, for each k."""
    with torch.no_grad():
        _, predicted = output.topk(max(topk), 1, True, True)
        correct = predicted.t().eq(target.view(1, -1))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / len(target)) for k in topk]


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    teacher = nn.Linear(16, CLASSES)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, top1, top5 = AverageMeter("Loss"), AverageMeter("Acc@1"), AverageMeter("Acc@5")

    def train_step(images, target):
        output = model(images)
        loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0].item(), images.size(0))
        top5.update(acc5[0].item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    train_step = compile_step(train_step)
    history = []
    for i in range(steps):
        images = torch.randn(BATCH, 16)
        train_step(images, teacher(images).argmax(1))
        history.append((losses.val, top1.avg, top5.avg))
        if i % 10 == 9:
            print(f"[{i + 1:3}/{steps}] {losses} {top1} {top5}")
    return history, list(model.parameters())


if __name__ == "__main__":
    history, _ = main()
    print(f"loss {history[0][0]:.4f} -> {history[-1][0]:.4f}")
