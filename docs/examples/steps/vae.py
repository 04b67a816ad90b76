"""A variational autoencoder of small images of bars, whose step returns both terms of its loss.

    python docs/examples/steps/vae.py
"""
import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

SIDE, BATCH, LATENT = 8, 64, 4


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 64), nn.ReLU())
        self.mean, self.log_var = nn.Linear(64, LATENT), nn.Linear(64, LATENT)
        self.decoder = nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, SIDE * SIDE))

    def reparameterize(self, mean, log_var):
        if not self.training:
            return mean
        std = torch.exp(0.5 * log_var)
        return mean + torch.randn_like(std) * std

    def forward(self, images):
        h = self.encoder(images)
        mean, log_var = self.mean(h), self.log_var(h)
        return self.decoder(self.reparameterize(mean, log_var)).view_as(images), mean, log_var


def sample_bars(count):
    """Images whose rows or columns are lit."""
    lit = (torch.rand(count, SIDE, 1) < 0.3).float().expand(-1, -1, SIDE)
    return torch.where(torch.rand(count, 1, 1) < 0.5, lit, lit.transpose(1, 2))


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def train_step(images):
        model.train()
        optimizer.zero_grad()
        logits, mean, log_var = model(images)
        reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="sum") / len(images)
        kl = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp()) / len(images)
        loss = reconstruction + kl
        loss.backward()
        optimizer.step()
        return loss.item(), reconstruction.item(), kl.item()

    train_step = compile_step(train_step)
    losses = [train_step(sample_bars(BATCH)) for _ in range(steps)]
    return losses, list(model.parameters())


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss {losses[0][0]:.4f} -> {losses[-1][0]:.4f}, KL term {losses[0][2]:.4f} -> {losses[-1][2]:.4f}")
