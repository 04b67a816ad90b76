"""A denoising diffusion model of points on a spiral, with an exponential moving average of its weights.

    python docs/examples/steps/ddpm.py
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

TIMES, BATCH = 100, 128


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.times = nn.Embedding(TIMES, width)
        self.inputs, self.hidden, self.outputs = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x, t):
        return self.outputs(F.silu(self.hidden(F.silu(self.inputs(x) + self.times(t)))))


class EMA:
    """A moving average of a model's weights, which forgets faster in the first steps."""

    def __init__(self, model, decay=0.99):
        self.model, self.decay, self.updates = copy.deepcopy(model).requires_grad_(False), decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for average, weight in zip(self.model.parameters(), model.parameters()):
            average.mul_(decay).add_(weight, alpha=1 - decay)


def sample_spiral(count):
    turn = 9 * torch.rand(count).sqrt()
    return torch.stack([turn * turn.cos(), turn * turn.sin()], 1) / 6


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    model = Denoiser()
    ema = EMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    alphas_bar = (1 - torch.linspace(1e-4, 0.05, TIMES)).cumprod(0)

    def train_step(x):
        t = torch.randint(0, TIMES, (len(x),))
        noise, alpha = torch.randn_like(x), alphas_bar[t].unsqueeze(1)
        noisy = alpha.sqrt() * x + (1 - alpha).sqrt() * noise
        loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ema.update(model)
        return loss

    train_step = compile_step(train_step)
    losses = [train_step(sample_spiral(BATCH)).item() for _ in range(steps)]
    return losses, [*model.parameters(), *ema.model.parameters()]


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
