"""Models whose arguments change their sizes: name -> (module, batch of a size, loss, programs for five
sizes).

The usual number is two: a static program for the first size and a symbolic one for the other four. If torch's
kernels or Python need more programs, the reason is beside the number.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZES = (24, 16, 33, 8, 50)


class Case:
    def __init__(self, module, batch, loss, programs=2, sizes=SIZES):
        self.module, self.batch, self.loss, self.programs, self.sizes = module, batch, loss, programs, sizes


def sequence(n):
    return (torch.randn(2, n, 8),)


def rows(n):
    return (torch.randn(n, 8),)


def tokens(n):
    return torch.randint(0, 20, (2, n)), torch.randint(0, 20, (2, n))


def images(n):
    return (torch.randn(2, 4, n, n + 4),)


def batch_of_images(n):
    return (torch.randn(n, 4, 12, 12),)


def linear():
    return nn.Linear(8, 8)


def convolution():
    return nn.Conv2d(4, 4, 3, padding=1)


def squared(out):
    return (out * out).mean()


class Language(nn.Module):
    """A causal language model of two layers."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 8), nn.Embedding(64, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 20)

    def forward(self, x):
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf"), device=x.device).triu(1)
        h = self.tokens(x) + self.positions(torch.arange(n, device=x.device))
        return self.head(self.layers(h, mask=mask, is_causal=True))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.batch, self.group = nn.Conv2d(4, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.group(F.relu(self.batch(self.conv(x))))


def attention(**options):
    def loss(m, x):
        q = m(x).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
        return squared(F.scaled_dot_product_attention(q, q, q, **options))

    return loss


def masked_attention(m, x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return attention(attn_mask=mask)(m, x)


def language_loss(m, x, y):
    return F.cross_entropy(m(x).flatten(0, 1), y.flatten(), ignore_index=3)


def recomputed(m, x):
    return squared(checkpoint(lambda z: F.dropout(m(m(z)).relu(), 0.5), x, use_reentrant=False))


def half(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        return squared(F.gelu(m(x)).float())


def pooled(m, x):
    return (
        squared(F.max_pool2d(m(x), 2))
        + squared(F.avg_pool2d(m(x), 3, 2, 1))
        + squared(F.adaptive_avg_pool2d(m(x), 1))
    )


def patches(m, x):
    h, w = x.shape[2] // 4, x.shape[3] // 4
    return squared(m(x).view(2, 4, h, 4, w, 4).permute(0, 2, 4, 3, 5, 1).reshape(2, h * w, 64))


def of_the_length(m, x):
    n = x.shape[1]
    angles = torch.arange(n)[None, :, None].float().cos() + torch.tril(torch.ones(n, n)).sum()
    return squared(m(x) * angles / n**0.5)


CASES = {
    "rows of a perceptron": Case(
        lambda: nn.Sequential(linear(), nn.GELU(), linear()), rows, lambda m, x: squared(m(x))
    ),
    "transformer layer": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), sequence, lambda m, x: squared(m(x))
    ),
    "language model": Case(Language, tokens, language_loss),
    "embedding and cross entropy": Case(
        lambda: nn.Sequential(nn.Embedding(20, 8, padding_idx=1), nn.Linear(8, 20)), tokens, language_loss
    ),
    # oneDNN convolves batches of 16 and more
    "convolution over the batch": Case(convolution, batch_of_images, lambda m, x: squared(m(x)), 3),
    "convolution over the image": Case(convolution, images, lambda m, x: squared(m(x))),
    "strided convolution and norms": Case(Normed, images, lambda m, x: squared(m(x))),
    "transposed convolution": Case(
        lambda: nn.ConvTranspose2d(4, 4, 3, 2), images, lambda m, x: squared(m(x))
    ),
    "convolution of a sequence": Case(
        lambda: nn.Conv1d(8, 8, 3, padding=1), lambda n: (torch.randn(2, 8, n),), lambda m, x: squared(m(x))
    ),
    "pooling": Case(convolution, images, pooled),
    "patches of 4": Case(convolution, images, patches, sizes=(24, 16, 32, 8, 48)),
    "lstm over the length": Case(
        lambda: nn.LSTM(8, 8, batch_first=True), sequence, lambda m, x: squared(m(x)[0])
    ),
    "lstm over the batch": Case(
        lambda: nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True),
        lambda n: (torch.randn(n, 6, 8),),
        lambda m, x: squared(m(x)[0]),
    ),
    # the steps are recorded one by one
    "gru over the length": Case(
        lambda: nn.GRU(8, 8, batch_first=True), sequence, lambda m, x: squared(m(x)[0]), 5
    ),
    "gru over the batch": Case(
        lambda: nn.GRU(8, 8, batch_first=True),
        lambda n: (torch.randn(n, 6, 8),),
        lambda m, x: squared(m(x)[0]),
    ),
    "attention": Case(linear, sequence, attention()),
    "causal attention": Case(linear, sequence, attention(is_causal=True)),
    "attention with dropout": Case(linear, sequence, attention(dropout_p=0.5)),
    "attention with a mask": Case(linear, sequence, masked_attention),
    "attention without heads": Case(
        linear,
        sequence,
        lambda m, x: squared(F.scaled_dot_product_attention(m(x), m(x), m(x), is_causal=True)),
    ),
    "products of matrices": Case(linear, sequence, lambda m, x: squared(torch.linalg.matmul(m(x), m(x).mT))),
    "layer norm": Case(
        lambda: nn.Sequential(linear(), nn.LayerNorm(8)), sequence, lambda m, x: squared(m(x))
    ),
    "batch norm of rows": Case(
        lambda: nn.Sequential(linear(), nn.BatchNorm1d(8)), rows, lambda m, x: squared(m(x))
    ),
    "dropout": Case(linear, sequence, lambda m, x: squared(F.dropout(m(x), 0.5))),
    "checkpoint": Case(linear, sequence, recomputed),
    "autocast": Case(linear, sequence, half),
    "numbers of the length": Case(linear, sequence, of_the_length),
    "views": Case(linear, sequence, lambda m, x: squared(m(x).view(-1, 8).t().reshape(8, 2, -1)[:, :, 1:])),
    "expand and sum": Case(
        linear, sequence, lambda m, x: squared(m(x) + m(x).sum(1, keepdim=True).expand(-1, x.shape[1], -1))
    ),
    "einsum": Case(linear, sequence, lambda m, x: squared(torch.einsum("btd,bsd->bts", m(x), m(x)))),
    "slices and cat": Case(
        linear, sequence, lambda m, x: squared(torch.cat([m(x)[:, 1:], *m(x).chunk(2, 1)], 1))
    ),
    "pad, roll, flip": Case(
        linear, sequence, lambda m, x: squared(F.pad(m(x), (0, 0, 1, 2)).roll(1, 1).flip(1))
    ),
    "gather and where": Case(
        linear,
        sequence,
        lambda m, x: squared(
            torch.where(m(x) > 0, m(x), m(x).gather(1, torch.zeros(2, x.shape[1], 8, dtype=torch.long)))
        ),
    ),
    "interpolation": Case(
        convolution, images, lambda m, x: squared(F.interpolate(m(x), scale_factor=2.0, mode="bilinear"))
    ),
    "cumulative sum, top, sort": Case(
        linear, sequence, lambda m, x: squared(m(x).cumsum(1) + m(x).topk(1, 1)[0] + m(x).sort(1)[0])
    ),
    "arguments of a transposed layout": Case(
        linear, lambda n: (torch.randn(8, n, 2).transpose(0, 2),), lambda m, x: squared(m(x))
    ),
    "arguments that are slices": Case(
        linear, lambda n: (torch.randn(2, 64, 8)[:, :n],), lambda m, x: squared(m(x).view(-1, 4))
    ),
    "channels last": Case(
        convolution,
        lambda n: (torch.randn(2, 4, n, n).to(memory_format=torch.channels_last),),
        lambda m, x: squared(m(x)),
    ),
    "selected rows": Case(linear, rows, lambda m, x: squared(m(x)[x.detach()[:, 0] > 0].cumsum(0))),
}
