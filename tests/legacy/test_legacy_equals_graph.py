"""A job function and the same network as nn.Module and nn.Graph agree for 20 steps from the same weights."""

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow
import oneflow.compatible.single_client as flow

nn = oneflow.nn
rng = np.random.default_rng(8)
opt = flow.optimizer
RANDOM = flow.random_normal_initializer(stddev=0.2)


def mlp(x):
    x = flow.layers.dense(
        flow.reshape(x, (x.shape[0], -1)), 32, activation=flow.nn.relu, kernel_initializer=RANDOM, name="a"
    )
    return flow.layers.dense(x, 10, kernel_initializer=RANDOM, name="b")


class MLP(nn.Module):
    names = {"a-weight": "a.weight", "a-bias": "a.bias", "b-weight": "b.weight", "b-bias": "b.bias"}

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.flatten(1))))


def lenet(x):
    x = flow.layers.conv2d(
        x, 8, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=RANDOM, name="c1"
    )
    x = flow.nn.max_pool2d(x, 2, 2, "SAME")
    x = flow.layers.conv2d(
        x, 16, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=RANDOM, name="c2"
    )
    x = flow.nn.max_pool2d(x, 2, 2, "VALID")
    return flow.layers.dense(flow.flatten(x, start_dim=1), 10, kernel_initializer=RANDOM, name="fc")


class LeNet(nn.Module):
    names = {
        "c1-weight": "c1.weight",
        "c1-bias": "c1.bias",
        "c2-weight": "c2.weight",
        "c2-bias": "c2.bias",
        "fc-weight": "fc.weight",
        "fc-bias": "fc.bias",
    }

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.fc = (
            nn.Conv2d(1, 8, 5, padding=2),
            nn.Conv2d(8, 16, 5, padding=2),
            nn.Linear(64, 10),
        )
        self.pool = nn.MaxPool2d(2, 2)

    def forward(self, x):
        x = self.pool(torch.relu(self.c1(x)))
        return self.fc(self.pool(torch.relu(self.c2(x))).flatten(1))


def conv_bn(x):
    x = flow.layers.conv2d(x, 8, 3, padding="SAME", use_bias=False, kernel_initializer=RANDOM, name="c")
    x = flow.nn.relu(flow.layers.batch_normalization(x, axis=1, momentum=0.9, epsilon=1e-5, name="bn"))
    return flow.layers.dense(flow.math.reduce_mean(x, axis=[2, 3]), 10, kernel_initializer=RANDOM, name="fc")


class ConvBN(nn.Module):
    names = {
        "c-weight": "c.weight",
        "bn-gamma": "bn.weight",
        "bn-beta": "bn.bias",
        "bn-moving_mean": "bn.running_mean",
        "bn-moving_variance": "bn.running_var",
        "fc-weight": "fc.weight",
        "fc-bias": "fc.bias",
    }

    def __init__(self):
        super().__init__()
        self.c, self.bn, self.fc = (
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.Linear(8, 10),
        )

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.c(x))).mean((2, 3)))


def wide_deep(x):
    ids = flow.cast(flow.reshape(x, (x.shape[0], 64)) * 5, flow.int32)
    wide = flow.math.reduce_sum(
        flow.gather(flow.get_variable("wide", (32, 10), initializer=RANDOM), ids), axis=1
    )
    deep = flow.reshape(
        flow.gather(flow.get_variable("deep", (32, 2), initializer=RANDOM), ids), (x.shape[0], -1)
    )
    return wide + flow.layers.dense(deep, 10, kernel_initializer=RANDOM, name="fc")


class WideDeep(nn.Module):
    names = {"wide": "wide.weight", "deep": "deep.weight", "fc-weight": "fc.weight", "fc-bias": "fc.bias"}

    def __init__(self):
        super().__init__()
        self.wide, self.deep, self.fc = nn.Embedding(32, 10), nn.Embedding(32, 2), nn.Linear(128, 10)

    def forward(self, x):
        ids = (x.reshape(-1, 64) * 5).long()
        return self.wide(ids).sum(1) + self.fc(self.deep(ids).flatten(1))


CASES = {
    "mlp-sgd": (
        mlp,
        MLP,
        lambda: opt.SGD(opt.PiecewiseConstantScheduler([], [0.1]), momentum=0),
        lambda p: oneflow.optim.SGD(p, lr=0.1),
    ),
    "mlp-momentum": (
        mlp,
        MLP,
        lambda: opt.SGD(opt.PiecewiseConstantScheduler([], [0.1]), momentum=0.9),
        lambda p: oneflow.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "mlp-adamw": (
        mlp,
        MLP,
        lambda: opt.AdamW(
            opt.PiecewiseConstantScheduler([], [0.01]), do_bias_correction=True, weight_decay=0.1
        ),
        lambda p: oneflow.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    ),
    "lenet-sgd": (
        lenet,
        LeNet,
        lambda: opt.SGD(opt.PiecewiseConstantScheduler([], [0.1]), momentum=0),
        lambda p: oneflow.optim.SGD(p, lr=0.1),
    ),
    "conv-bn-adam": (
        conv_bn,
        ConvBN,
        lambda: opt.Adam(opt.PiecewiseConstantScheduler([], [0.01]), do_bias_correction=True),
        lambda p: oneflow.optim.Adam(p, lr=0.01),
    ),
    "wide-deep-adam": (
        wide_deep,
        WideDeep,
        lambda: opt.Adam(opt.PiecewiseConstantScheduler([], [0.01]), do_bias_correction=True),
        lambda p: oneflow.optim.Adam(p, lr=0.01),
    ),
}


@pytest.mark.parametrize("backend", ["aten", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_twenty_steps(name, backend, monkeypatch):
    monkeypatch.setenv("ONEFLOW_GRAPH_BACKEND", backend)
    network, module, ours, theirs = CASES[name]
    x = rng.random((20, 16, 1, 8, 8)).astype(np.float32)
    y = rng.integers(0, 10, (20, 16)).astype(np.int32)

    def body(images, labels):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
        ours().minimize(loss)
        return loss

    job = job_of(body, [x[0], y[0]], "train")
    start = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    model = module()
    state = model.state_dict()
    with torch.no_grad():
        for ours_name, theirs_name in module.names.items():
            state[theirs_name].copy_(torch.from_numpy(start[ours_name]))

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.loss = model, nn.CrossEntropyLoss()
            self.add_optimizer(theirs(model.parameters()))

        def build(self, images, labels):
            loss = self.loss(self.model(images), labels)
            loss.backward()
            return loss

    graph = Graph()
    for images, labels in zip(x, y):
        expected = graph(torch.from_numpy(images), torch.from_numpy(labels).long()).item()
        assert job(images, labels).mean() == pytest.approx(expected, abs=1e-5)
    end = {n: v.numpy() for n, v in flow.get_all_variables().items()}
    for ours_name, theirs_name in module.names.items():
        # Adam divides by sqrt(v): rounding of tiny gradients shows in the weights, not in the losses
        np.testing.assert_allclose(
            end[ours_name], state[theirs_name].numpy(), atol=5e-5 if "adam" in name else 1e-5, rtol=1e-4
        )
        assert "moving" in ours_name or (end[ours_name] != start[ours_name]).any()
