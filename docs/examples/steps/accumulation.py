"""Gradient accumulation: a trainer counts its micro batches, and updates the weights after every fourth.

    python docs/examples/steps/accumulation.py
"""
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

ACCUMULATION, BATCH = 4, 16


class Trainer:
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.micro_step = self.global_step = 0

    def train_step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        (loss / ACCUMULATION).backward()
        self.micro_step += 1
        if self.micro_step % ACCUMULATION == 0:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.global_step += 1
        return loss.item()


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    truth = torch.randn(8, 2)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    trainer = Trainer(model, optimizer, scheduler)
    train_step = compile_step(trainer.train_step)
    losses = []
    for _ in range(steps):
        x = torch.randn(BATCH, 8)
        losses.append(train_step(x, x @ truth))
    return losses, [*model.parameters(), torch.tensor(trainer.global_step)]


if __name__ == "__main__":
    losses, left = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {left[-1]} updates")
