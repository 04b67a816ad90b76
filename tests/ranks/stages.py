"""Random models for training.py: blocks on stages, each parameter with its own SBP."""

import random

import oneflow as flow
from oneflow import nn

F = nn.functional
B, P, S0, S1, S2 = (
    flow.sbp.broadcast,
    flow.sbp.partial_sum,
    flow.sbp.split(0),
    flow.sbp.split(1),
    flow.sbp.split(2),
)
GRIDS = {
    2: [[0, 1], [[0], [1]], [[0, 1]], [0], [1]],
    4: [[0, 1, 2, 3], [[0, 1], [2, 3]], [0, 1], [2, 3], [[0], [2]], [[1, 3]], [3]],
}
CHANNELS, WORDS, LENGTH = 8, 12, 6


def beside(x):
    """A function that moves a new tensor to the placement of x."""
    return {"placement": x.placement, "sbp": [B] * len(x.sbp)} if x.is_global else {}


class Block(nn.Module):
    """Takes and gives (samples, LENGTH, CHANNELS), on one stage."""

    def __init__(self, r):
        super().__init__()
        self.kind = r.choice(self.kinds) if hasattr(self, "kinds") else None
        self.make(r)

    def make(self, r):
        """Its layers."""


class Feed(Block):
    kinds = (F.gelu, F.relu, F.silu, flow.tanh)

    def make(self, r):
        self.norm, self.up, self.down = (
            nn.LayerNorm(CHANNELS),
            nn.Linear(CHANNELS, 16, bias=r.random() < 0.7),
            nn.Linear(16, CHANNELS),
        )
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return x + self.drop(self.down(self.kind(self.up(self.norm(x)))))


class Attention(Block):
    kinds = ("causal", "given", "padding", "sdpa", "none")

    def make(self, r):
        self.qkv, self.out, self.way = (
            nn.Linear(CHANNELS, 3 * CHANNELS),
            nn.Linear(CHANNELS, CHANNELS),
            r.randrange(3),
        )
        self.register_buffer("mask", flow.ones(LENGTH, LENGTH).tril().bool())

    def forward(self, x):
        n, t, c = x.shape
        h = self.qkv(x)
        if self.way == 0:
            q, k, v = (p.view(n, t, 2, c // 2).transpose(1, 2) for p in h.chunk(3, dim=-1))
        elif self.way == 1:
            q, k, v = h.view(n, t, 2, -1).permute(0, 2, 1, 3).chunk(3, -1)
        else:
            q, k, v = h.reshape(n, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "sdpa":
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = flow.matmul(q, k.transpose(-2, -1)) / (c // 2) ** 0.5
            if self.kind == "causal":
                scores = scores.masked_fill(~self.mask, -1e4)
            elif self.kind == "given":
                scores = flow.where(
                    flow.tril(flow.ones(t, t, **beside(x))).bool(), scores, flow.full_like(scores, -1e4)
                )
            elif self.kind == "padding":
                scores = scores + (x.detach().sum(-1) > 3).unsqueeze(1).unsqueeze(2).to(scores.dtype) * -1e4
            h = flow.matmul(flow.softmax(scores, dim=-1), v)
        return x + self.out(h.transpose(1, 2).reshape(n, t, c))


class Conv(Block):
    kinds = ("batch", "group", "none", "instance")

    def make(self, r):
        # else its gradient is rounding, which some optimizers enlarge
        self.conv = nn.Conv1d(
            CHANNELS, CHANNELS, 3, padding=1, groups=r.choice((1, 2)), bias=self.kind == "none"
        )
        self.norm = {
            "batch": nn.BatchNorm1d(CHANNELS),
            "group": nn.GroupNorm(2, CHANNELS),
            "none": nn.Identity(),
            "instance": nn.InstanceNorm1d(CHANNELS),
        }[self.kind]

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Image(Block):
    kinds = ("max", "avg", "none", "up")

    def make(self, r):
        self.conv, self.norm = (
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS, affine=r.random() < 0.8),
        )

    def forward(self, x):
        n, t, c = x.shape
        h = self.norm(self.conv(x.transpose(1, 2).reshape(n, c, 2, 3))).relu()
        if self.kind == "up":
            h = F.avg_pool2d(F.interpolate(h, scale_factor=2, mode="nearest"), 2)
        elif self.kind != "none":
            h = h * getattr(F, f"adaptive_{self.kind}_pool2d")(h, 1)
        return x + h.flatten(2).permute(0, 2, 1)


class Mix(Block):
    """Along the steps, as MLP-Mixer."""

    def make(self, r):
        self.along, self.scale = nn.Linear(LENGTH, LENGTH), nn.Parameter(flow.ones(CHANNELS))

    def forward(self, x):
        return x + self.along(x.transpose(1, 2)).transpose(1, 2) * self.scale


class Gate(Block):
    kinds = ("chunk", "split", "narrow", "glu")

    def make(self, r):
        self.both, self.last = nn.Linear(CHANNELS, 2 * CHANNELS), nn.Linear(2 * CHANNELS, CHANNELS)

    def forward(self, x):
        h = self.both(x)
        if self.kind == "glu":
            return x + F.glu(h, -1)
        a, b = {
            "chunk": lambda: h.chunk(2, -1),
            "split": lambda: flow.split(h, CHANNELS, dim=2),
            "narrow": lambda: (h[..., :CHANNELS], h.narrow(2, CHANNELS, CHANNELS)),
        }[self.kind]()
        return self.last(flow.cat([a * flow.sigmoid(b), x], dim=-1))


class Recurrent(Block):
    kinds = (nn.GRU, nn.LSTM)

    def make(self, r):
        self.layer = self.kind(CHANNELS, CHANNELS, batch_first=True)

    def forward(self, x):
        return x + self.layer(x)[0]


class Tokens(Block):
    """A learned token before the others, and positions."""

    def make(self, r):
        self.token, self.positions = (
            nn.Parameter(flow.randn(1, 1, CHANNELS) / 4),
            nn.Embedding(LENGTH + 1, CHANNELS),
        )

    def forward(self, x):
        h = flow.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        h = h + self.positions(flow.arange(LENGTH + 1, **beside(x))).unsqueeze(0)
        return h[:, 1:] * flow.sigmoid(h[:, :1])


class Experts(Block):
    def make(self, r):
        self.router, self.experts = (
            nn.Linear(CHANNELS, 3),
            nn.ModuleList(nn.Linear(CHANNELS, CHANNELS) for _ in range(3)),
        )

    def forward(self, x):
        chances = flow.softmax(self.router(x), -1)
        best, at = chances.topk(2, dim=-1)
        gates = flow.zeros_like(chances).scatter(-1, at, best)
        return x + sum(gates[..., i : i + 1] * e(x) for i, e in enumerate(self.experts))


class Rearranged(Block):
    kinds = (
        lambda x: x.flip(1) * 0.5,
        lambda x: flow.roll(x, 1, 1),
        lambda x: x.cumsum(1) / LENGTH,
        lambda x: x.mean(1, keepdim=True).expand_as(x),
        lambda x: x.amax(-1, keepdim=True) * x,
        lambda x: flow.stack([x, x * 2], 0).mean(0),
        lambda x: flow.cat([x[:, 1:], x[:, :1]], 1),
        lambda x: flow.where(x > 0, x, x * 0.1),
        lambda x: x.masked_fill(x < 0, 0.0),
        lambda x: x.clamp(-1, 1).pow(2),
        lambda x: flow.einsum("ntc,nsc->nts", x, x).matmul(x) / 9,
        lambda x: flow.bmm(x, x.transpose(1, 2)).softmax(-1).bmm(x),
        lambda x: F.pad(x, (1, 0))[..., :-1],
        lambda x: x.reshape(-1, CHANNELS).view(x.shape),
        lambda x: x.flatten(1).view(x.shape[0], CHANNELS, LENGTH).transpose(1, 2),
        lambda x: x.sort(dim=1)[0],
        lambda x: F.normalize(x, dim=-1),
        lambda x: x / (1e-3 + x.norm(dim=-1, keepdim=True)),
        lambda x: x.std(dim=1, keepdim=True) * x,
        lambda x: x.repeat(1, 1, 2)[..., ::2],
        lambda x: F.unfold(x.unsqueeze(1), 3, padding=1).mean(1).view(x.shape),
        lambda x: x * (x.detach().abs().mean() + 1),
        lambda x: x.index_select(1, flow.tensor([5, 0, 1, 2, 3, 4], **beside(x))),
        lambda x: x.tril() + x.triu(1) * 0.5,
        lambda x: x.unsqueeze(2).repeat_interleave(2, 2).sum(2),
    )

    def forward(self, x):
        return x + self.kind(x)


class Model(nn.Module):
    """Blocks on stages. If `placed` is False, the model is on one rank, with the same random values and no
    moves.
    """

    def __init__(self, seed, placed):
        super().__init__()
        r = random.Random(seed)
        flow.manual_seed(seed)
        self.is_placed, self.form = placed, r.randrange(4)
        stages = [
            flow.placement("cpu", ranks=g)
            for g in r.choices(GRIDS.get(flow.env.get_world_size(), [[0]]), k=r.choice((1, 2, 2, 3)))
        ]
        self.reads_ids, self.tied = r.random() < 0.6, r.random() < 0.4
        self.table = nn.Embedding(WORDS, CHANNELS) if self.reads_ids else nn.Linear(5, CHANNELS)
        self.blocks = nn.ModuleList(
            r.choice(
                (
                    Feed,
                    Feed,
                    Attention,
                    Attention,
                    Conv,
                    Image,
                    Mix,
                    Gate,
                    Recurrent,
                    Tokens,
                    Experts,
                    Rearranged,
                    Rearranged,
                )
            )(r)
            for _ in range(r.randint(1, 5))
        )
        self.norm, self.head = (
            nn.LayerNorm(CHANNELS),
            None if self.tied and self.reads_ids else nn.Linear(CHANNELS, WORDS),
        )
        at = sorted(r.randrange(len(stages)) for _ in self.blocks)
        self.stages = [stages[i] for i in (at[0], *at, at[-1])]
        self.rules = [
            [r.choice((S0, S0, S0, B, B, S1, S2, P) if r.random() < 0.3 else (S0, B)) for _ in s.hierarchy]
            for s in (*self.stages, self.stages[-1])
        ]
        self.loss = r.choice(("mean", "ignored", "smooth", "masked", "binary", "squares", "nll"))
        self.double()
        for m, stage in zip((self.table, *self.blocks), self.stages):
            self.place(m, stage, r)
        for m in filter(None, (self.norm, self.head)):
            self.place(m, self.stages[-1], r)
        if r.random() < 0.15:
            self.norm.requires_grad_(False)

    def place(self, module, stage, r):
        """Put a module on a stage, each parameter with its own SBP."""
        copies = [B] * len(stage.hierarchy)
        if self.is_placed:
            module.to_global(stage, copies)
        for m in module.modules():
            for name, p in m._parameters.items():
                rules = (
                    [r.choice([B, B, S0, S1, S2][: 2 + p.dim()]) for _ in copies] if p is not None else None
                )
                if self.is_placed and rules and not isinstance(m, nn.RNNBase):
                    m._parameters[name] = nn.Parameter(
                        p.detach().to_global(sbp=rules), requires_grad=p.requires_grad
                    )

    def move(self, x, at):
        """To the stage of a block under the rules of its data, in one of the forms that programs have."""
        if not self.is_placed:
            return x
        stage, integers = (*self.stages, self.stages[-1])[at], not x.is_floating_point()
        rules = [
            B if r._kind == "split" and r._dim >= x.dim() or integers and r is P else r
            for r in self.rules[at]
        ]
        if self.form == 1:
            return x.to_global(stage, [B] * len(stage.hierarchy)).to_global(sbp=rules)
        if self.form == 2:
            return x.to_global(sbp=[B] * len(x.sbp)).to_global(
                placement=stage, sbp=rules, grad_sbp=[B] * len(rules)
            )
        if self.form == 3 and len(x.sbp) == len(rules):
            return x.to_global(placement=stage)
        return x.to_global(placement=stage, sbp=rules)

    def forward(self, x, y):
        h = self.table(self.move(x, 0))
        for i, block in enumerate(self.blocks):
            h = block(self.move(h, i + 1))
        h = self.norm(self.move(h, len(self.blocks) + 1))
        y = self.move(y, len(self.blocks) + 2)
        if self.head is not None:
            out = self.head(h)
        else:
            last, table = self.stages[-1], self.table.weight
            if self.is_placed:
                table = table.to_global(placement=last, sbp=[B] * len(last.hierarchy))
            out = flow.matmul(h, table.transpose(0, 1))
        return self.loss_of(out, y)

    def loss_of(self, out, y):
        rows, labels = out.reshape(-1, WORDS), y.reshape(-1)
        if self.loss == "ignored":
            return F.cross_entropy(rows, labels.masked_fill(labels == 1, -100))
        if self.loss == "smooth":
            return F.cross_entropy(rows, labels, label_smoothing=0.1)
        if self.loss == "masked":
            mask = (labels > 2).to(rows.dtype)
            return (F.cross_entropy(rows, labels, reduction="none") * mask).sum() / mask.sum()
        if self.loss == "binary":
            return F.binary_cross_entropy_with_logits(rows, F.one_hot(labels, WORDS).to(rows.dtype))
        if self.loss == "squares":
            return F.mse_loss(rows, F.one_hot(labels, WORDS).to(rows.dtype))
        if self.loss == "nll":
            return F.nll_loss(F.log_softmax(rows, -1), labels)
        return F.cross_entropy(rows, labels)
