"""BERT pretraining in the style of OneFlow 0.2 to 0.4, compared with the same network in torch."""

import legacy_update_rules as rules
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from job_training import STEPS, assert_trains_like_torch

import oneflow as flow

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
    full = rules.adam_0_4(0.9, 0.999, 1e-6, decay=decay)
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
