"""A GAN that learns eight clusters on a circle: the step updates the discriminator, then the generator.

    python docs/examples/steps/gan.py
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

NOISE, BATCH = 8, 64


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs))


def sample_clusters(count):
    angles = torch.randint(8, (count,)) * (math.pi / 4)
    return torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(count, 2)


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    generator, discriminator = mlp(NOISE, 2), mlp(2, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def train_step(real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), NOISE))

        optimizer_d.zero_grad()
        loss_real = F.binary_cross_entropy_with_logits(discriminator(real), ones)
        loss_fake = F.binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros)
        loss_d = loss_real + loss_fake
        loss_d.backward()
        optimizer_d.step()

        optimizer_g.zero_grad()
        loss_g = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()

        losses.append((loss_d.item(), loss_g.item()))

    losses = []
    train_step = compile_step(train_step)
    for _ in range(steps):
        train_step(sample_clusters(BATCH))
    return losses, [*generator.parameters(), *discriminator.parameters()]


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss of the discriminator {losses[0][0]:.4f} -> {losses[-1][0]:.4f}, of the generator {losses[0][1]:.4f} -> {losses[-1][1]:.4f}")
