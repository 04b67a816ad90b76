"""Functions of global tensors under every SBP, with gradients, against the same on one rank: a program for
test_ranks.py.
"""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import torch

import oneflow as flow
from oneflow import nn
from oneflow.nn import functional as F
from oneflow.utils.global_view import global_mode

S0, S1, B, P = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast, flow.sbp.partial_sum
ALL = flow.placement.all("cpu")


def in_place(x):
    return (x * 1).unsqueeze_(0).transpose_(0, 2).squeeze_(2).t_()


def written_through_views(x):
    y = x * 2
    y.select(0, 1).fill_(0.5)
    y.view(-1)[:2].mul_(3.0)
    y.diagonal().add_(1.0)
    y[:, 1:].detach().mul_(2.0)
    return y


def views_of_what_is_written(x):
    y = x * 2
    column, row, parts = y[:, 0], y.select(0, 3), y.detach().unbind(1)
    y.mul_(2.0)
    row.add_(1.0)
    return y * column.unsqueeze(1) + row.mean() + parts[3].unsqueeze(1)


def place(x):
    return {"placement": ALL, "sbp": B} if x.is_global else {}


def indices(shape, x):
    return flow.tensor(np.random.RandomState(1).randint(0, 6, shape), **place(x))


def attention(x):
    mask = flow.tensor(np.random.RandomState(2).randn(2, 1, 4, 4).astype(np.float32), **place(x))
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


CASES = {  # shape -> functions
    (4, 6): {
        "cumsum, dim -1": lambda x: flow.cumsum(x, -1),
        "cumprod, dim -1": lambda x: flow.cumprod(x, -1),
        "select, dim -1": lambda x: x.select(-1, 2),
        "select, dim -2": lambda x: x.select(-2, 3),
        "list index": lambda x: x[[0, 2]] * x[:, [1, 1, 0]].sum(),
        "two index lists": lambda x: x[[0, 2], [1, 3]],
        "index tensor": lambda x: x[:, flow.tensor([1, 3])],
        "mask of one rank": lambda x: x[flow.tensor([True, False, True, False])],
        "where the largest are": lambda x: (
            x * x.argmax(-1, keepdim=True)
            + x * (x.argmin(0) - x.argmax())
            + x.sum(0).argmax(0)
            * x.max(1)[1].unsqueeze(1)
            * (x * x.sum(1, keepdim=True)).min(0, keepdim=True)[1]
        ),
        "mish": F.mish,
        "softplus": F.softplus,
        "logsumexp, kept dim": lambda x: flow.logsumexp(x, 0, keepdim=True),
        "any along ranks, as a number": lambda x: (
            (x > 0).any(1).float() * x.sum(1)
            + (x > 0).any() * 2.0 * x.mean()
            + (x > 0).any(0).sum() * x[0, 0]
        ),
        "scatter, multiplying": lambda x: flow.scatter(x, 0, indices((2, 6), x) % 4, 2.0, reduce="multiply"),
        "sum over no dim": lambda x: flow.sum(x, dim=[], keepdim=True) * x,
        "largest": lambda x: flow.linalg.vector_norm(x, float("inf")),
        "as_strided": lambda x: flow.as_strided(x, (3, 2), (4, 2), 1),
        "combined margin": lambda x: nn.CombinedMarginLoss(0.9, 0.3, 0.1)(x.tanh() * 0.9, indices((4,), x)),
        "glu": lambda x: F.glu(x, 1),
        "quantile": lambda x: flow.quantile(x, 0.3, dim=1),
        "shapes changed in place": in_place,
        "diagonal filled in place": lambda x: (x * 2).fill_diagonal_(3.0),
        "made by a tensor": lambda x: (
            x * x.new_tensor([1.0, 2, 3, 4, 5, 6]) + x.new_zeros(4, 1) + x.new_full((), 2.0)
        ),
        "gather of fewer rows": lambda x: x.gather(1, indices((2, 3), x)),
        "scatter_add in place": lambda x: (x * 2).scatter_add_(1, indices((4, 6), x), x),
        "scatter_add in place, fewer rows": lambda x: (x * 2).scatter_add_(1, indices((2, 3), x), x[:2, :3]),
        "index_add in place": lambda x: (x * 2).index_add_(1, indices((3,), x), x[:, 1:4]),
        "written through views": written_through_views,
        "views of what is written": views_of_what_is_written,
        "split rows added to copies": lambda x: (
            flow.zeros(4, 6, **place(x))
            .scatter_add_(1, indices((4, 6), x), x)
            .index_add_(1, indices((3,), x), x[:, 1:4])
        ),
        "split rows copied to copies": lambda x: flow.zeros(4, 6, **place(x)).index_copy_(
            1, flow.tensor([0, 4], **place(x)), x[:, 1:3]
        ),
        "one row copied to all": lambda x: (x * 2).copy_(x[1]),
        "into a given tensor": lambda x: (
            x * flow.div(x.detach(), x.detach().abs().sum(0, keepdim=True).expand_as(x), out=x.detach() * 1)
        ),
        "running sum into parts of a sum": lambda x: (
            x * flow.cumsum(x.detach(), 0, out=flow.zeros_like(x.detach()))
        ),
        "parts of a sum and numbers": lambda x: (
            (x + -1.5) * flow.add(x, 2.0, alpha=3.0)
            + (1.0 - x).clone().add_(2.0)
            + (x.sum() - 1.25)
            + flow.mul(x.mean(), x).sub_(1.0)
            + x.sum()
            + x.mean((0, 1))
        ),
        **(
            {"zeros for a gradient": lambda x: flow.nextafter(x, x * 2)}
            if torch.__version__ >= (2, 13)
            else {}
        ),  # torch has none before
        "view of any layout": lambda x: [
            t.view(3, 8) if x.is_global else t.reshape(3, 8) for t in [(x * x.sum(0)).t()]
        ][0],
        "conjugates": lambda x: [
            (z.conj() * z).real + z.conj().imag * z.t().adjoint().real for z in [flow.complex(x, x.flip(0))]
        ][0],
        "real transforms": lambda x: (
            flow.fft.irfft(flow.fft.rfft(x, dim=0).conj() * 2, 4, 0)
            * flow.fft.hfft(flow.complex(x, x * 2), 6)
        ),
        "index_copy in place": lambda x: (x * 2).index_copy_(0, flow.tensor([0, 2], **place(x)), x[1:3]),
    },
    (1, 4, 2, 6): {"rotary": lambda x: flow._C.fused_apply_rotary_emb(x, x_layout="BMHK", mode="interval")},
    (1, 3): {"a rank without rows": lambda x: x.amin(0) * x.max(0)[0]},
    (0, 4): {"no elements": lambda x: flow.cat([x.reshape(-1), x.sum(0), (x * 2).t().reshape(-1)])},
    (2, 4, 3, 5): {
        "pixel shuffle": lambda x: F.pixel_shuffle(x.transpose(1, 2).reshape(2, 4, 5, 3), 2),
        "pixel shuffle, split channels": lambda x: F.pixel_shuffle(x, 2),
        "shapes of uneven parts": lambda x: (
            x.permute(2, 3, 0, 1).reshape(15, 4, 2)
            * x.permute(2, 0, 1, 3).reshape(3, 2, 20).view(3, 5, 2, 2, 2).sum((0, 1, 2)).sum()
        ),
    },
    (2, 2, 3): {"conv1d": lambda x: F.conv1d(x, flow.ones_like(x) * x.mean())},
    (1, 4, 4, 4): {"conv2d, split channels": lambda x: F.conv2d(x, x[:, :, :2, :2])},
    (2, 2, 4, 3): {
        "attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x + 1),
        "masked attention": attention,
        "causal attention with dropout": lambda x: F.scaled_dot_product_attention(
            x, x * 2, x + 1, is_causal=True, dropout_p=1e-9
        ),
        "causal attention of one sample": lambda x: F.scaled_dot_product_attention(
            x[0], x[0] * 2, x[1], is_causal=True
        ),
        "attention of transposed heads": lambda x: F.scaled_dot_product_attention(
            *[x.reshape(6, 4, 2).transpose(0, 1).view(2, 2, 6, 2)] * 3
        ),
    },
    (4, 4, 2, 3): {
        "batch norm": lambda x: (
            F.batch_norm(x, *(flow.full((4,), v, **place(x)) for v in (0.5, 2.0, 3.0, 4.0)), training=True)
            ** 3
        ),
        "batch norm, plain": lambda x: F.batch_norm(x, None, None, training=True) ** 3,
        "batch norm, not training": lambda x: (
            F.batch_norm(x, *(flow.full((4,), v, **place(x)) for v in (0.5, 2.0, 3.0, 4.0))) ** 3
        ),
        "instance norm": lambda x: F.instance_norm(x) ** 3,
        "group norm": lambda x: F.group_norm(x, 2, x.mean((0, 2, 3)), x.amax((0, 2, 3))),
        "pooled, patches, activations": lambda x: (
            F.avg_pool2d(x, 2).sum() * F.unfold(x, 2) * F.relu6(x).mean() * F.hardswish(x).mean()
        ),
        "prelu": lambda x: F.prelu(x, x.mean((0, 2, 3))),
        "mse": lambda x: F.mse_loss(x, x * 2),
        "smooth l1": lambda x: F.smooth_l1_loss(x, x * 2),
        "huber": lambda x: F.huber_loss(x, x * 2, reduction="sum"),
        "binary cross entropy": lambda x: F.binary_cross_entropy(
            x.sigmoid(), x.detach().sigmoid() * 0.5, x.detach().square()
        ),
        "soft margin": lambda x: F.soft_margin_loss(x, x.detach().sign()),
    },
    (2, 4, 4): {
        "conv2d, split rows": lambda x: F.conv2d(x.unsqueeze(1), flow.ones_like(x[:1, :2, :2]).unsqueeze(0))
    },
}


def functions():
    for shape, cases in CASES.items():
        values = np.random.RandomState(0).randn(*shape).astype(np.float32)
        for name, function in cases.items():
            one = flow.tensor(values, requires_grad=True)
            expected = function(one)
            expected.square().sum().backward()
            for rule in (S0, S1, B, P):
                x = flow.tensor(values, placement=ALL, sbp=rule).requires_grad_()
                y = function(x)
                assert y.is_global and y.shape == expected.shape, (name, rule, y.shape)
                assert np.allclose(y.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5), (name, rule)
                y.square().sum().backward()
                assert np.allclose(x.grad.numpy(), one.grad.numpy(), rtol=1e-3, atol=1e-4), (
                    name,
                    rule,
                    "gradient",
                )


def made_in_global_mode():
    x, local = flow.ones(4, 6, placement=ALL, sbp=S0), flow.ones(2)
    with global_mode(True, placement=ALL, sbp=B):
        created = [
            flow.Tensor(2, 3),
            flow.Tensor([1.0]),
            local.new_zeros(2),
            local.new_tensor([1]),
            local.new_full((2,), 3, dtype=flow.int64),
        ]
        assert all(t.placement == ALL and t.sbp == (B,) for t in created) and created[4].numpy().tolist() == [
            3,
            3,
        ]
        assert all(t.sbp == (S0,) for t in (x.new_ones(2), x.new_tensor([1]), flow.zeros_like(x)))
    one_row = flow.tensor([[1.0, 2.0, 3.0]], placement=ALL, sbp=B)
    with global_mode(True, placement=ALL, sbp=B):  # a rank has no part of it
        moved = one_row.to_global(sbp=S0)
        assert (
            np.array_equal((moved * moved.to_global(sbp=B)).numpy(), [[1, 4, 9]])
            and not moved.to_local().is_global
        )
    assert flow.Tensor(2).is_local and local.new_zeros(2).is_local and x.new_zeros(4, sbp=B).sbp == (B,)


class Draws(nn.Graph):
    def __init__(self, checkpoint):
        super().__init__()
        self.drop = nn.Sequential(nn.Dropout(0.5))
        self.weight = nn.Parameter(flow.ones(64, placement=ALL, sbp=B))
        self.add_optimizer(flow.optim.SGD([self.weight], lr=1.0))
        self.config.set_backend("aten")
        self.drop.to(nn.graph.GraphModule).activation_checkpointing = checkpoint

    def build(self, x, y):
        dropped = self.drop(x * self.weight)
        dropped.sum().backward()
        return dropped, F.dropout(y, 0.5), flow.rand(64, placement=ALL, sbp=B)


def random_numbers_in_a_graph():
    """The ranks' generators differ. Copies still sample equal values, shards do not, and recomputation
    samples forward's values again.
    """
    rank = flow.env.get_rank()
    for checkpoint in (False, True):
        flow.manual_seed(10 + rank)
        graph, seen = Draws(checkpoint), []
        for _ in range(3):
            before = graph.weight.numpy().copy()
            copies, parts, drawn = graph(
                flow.ones(64, placement=ALL, sbp=B), flow.ones(128, placement=ALL, sbp=S0)
            )
            for t in (copies, drawn, graph.weight.detach()):
                told = flow.tensor(t.to_local().numpy()).to_global(ALL, S0).numpy()
                assert (told[:64] == told[64:]).all() and told.std() > 0, checkpoint
            first, second = np.split(parts.numpy(), 2)
            assert (first != second).any() and 0.2 < (first == 0).mean() < 0.8
            assert np.allclose((before - graph.weight.numpy()) != 0, copies.numpy() != 0), checkpoint
            seen += [copies.numpy().tobytes(), parts.numpy().tobytes(), drawn.numpy().tobytes()]
        assert len(set(seen)) == 9


def recurrent_layers():
    values = np.random.RandomState(0).randn(4, 4, 6).astype(np.float32)
    layers = [
        (lambda: nn.LSTM(6, 4, 2, bidirectional=True), values),
        (lambda: nn.GRU(6, 4, batch_first=True), values),
        (lambda: nn.RNN(6, 4), values[0]),
        (lambda: nn.LSTMCell(6, 4), values[0]),
        (lambda: nn.GRUCell(6, 4), values[0, 0]),
    ]
    for make, data in layers:
        flow.manual_seed(1)
        one = make()
        flow.manual_seed(1)
        several = make().to_global(ALL, B).to_global(sbp=B)
        assert len(several._forward_pre_hooks) == 1
        pick = lambda out: out[0] if isinstance(out, tuple) else out
        expected = pick(one(flow.tensor(data)))
        expected.square().sum().backward()
        for rule in (B, S0):
            several.zero_grad()
            y = pick(several(flow.tensor(data, placement=ALL, sbp=rule)))
            assert y.is_global and np.allclose(y.numpy(), expected.numpy(), atol=1e-5), (one, rule)
            y.square().sum().backward()
            for a, b in zip(several.parameters(), one.parameters()):
                assert np.allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-4), (one, rule)


def an_lstm_where_its_samples_are():
    """oneDNN's kernel, whose workspace has a size that only the kernel knows: on all ranks, on one, and in a
    graph.
    """

    class Step(nn.Graph):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.0))

        def build(self, x):
            y, (h, c) = self.layer(x)
            (y.square().sum() + (h * c).sum()).backward()
            return y, h, c, *(p.grad for p in self.layer.parameters())

    values = np.random.RandomState(0).randn(5, 4, 6).astype(np.float32)
    for narrow in (False, True):
        results = []
        for place in (None, ALL, flow.placement("cpu", [1])):
            for rule in (B, S1) if place == ALL else (B,):
                flow.manual_seed(1)
                layer = nn.LSTM(6, 4, 2)
                x = flow.tensor(values)
                if place is not None:
                    layer, x = (
                        layer.to_global(place, B),
                        x.to_global(ALL, B).to_global(placement=place, sbp=rule),
                    )
                for in_graph in (False, True):
                    layer.zero_grad()
                    with flow.autocast("cpu", flow.bfloat16, enabled=narrow):
                        outputs = (
                            Step(layer) if in_graph else lambda x: Step.build(SimpleNamespace(layer=layer), x)
                        )(x)
                    assert place is None or outputs[0].sbp == (rule,)
                    results.append([t.detach().float().numpy() for t in outputs])
        for placed in results[1:]:
            assert all(
                np.allclose(a, b, atol=0.05 if narrow else 1e-4) for a, b in zip(placed, results[0])
            ), narrow


def causal_attention_in_a_graph():
    class Attends(nn.Graph):
        def __init__(self):
            super().__init__()
            flow.manual_seed(0)
            self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=1e-9, batch_first=True)

        def build(self, x, mask):
            return self.layer(x, src_mask=mask, is_causal=True)

    x, mask = (
        flow.tensor(np.random.RandomState(0).randn(4, 3, 6).astype(np.float32)),
        flow.ones(3, 3).triu(1) > 0,
    )
    expected, several = Attends()(x, mask).numpy(), Attends()
    several.layer.to_global(ALL, B)
    for rule in (S0, B):
        placed = x.to_global(ALL, B).to_global(sbp=rule), mask.to_global(ALL, B)
        for got in (several(*placed), several.build(*placed)):
            assert got.is_global and np.allclose(got.numpy(), expected, atol=1e-4), rule


def labels_in_a_graph():
    class Hot(nn.Graph):
        def build(self, labels):
            return (
                F.one_hot(labels, 5),
                F.one_hot(labels, 5, 0.9, 0.1),
                flow._C.one_hot(labels, 5, on_value=3, off_value=-1),
            )

    values = flow.tensor([[0, 4, 2], [3, 1, 1]])
    for rule in (S0, S1, B):
        for got, expected in zip(Hot()(values.to_global(ALL, B).to_global(sbp=rule)), Hot()(values)):
            assert (
                got.is_global
                and got.dtype == expected.dtype
                and np.array_equal(got.numpy(), expected.numpy())
            ), rule


def a_graph_warns_of_nothing():
    weight = flow.arange(64.0).reshape(8, 8).to_global(ALL, B)

    class Layers(nn.Graph):
        def build(self, x):
            x = x.view(4, 2, 4).permute(0, 2, 1).reshape(4, 8) @ weight
            return x.to_global(sbp=B).chunk(2, dim=1)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Layers()(flow.ones(4, 8).to_global(ALL, B).to_global(sbp=S0))


for check in sys.argv[1:]:
    globals()[check]()
