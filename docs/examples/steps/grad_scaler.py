"""Loss scaling in float16: steps whose gradients overflow are skipped, and the schedule waits for them.

    python docs/examples/steps/grad_scaler.py
"""
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

CLASSES, BATCH = 5, 32


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    teacher = nn.Linear(16, CLASSES)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=8)  # too large for the first steps

    def train_step(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss, norm

    train_step = compile_step(train_step)
    losses, scales, skipped = [], [], 0
    for _ in range(steps):
        x = torch.randn(BATCH, 16)
        loss, norm = train_step(x, teacher(x).argmax(1))
        losses.append(loss.item())
        scales.append(scaler.get_scale())
        skipped += not norm.isfinite().item()
    return losses, [*model.parameters(), torch.tensor(scales), torch.tensor(skipped)]


if __name__ == "__main__":
    losses, left = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {left[-1]} steps skipped")
