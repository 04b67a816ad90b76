"""MoCo: contrastive learning with a momentum encoder and a queue of keys.

    python docs/examples/steps/moco.py
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

INPUTS, BATCH = 16, 32


class MoCo(nn.Module):
    def __init__(self, dim=16, length=256, momentum=0.99, temperature=0.1):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.encoder_q = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, length), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_key_encoder(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * self.momentum + q.data * (1.0 - self.momentum)

    @torch.no_grad()
    def dequeue_and_enqueue(self, keys):
        ptr, count = int(self.queue_ptr), keys.shape[0]
        self.queue[:, ptr : ptr + count] = keys.T
        self.queue_ptr[0] = (ptr + count) % self.queue.shape[1]

    def forward(self, view_q, view_k):
        q = F.normalize(self.encoder_q(view_q), dim=1)
        with torch.no_grad():
            self.update_key_encoder()
            k = F.normalize(self.encoder_k(view_k), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.dequeue_and_enqueue(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    model = MoCo()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def train_step(view_q, view_k):
        logits, labels = model(view_q, view_k)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    train_step = compile_step(train_step)
    losses = []
    for _ in range(steps):
        views = torch.randn(BATCH, INPUTS) + 0.1 * torch.randn(2, BATCH, INPUTS)
        losses.append(train_step(*views))
    return losses, [*model.parameters(), *model.buffers()]


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
