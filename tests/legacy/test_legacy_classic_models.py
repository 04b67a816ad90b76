"""Small networks in the style of the classic models of OneFlow 0.2 to 0.4, compared with the same network in
torch.

They use the features of those programs: `import oneflow as flow`, layouts by position, variables from
get_variable.
"""

import functools

import legacy_update_rules as rules
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from job_training import STEPS, assert_trains_like_torch, sgd

import oneflow as flow

DECAY = 1e-3  # of the l2 regularizers


def images(count=2, size=16, classes=5):
    rng = np.random.default_rng(11)
    return [
        (
            rng.normal(size=(count, 3, size, size)).astype(np.float32),
            rng.integers(0, classes, count).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


# ---------------------------------------------------------------- what the convolutional networks share
def weight_of(name, shape, regularizer=None):
    return flow.get_variable(
        name,
        shape=shape,
        dtype=flow.float,
        initializer=flow.variance_scaling_initializer(2.0, "fan_in", "random_normal", "NCHW"),
        regularizer=regularizer,
        model_name="weight",
        trainable=True,
    )


def convolution(x, filters, kernel, stride, padding, name, groups=1):
    """conv2d with layout, dilation and groups by position, then the bias: the form of 0.2 to 0.4."""
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight = weight_of(f"{name}-weight", (filters, x.shape[1] // groups, *kernel))
    y = flow.nn.conv2d(x, weight, stride, padding, "NCHW", 1, groups, name=name)
    return flow.nn.bias_add(
        y, flow.get_variable(f"{name}-bias", (filters,), flow.float, flow.zeros_initializer()), "NCHW"
    )


def cross_entropy(logits, labels):
    return flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")


def same(x, kernel, stride, value=0.0):
    """Pad as OneFlow's "SAME": an odd element goes in front."""
    pads = []
    for size, k in zip(reversed(x.shape[2:]), reversed(kernel)):
        total = max(0, (-(-size // stride) - 1) * stride + k - size)
        pads += [total - total // 2, total // 2]
    return F.pad(x, pads, value=value)


def torch_convolution(p, x, name, stride=1, padding="SAME", groups=1):
    weight = p[f"{name}-weight"]
    x = same(x, weight.shape[2:], stride) if padding == "SAME" else x
    return F.conv2d(x, weight, p.get(f"{name}-bias"), stride, 0, 1, groups)


def torch_dense(p, x, name):
    return F.linear(x, p[f"{name}-weight"], p[f"{name}-bias"])


# ---------------------------------------------------------------- ResNet
def resnet(images, labels):
    def normalized(x, filters, kernel, stride, name, relu=True):
        weight = weight_of(
            f"{name}-weight", (filters, x.shape[1], kernel, kernel), flow.regularizers.l2(DECAY)
        )
        y = flow.nn.conv2d(x, weight, stride, "SAME", "NCHW", 1)
        y = flow.layers.batch_normalization(
            inputs=y,
            axis=1,
            momentum=0.9,
            epsilon=1e-5,
            center=True,
            scale=True,
            training=True,
            name=f"{name}_bn",
        )
        return flow.nn.relu(y) if relu else y

    with flow.scope.namespace("Resnet"):
        x = normalized(images, 8, 7, 2, "stem")
        x = flow.nn.max_pool2d(x, 3, 2, "SAME", "NCHW", "pool1")
        for block, stride in (("block1", 1), ("block2", 2)):
            with flow.scope.namespace(block):
                shortcut = normalized(x, 16, 1, stride, "shortcut", relu=False)
                y = normalized(normalized(x, 4, 1, 1, "a"), 4, 3, stride, "b")
                x = flow.math.relu(normalized(y, 16, 1, 1, "c", relu=False) + shortcut)
        x = flow.nn.avg_pool2d(x, [x.shape[2], x.shape[3]], 1, "VALID", "NCHW", name="pool5")
        logits = flow.layers.dense(
            flow.reshape(x, (x.shape[0], -1)),
            5,
            use_bias=True,
            kernel_initializer=flow.xavier_uniform_initializer(),
            name="fc",
        )
    return cross_entropy(logits, labels)


def torch_resnet(p, images, labels):
    def normalized(x, name, stride=1, relu=True):
        y = torch_convolution(p, x, name, stride)
        y = F.batch_norm(
            y,
            p[f"{name}_bn-moving_mean"],
            p[f"{name}_bn-moving_variance"],
            p[f"{name}_bn-gamma"],
            p[f"{name}_bn-beta"],
            True,
            0.1,
            1e-5,
        )
        return torch.relu(y) if relu else y

    x = normalized(images, "Resnet-stem", 2)
    x = F.max_pool2d(same(x, (3, 3), 2, -torch.inf), 3, 2)
    for block, stride in (("Resnet-block1", 1), ("Resnet-block2", 2)):
        shortcut = normalized(x, f"{block}-shortcut", stride, relu=False)
        y = normalized(normalized(x, f"{block}-a"), f"{block}-b", stride)
        x = torch.relu(normalized(y, f"{block}-c", relu=False) + shortcut)
    return F.cross_entropy(torch_dense(p, x.mean((2, 3)), "Resnet-fc"), labels.long(), reduction="none")


def regularized_momentum(name):
    """The l2 regularizer of the convolutions adds to the gradient."""
    rule = rules.momentum(0.9)
    decay = DECAY if name.endswith("-weight") and "fc" not in name else 0.0
    return lambda p, g, state, t: rule(p, g + decay * p, state, t)


# ---------------------------------------------------------------- VGG, AlexNet
def vgg(images, labels):
    x = images
    for stage, (filters, count) in enumerate([(8, 1), (12, 2)]):
        for i in range(count):
            x = flow.nn.relu(convolution(x, filters, 3, 1, "SAME", f"conv{stage}_{i}"))
        x = flow.nn.max_pool2d(x, 2, 2, "VALID", "NCHW", name=f"pool{stage}")
    x = flow.flatten(x, 1)
    x = flow.layers.dense(inputs=x, units=16, activation=flow.nn.relu, use_bias=True, name="fc1")
    x = flow.nn.dropout(x, rate=0.0)
    return cross_entropy(flow.layers.dense(x, 5, name="fc2"), labels)


def torch_vgg(p, images, labels):
    x = images
    for names in (["conv0_0"], ["conv1_0", "conv1_1"]):
        for name in names:
            x = torch.relu(torch_convolution(p, x, name))
        x = F.max_pool2d(x, 2)
    return F.cross_entropy(
        torch_dense(p, torch.relu(torch_dense(p, x.flatten(1), "fc1")), "fc2"),
        labels.long(),
        reduction="none",
    )


def alexnet(images, labels):
    x = flow.nn.relu(convolution(images, 8, 5, 2, "VALID", "conv1"))
    x = flow.nn.max_pool2d(x, 3, 2, "VALID", "NCHW", "pool1")
    x = flow.nn.relu(convolution(x, 8, 3, 1, "SAME", "conv2", groups=2))
    x = flow.reshape(x, [x.shape[0], -1])
    for i, units in enumerate((12, 5)):
        with flow.scope.namespace(f"fc{i}"):
            weight = flow.get_variable(
                "weight",
                (x.shape[1], units),
                flow.float,
                flow.random_uniform_initializer(-0.1, 0.1),
                None,
                True,
                "weight",
            )
            bias = flow.get_variable(
                "bias", (units,), flow.float, flow.random_uniform_initializer(), None, True, "bias"
            )
            x = flow.nn.bias_add(flow.matmul(x, weight, False, False, f"fc{i}"), bias)
            x = flow.nn.relu(x) if i == 0 else x
    return cross_entropy(x, labels)


def torch_alexnet(p, images, labels):
    x = F.max_pool2d(torch.relu(torch_convolution(p, images, "conv1", 2, "VALID")), 3, 2)
    x = torch.relu(torch_convolution(p, x, "conv2", groups=2)).flatten(1)
    x = torch.relu(x @ p["fc0-weight"] + p["fc0-bias"])
    return F.cross_entropy(x @ p["fc1-weight"] + p["fc1-bias"], labels.long(), reduction="none")


# ---------------------------------------------------------------- Inception
def inception(images, labels):
    def branch(x, filters, kernel, name, stride=1, padding="SAME"):
        return flow.math.relu(convolution(x, filters, kernel, stride, padding, name))

    x = branch(images, 8, 3, "stem", 2, "VALID")
    with flow.scope.namespace("mixed_0"):
        pooled = flow.nn.avg_pool2d(x, 3, 1, "SAME", "NCHW", name="pool")
        x = flow.concat(
            [branch(x, 4, 1, "b0"), branch(branch(x, 3, 1, "b1a"), 4, 5, "b1b"), branch(pooled, 4, 1, "b2")],
            1,
            "mixed_0_concat",
        )
    with flow.scope.namespace("mixed_1"):
        tower = branch(branch(x, 4, [1, 7], "t0"), 4, [7, 1], "t1")
        x = flow.concat(
            values=[branch(tower, 4, 3, "t2", 2, "VALID"), flow.nn.max_pool2d(x, 3, 2, "VALID", "NCHW")],
            axis=1,
            name="mixed_1_concat",
        )
    x = flow.math.reduce_mean(x, axis=[2, 3])
    return cross_entropy(flow.layers.dense(x, 5, name="fc"), labels)


def torch_inception(p, images, labels):
    def branch(x, name, stride=1, padding="SAME"):
        return torch.relu(torch_convolution(p, x, name, stride, padding))

    x = branch(images, "stem", 2, "VALID")
    pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    x = torch.cat(
        [
            branch(x, "mixed_0-b0"),
            branch(branch(x, "mixed_0-b1a"), "mixed_0-b1b"),
            branch(pooled, "mixed_0-b2"),
        ],
        1,
    )
    tower = branch(branch(x, "mixed_1-t0"), "mixed_1-t1")
    x = torch.cat([branch(tower, "mixed_1-t2", 2, "VALID"), F.max_pool2d(x, 3, 2)], 1)
    return F.cross_entropy(torch_dense(p, x.mean((2, 3)), "fc"), labels.long(), reduction="none")


NETWORKS = {
    "ResNet": (resnet, torch_resnet, regularized_momentum),
    "VGG": (vgg, torch_vgg, None),
    "AlexNet": (alexnet, torch_alexnet, None),
    "Inception": (inception, torch_inception, None),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_convolutional_network_trains_like_torch(name):
    network, reference, rule_of = NETWORKS[name]
    batches = images(size=15 if name == "Inception" else 16)
    assert_trains_like_torch(network, reference, batches, **({"rule_of": rule_of} if rule_of else {}))


# ---------------------------------------------------------------- wide and deep
def wide_and_deep(labels, numbers, wide_ids, deep_ids):
    wide_table = flow.get_variable(
        "wide_embedding", shape=(20, 1), initializer=flow.random_uniform_initializer(-0.05, 0.05)
    )
    deep_table = flow.get_variable(
        "deep_embedding", shape=(30, 4), initializer=flow.random_uniform_initializer(-0.05, 0.05)
    )
    wide = flow.math.reduce_sum(
        flow.reshape(flow.gather(wide_table, wide_ids, axis=0), (-1, wide_ids.shape[-1])),
        axis=[1],
        keepdims=True,
    )
    deep = flow.reshape(flow.gather(params=deep_table, indices=deep_ids), shape=(-1, deep_ids.shape[-1] * 4))
    deep = flow.concat([deep, numbers], axis=1)
    for i, units in enumerate((8, 6)):
        deep = flow.layers.dense(
            deep,
            units,
            kernel_initializer=flow.glorot_uniform_initializer(),
            name=f"fc{i}",
            activation=flow.math.relu,
        )
    deep = flow.layers.dense(deep, 1, kernel_initializer=flow.glorot_uniform_initializer(), name="out")
    return flow.math.reduce_mean(flow.nn.sigmoid_cross_entropy_with_logits(labels, wide + deep))


def torch_wide_and_deep(p, labels, numbers, wide_ids, deep_ids):
    wide = p["wide_embedding"][wide_ids.long()].sum((1,))
    deep = torch.cat([p["deep_embedding"][deep_ids.long()].flatten(1), numbers], 1)
    for i in range(2):
        deep = torch.relu(torch_dense(p, deep, f"fc{i}"))
    return F.binary_cross_entropy_with_logits(wide + torch_dense(p, deep, "out"), labels)


@pytest.mark.parametrize("lazily", [False, True], ids=["SGD", "LazyAdam"])
def test_wide_and_deep_trains_like_torch(lazily):
    rng = np.random.default_rng(2)
    batches = [
        (
            rng.integers(0, 2, (4, 1)).astype(np.float32),
            rng.normal(size=(4, 3)).astype(np.float32),
            rng.integers(0, 20, (4, 2)).astype(np.int32),
            rng.integers(0, 30, (4, 3)).astype(np.int32),
        )
        for _ in range(STEPS)
    ]
    if not lazily:
        assert_trains_like_torch(
            wide_and_deep, torch_wide_and_deep, batches, functools.partial(sgd, 0), lambda name: rules.sgd()
        )
        return
    rule = rules.rows_only(rules.adam_0_4(0.9, 0.999, 1e-3))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [rules.LR])
    assert_trains_like_torch(
        wide_and_deep,
        torch_wide_and_deep,
        batches,
        lambda: flow.optimizer.LazyAdam(rate, epsilon=1e-3),
        lambda name: rule,
    )
