"""Global tensors on one rank inside nn.Graph, as libai-style programs use them."""

import numpy as np
import pytest

import oneflow as flow
import oneflow.nn as nn

P = flow.placement("cpu", ranks=[0])
B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(flow.empty((8, 4), dtype=flow.float32, placement=P, sbp=B))
        nn.init.normal_(self.weight, std=0.5)
        self.norm = nn.LayerNorm(4).to_global(P, B)
        self.register_buffer("mask", flow.ones(4, placement=P, sbp=B))

    def forward(self, x):
        x = x.to_global(placement=P, sbp=x.sbp).to_global(grad_sbp=x.sbp)
        y = self.norm(flow.matmul(x, self.weight))
        assert y.is_global and y.placement == P
        y = flow.where(self.mask > 0, y, flow.zeros_like(y)) + flow.ones(4, placement=y.placement, sbp=B)
        first, second = flow.chunk(y, 2, dim=-1)
        return flow.cat([first, second], dim=-1).to_global(sbp=B)


def losses(eager, steps=4):
    flow.manual_seed(0)
    model = Block()
    optimizer = flow.optim.AdamW(
        [{"params": list(model.parameters()), "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}], lr=0.1
    )
    x, y = flow.randn(6, 8, placement=P, sbp=S0), flow.randn(6, 4).to_global(P, S0)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.model.to(nn.graph.GraphModule).set_stage(0, P)
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = ((self.model(x) - y) ** 2).mean()
            loss.backward()
            return {"n": 3, "loss": loss}, loss.to_local()

    graph, losses = Train(), []
    for _ in range(steps):
        if eager:
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.clip_grad()
            optimizer.step()
        else:
            results, local = graph(x, y)
            loss = results["loss"]
            assert (
                results["n"] == 3
                and loss.is_global
                and not local.is_global
                and local.item() == loss.to_local().item()
            )
            assert loss.placement == P and len(loss.sbp) == 1
        losses.append(loss.to_local().item())
    assert model.weight.is_global and model.weight.sbp == (B,)
    return losses


def test_training_graph_of_a_global_model_equals_eager():
    graph, eager = losses(False), losses(True)
    assert graph == eager and graph[-1] < graph[0]


def test_local_and_global_inside_build():
    class G(nn.Graph):
        def build(self, x):
            y = x.to_global(P, S0) * 2
            z = flow.arange(2, placement=P, sbp=B) + y
            assert y.is_global and not z.to_local().is_global
            with pytest.raises(RuntimeError, match="global"):
                x.to_local()
            return y, z.to_local(), z.sum(), x

    y, z, total, x = G()(flow.ones(2))
    assert (y.is_global, z.is_global, total.is_global, x.is_global) == (True, False, True, False)
    assert y.sbp == (S0,) and np.array_equal(z.numpy(), [2, 3]) and total.item() == 5


def test_amp_embedding_and_fused_loss_with_global_tensors():
    embed, head = nn.Embedding(10, 4).to_global(P, B), nn.Linear(4, 3).to_global(P, B)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.embed, self.head = embed, head
            self.add_optimizer(
                flow.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
            )
            self.config.enable_amp(True)
            self.config.enable_zero(True, stage=2)
            self.set_grad_scaler(flow.amp.StaticGradScaler(2.0))

        def build(self, ids, labels):
            loss = flow._C.sparse_softmax_cross_entropy(self.head(self.embed(ids)).mean(1), labels).mean()
            loss.backward()
            return loss

    graph = Train()
    ids, labels = (
        flow.randint(0, 10, (4, 5), placement=P, sbp=S0),
        flow.randint(0, 3, (4,), placement=P, sbp=S0),
    )
    first = graph(ids, labels).item()
    for _ in range(20):
        last = graph(ids, labels).item()
    assert last < first
