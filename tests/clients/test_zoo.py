"""Reduced programs in the style of model zoos: three steps in eager mode and in a graph give bitwise equal
values.
"""

import copy
import itertools
import math

import pytest

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F


class MoCo(nn.Module):
    """A momentum encoder and a queue of keys, both written under no_grad in forward."""

    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(
            nn.Flatten(1), nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)
        )
        self.k = copy.deepcopy(self.q)
        for p in self.k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(flow.randn(8, 32), dim=0))

    def forward(self, x, y):
        q = F.normalize(self.q(x), dim=1)
        with flow.no_grad():
            for a, b in zip(self.q.parameters(), self.k.parameters()):
                b.data = b.data * 0.9 + a.data * (1.0 - 0.9)
            k = F.normalize(self.k(y), dim=1)
        positive = flow.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = flow.einsum("nc,ck->nk", q, self.queue.clone().detach())
        with flow.no_grad():
            self.queue.copy_(flow.cat([k.t(), self.queue[:, : -k.shape[0]]], dim=1))
        logits = flow.cat([positive, negative], dim=1) / 0.2
        return F.cross_entropy(logits, flow.zeros(logits.shape[0], dtype=flow.long))


class MAE(nn.Module):
    """Random masking by argsort and gather, loss on the hidden patches."""

    def __init__(self):
        super().__init__()
        self.embed, self.decode = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 48)
        self.token = nn.Parameter(flow.zeros(1, 1, 8))
        self.position = nn.Parameter(flow.randn(1, 16, 8), requires_grad=False)
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, images, noise):
        x = self.embed(images).flatten(2).transpose(1, 2) + self.position
        n, length, width = x.shape
        keep = int(length * 0.25)
        order = flow.argsort(noise, dim=1)
        back = flow.argsort(order, dim=1)
        x = flow.gather(x, dim=1, index=order[:, :keep].unsqueeze(-1).repeat(1, 1, width))
        mask = flow.ones([n, length])
        mask[:, :keep] = 0
        mask = flow.gather(mask, dim=1, index=back)
        x = flow.cat([x, self.token.repeat(n, length - keep, 1)], dim=1)
        x = self.decode(flow.gather(x, dim=1, index=back.unsqueeze(-1).repeat(1, 1, width)))
        target = flow.einsum("nchpwq->nhwpqc", images.reshape(n, 3, 4, 4, 4, 4)).reshape(n, 16, 48)
        target = (target - target.mean(dim=-1, keepdim=True)) / (
            target.var(dim=-1, keepdim=True) + 1e-6
        ) ** 0.5
        return (((x - target) ** 2).mean(dim=-1) * mask).sum() / mask.sum()


class Denoiser(nn.Module):
    """A step of a diffusion model: sinusoidal times, scale and shift, skip connection."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 16))
        self.into, self.norm, self.out = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.Conv2d(16, 3, 1),
        )
        self.down, self.up = nn.Conv2d(8, 8, 4, 2, 1), nn.Upsample(scale_factor=2, mode="nearest")
        self.alphas = flow.cumprod(1 - flow.linspace(1e-4, 0.02, 100), dim=0)

    def forward(self, x, t, noise):
        a = self.alphas.gather(-1, t).reshape(t.shape[0], 1, 1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        rates = t[:, None] * flow.exp(flow.arange(4, device=t.device) * -(math.log(10000) / 3))[None, :]
        scale, shift = self.time(flow.cat((rates.sin(), rates.cos()), dim=-1))[:, :, None, None].chunk(
            2, dim=1
        )
        h = F.silu(self.norm(self.into(noisy)) * (scale + 1) + shift)
        return F.smooth_l1_loss(self.out(flow.cat((self.up(self.down(h)), h), dim=1)), noise)


class Seq2Seq(nn.Module):
    """GRU encoder and attention decoder, one token at a time, fed with its own guesses."""

    def __init__(self):
        super().__init__()
        self.embedding, self.encoder, self.decoder = nn.Embedding(12, 8), nn.GRU(8, 8), nn.GRU(8, 8)
        self.attention, self.combine, self.head, self.drop = (
            nn.Linear(16, 6),
            nn.Linear(16, 8),
            nn.Linear(8, 12),
            nn.Dropout(0.1),
        )

    def forward(self, source, target):
        hidden, seen, loss = flow.zeros(1, 1, 8), flow.zeros(6, 8), 0
        for i in range(source.shape[0]):
            out, hidden = self.encoder(self.embedding(source[i]).view(1, 1, -1), hidden)
            seen[i] = out[0, 0]
        token = flow.zeros(1, dtype=flow.long)
        for i in range(target.shape[0]):
            x = self.drop(self.embedding(token).view(1, 1, -1))
            weights = F.softmax(self.attention(flow.cat((x[0], hidden[0]), 1)), dim=1)
            context = flow.bmm(weights.unsqueeze(0), seen.unsqueeze(0))
            out, hidden = self.decoder(
                F.relu(self.combine(flow.cat((x[0], context[0]), 1)).unsqueeze(0)), hidden
            )
            scores = F.log_softmax(self.head(out[0]), dim=1)
            loss = loss + nn.NLLLoss()(scores, target[i])
            token = scores.topk(1)[1].squeeze(1).detach()
        return loss / target.shape[0]


class CycleGan(nn.Module):
    """Two generators in one optimizer, a critic that only passes gradients on."""

    def __init__(self):
        super().__init__()

        def generator():
            return nn.Sequential(
                nn.ReflectionPad2d(3),
                nn.Conv2d(3, 8, 7),
                nn.InstanceNorm2d(8),
                nn.ReLU(True),
                nn.Conv2d(8, 16, 3, 2, 1),
                nn.ReLU(True),
                nn.ConvTranspose2d(16, 3, 3, 2, 1, output_padding=1),
                nn.Tanh(),
            )

        self.a, self.b = generator(), generator()
        self.critic = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 1, 4, 1, 1)
        )
        for p in self.critic.parameters():
            p.requires_grad = False

    def forward(self, x, y):
        fake = self.a(x)
        score = self.critic(fake)
        cycle = nn.L1Loss()(self.b(fake), x) + nn.L1Loss()(self.a(self.b(y)), y)
        return F.mse_loss(score, flow.ones_like(score)) + cycle * 10 + nn.L1Loss()(self.a(y), y) * 5


class ActorCritic(nn.Module):
    """The clipped loss of PPO."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), nn.Softmax(dim=-1))
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, states, actions, old, rewards):
        dist = flow.distributions.Categorical(self.actor(states))
        values = flow.squeeze(self.critic(states))
        ratios, gain = flow.exp(dist.log_prob(actions) - old.detach()), rewards - values.detach()
        clipped = flow.clamp(ratios, 0.8, 1.2) * gain
        return (
            -flow.min(ratios * gain, clipped) + 0.5 * nn.MSELoss()(values, rewards) - 0.01 * dist.entropy()
        ).mean()


PROGRAMS = {
    MoCo: (
        lambda m: flow.optim.SGD(m.q.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4),
        lambda: (flow.randn(4, 3, 2, 2), flow.randn(4, 3, 2, 2)),
    ),
    MAE: (
        lambda m: flow.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2),
        lambda: (flow.rand(2, 3, 16, 16), flow.rand(2, 16)),
    ),
    Denoiser: (
        lambda m: flow.optim.Adam(m.parameters(), lr=1e-2),
        lambda: (flow.randn(2, 3, 8, 8), flow.randint(0, 100, (2,)), flow.randn(2, 3, 8, 8)),
    ),
    Seq2Seq: (
        lambda m: flow.optim.SGD(m.parameters(), lr=0.1),
        lambda: (flow.randint(0, 12, (6, 1)), flow.randint(0, 12, (5, 1))),
    ),
    CycleGan: (
        lambda m: flow.optim.Adam(
            itertools.chain(m.a.parameters(), m.b.parameters()), lr=2e-3, betas=(0.5, 0.999)
        ),
        lambda: (flow.rand(1, 3, 8, 8), flow.rand(1, 3, 8, 8)),
    ),
    ActorCritic: (
        lambda m: flow.optim.Adam(
            [{"params": m.actor.parameters(), "lr": 3e-3}, {"params": m.critic.parameters(), "lr": 1e-2}]
        ),
        lambda: (flow.randn(8, 4), flow.randint(0, 2, (8,)), flow.randn(8) * 0.1 - 0.7, flow.randn(8)),
    ),
}


class Train(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, *batch):
        loss = self.model(*batch)
        loss.backward()
        return loss


def losses(program, in_graph):
    flow.manual_seed(0)
    model, (make_optimizer, data) = program(), PROGRAMS[program]
    optimizer, batch = make_optimizer(model), data()
    step = Train(model, optimizer)
    losses = []
    for _ in range(3):
        if in_graph:
            losses.append(step(*batch).item())
        else:
            optimizer.zero_grad()
            loss = model(*batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_graph_equals_eager(program):
    eager, state = losses(program, False)
    graph, same = losses(program, True)
    assert graph == eager and eager[-1] < eager[0]
    assert all(flow.equal(state[key], same[key]) for key in state)
