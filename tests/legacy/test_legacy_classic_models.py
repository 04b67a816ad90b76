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
from legacy_jobs import job_of

import oneflow as flow

STEPS = 3
DECAY = 1e-3  # of the l2 regularizers


def sgd(momentum=0.9):
    rate = flow.optimizer.PiecewiseConstantScheduler([], [rules.LR])
    return flow.optimizer.SGD(rate, momentum=momentum)


def start_values(job):
    """Random values for the variables of a job, scaled by fan-in, and their positive moving variances."""
    rng, values = np.random.default_rng(7), {}
    for name, blob in flow.get_all_variables().items():
        if name.startswith("System-") or name.endswith(("-momentum", "-m", "-v")):
            continue
        fan_in = max(1, int(np.prod(blob.shape[1:])))
        values[name] = (rng.normal(size=blob.shape) / np.sqrt(fan_in)).astype(np.float32)
        if name.endswith(("moving_variance", "gamma")):
            values[name] = np.abs(values[name]) + 0.5
    return values


def assert_trains_like_torch(
    network,
    reference,
    batches,
    optimizer=sgd,
    rule_of=lambda name: rules.momentum(0.9),
    prepare=lambda grads: grads,
    rtol=2e-4,
    config=None,
):
    """Each step's losses and the variables at the end are those of `reference(parameters, *inputs)` under the rules."""

    def body(*blobs):
        loss = network(*blobs)
        if config is None:
            optimizer().minimize(loss)
        else:
            flow.losses.add_loss(loss)
        return loss

    job = job_of(body, batches[0], "train", config)
    values = start_values(job)
    flow.load_variables(values)
    parameters = {name: torch.from_numpy(value).double() for name, value in values.items()}
    states = {name: {} for name in values}
    for step, batch in enumerate(batches):
        trained = {n: p.requires_grad_() for n, p in parameters.items() if "moving" not in n}
        loss = reference(
            parameters,
            *(torch.from_numpy(a) if a.dtype.kind == "i" else torch.from_numpy(a).double() for a in batch),
        )
        np.testing.assert_allclose(
            job(*batch), loss.detach().numpy(), rtol=rtol, atol=1e-5, err_msg=f"loss of step {step}"
        )
        grads = torch.autograd.grad(loss.mean(), list(trained.values()))
        grads = prepare({name: g.numpy() for name, g in zip(trained, grads)})
        with torch.no_grad():
            for name, p in trained.items():
                moved = rule_of(name)(p.detach().numpy(), grads[name], states[name], step)
                parameters[name] = torch.from_numpy(np.asarray(moved))
    after = flow.get_all_variables()
    for name, p in parameters.items():
        np.testing.assert_allclose(
            after[name].numpy(), p.detach().numpy(), rtol=rtol, atol=2e-5, err_msg=name
        )


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


# ---------------------------------------------------------------- BERT pretraining
BATCH, LENGTH, WIDTH, HEADS, VOCABULARY, MASKED = 2, 6, 8, 2, 11, 3


def bert(ids, mask, positions, masked_ids, masked_weights, next_label):
    def dense(x, units, name, activation=None):
        with flow.scope.namespace(name):
            weight = flow.get_variable(
                "weight",
                shape=[x.shape[-1], units],
                dtype=x.dtype,
                initializer=flow.truncated_normal_initializer(0.02),
            )
            bias = flow.get_variable(
                "bias", shape=[units], dtype=x.dtype, initializer=flow.constant_initializer(0.0)
            )
            y = flow.nn.bias_add(flow.matmul(flow.reshape(x, (-1, x.shape[-1])), weight), bias)
            return activation(y) if activation else y

    def heads(x):
        return flow.transpose(flow.reshape(x, [-1, LENGTH, HEADS, WIDTH // HEADS]), perm=[0, 2, 1, 3])

    table = flow.get_variable(
        "embeddings-word",
        shape=[VOCABULARY, WIDTH],
        dtype=flow.float,
        initializer=flow.truncated_normal_initializer(0.02),
    )
    place = flow.get_variable(
        "embeddings-position",
        shape=[1, LENGTH, WIDTH],
        dtype=flow.float,
        initializer=flow.truncated_normal_initializer(0.02),
    )
    x = flow.gather(params=table, indices=flow.reshape(ids, [-1]), axis=0)
    x = flow.math.add(flow.reshape(x, [-1, LENGTH, WIDTH]), place)
    x = flow.layers.layer_norm(x, begin_norm_axis=-1, begin_params_axis=-1, name="embeddings-LayerNorm")
    bias = flow.math.multiply(
        flow.math.subtract(1.0, flow.cast(flow.reshape(mask, [-1, 1, 1, LENGTH]), flow.float)), -10000.0
    )
    query, key, value = (heads(dense(x, WIDTH, f"attention-{name}")) for name in ("query", "key", "value"))
    scores = flow.math.multiply(flow.matmul(query, key, transpose_b=True), (WIDTH // HEADS) ** -0.5)
    probabilities = flow.nn.dropout(flow.nn.softmax(flow.math.add(scores, bias)), rate=0.0)
    context = flow.reshape(flow.transpose(flow.matmul(probabilities, value), perm=[0, 2, 1, 3]), [-1, WIDTH])
    x = flow.layers.layer_norm(
        dense(context, WIDTH, "attention-output") + flow.reshape(x, [-1, WIDTH]), name="attention-LayerNorm"
    )
    x = flow.reshape(
        x + dense(dense(x, 2 * WIDTH, "intermediate", flow.math.gelu), WIDTH, "output"), [-1, LENGTH, WIDTH]
    )
    picked = flow.reshape(flow.gather(params=x, indices=positions, axis=2, batch_dims=2), [-1, WIDTH])
    logits = flow.matmul(picked, table, transpose_b=True)
    losses = flow.nn.sparse_softmax_cross_entropy_with_logits(
        logits=logits, labels=flow.reshape(masked_ids, [-1])
    )
    weights = flow.reshape(masked_weights, [-1])
    lm_loss = flow.math.reduce_sum(losses * weights) / (flow.math.reduce_sum(weights) + 1e-5)
    first = flow.squeeze(flow.slice(x, [None, 0, 0], [None, 1, -1]), [1])
    pooled = dense(first, WIDTH, "pooler", flow.math.tanh)
    next_losses = flow.nn.sparse_softmax_cross_entropy_with_logits(
        logits=dense(pooled, 2, "seq_relationship"), labels=flow.reshape(next_label, [-1])
    )
    return lm_loss + flow.math.reduce_mean(next_losses)


def torch_bert(p, ids, mask, positions, masked_ids, masked_weights, next_label):
    def dense(x, name):
        return x @ p[f"{name}-weight"] + p[f"{name}-bias"]

    def normal(x, name):
        return F.layer_norm(x, (WIDTH,), p[f"{name}-gamma"], p[f"{name}-beta"], 1e-5)

    x = normal(p["embeddings-word"][ids.long()] + p["embeddings-position"], "embeddings-LayerNorm")
    query, key, value = (
        dense(x, f"attention-{name}").view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    bias = (1.0 - mask.double()).view(BATCH, 1, 1, LENGTH) * -10000.0
    context = torch.softmax(query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + bias, -1) @ value
    x = normal(
        dense(context.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH), "attention-output") + x,
        "attention-LayerNorm",
    )
    x = x + dense(F.gelu(dense(x, "intermediate")), "output")
    picked = torch.stack([x[b, positions[b].long()] for b in range(BATCH)]).reshape(-1, WIDTH)
    losses = F.cross_entropy(picked @ p["embeddings-word"].T, masked_ids.reshape(-1).long(), reduction="none")
    lm_loss = (losses * masked_weights.reshape(-1)).sum() / (masked_weights.sum() + 1e-5)
    return lm_loss + F.cross_entropy(
        dense(torch.tanh(dense(x[:, 0], "pooler")), "seq_relationship"), next_label.reshape(-1).long()
    )


def bert_batches():
    rng = np.random.default_rng(5)
    mask = np.array([[1] * LENGTH, [1] * 4 + [0] * 2], np.int32)
    return [
        (
            rng.integers(0, VOCABULARY, (BATCH, LENGTH)).astype(np.int32),
            mask,
            rng.integers(0, LENGTH, (BATCH, MASKED)).astype(np.int32),
            rng.integers(0, VOCABULARY, (BATCH, MASKED)).astype(np.int32),
            np.array([[1, 1, 1], [1, 0, 0]], np.float32),
            rng.integers(0, 2, (BATCH, 1)).astype(np.int32),
        )
        for _ in range(STEPS)
    ]


def warm_rate(step, warmup=2, total=10):
    """The linear warmup takes the place of the polynomial schedule while it lasts."""
    return rules.LR * step / warmup if step < warmup else rules.LR * (1 - step / total)


def bert_optimizer():
    schedule = flow.optimizer.PolynomialScheduler(
        rules.LR, 10, 0.0, warmup=flow.optimizer.warmup.linear(2, 0)
    )
    return flow.optimizer.AdamW(
        schedule,
        epsilon=1e-6,
        do_bias_correction=True,
        weight_decay=0.01,
        weight_decay_excludes=["bias", "LayerNorm", "layer_norm"],
        grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0),
    )


def bert_rule(name):
    decay = 0.0 if "bias" in name or "LayerNorm" in name else 0.01
    full = rules.adam(0.9, 0.999, 1e-6, correct=True, decay=decay)
    return lambda p, g, state, t: p + (full(p, g, state, t) - p) * warm_rate(t) / rules.LR


def clipped(grads):
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    return {name: g / max(1.0, norm) for name, g in grads.items()}


def bert_config():
    """The optimizer as the first BERT programs configured it."""
    config = flow.function_config()
    config.train.primary_lr(rules.LR)
    config.train.model_update_conf(
        dict(
            adam_conf=dict(epsilon=1e-6, do_bias_correction=True),
            clip_conf=dict(clip_by_global_norm=dict(clip_norm=1.0)),
            learning_rate_decay=dict(polynomial_conf=dict(decay_batches=10, end_learning_rate=0.0)),
            warmup_conf=dict(linear_conf=dict(warmup_batches=2, start_multiplier=0)),
            weight_decay_conf=dict(
                weight_decay_rate=0.01, excludes=dict(pattern=["bias", "LayerNorm", "layer_norm"])
            ),
        )
    )
    return config


@pytest.mark.parametrize("config", [lambda: None, bert_config], ids=["optimizer", "function_config"])
def test_bert_pretraining_trains_like_torch(config):
    """Adam divides by the roots of small squares, which costs float32 three digits."""
    assert_trains_like_torch(
        bert, torch_bert, bert_batches(), bert_optimizer, bert_rule, clipped, 2e-3, config()
    )


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
    rule = rules.rows_only(rules.adam(0.9, 0.999, 1e-3, correct=True))
    rate = flow.optimizer.PiecewiseConstantScheduler([], [rules.LR])
    assert_trains_like_torch(
        wide_and_deep,
        torch_wide_and_deep,
        batches,
        lambda: flow.optimizer.LazyAdam(rate, epsilon=1e-3),
        lambda name: rule,
    )
