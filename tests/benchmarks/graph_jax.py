"""The whole training step under jax.jit: MLPs and the GPT of graph_models.py, for comparison of speed
only.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ.get("OMP_NUM_THREADS") == "1":
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np


def _linear(rng, a, b):
    return {"w": rng.uniform(-1, 1, (a, b)).astype("float32") / np.sqrt(a), "b": np.zeros(b, "float32")}


def _norm(n):
    return {"w": np.ones(n, "float32"), "b": np.zeros(n, "float32")}


def _cross_entropy(logits, target):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], -1).mean()


def _dense(p, x):
    return x @ p["w"] + p["b"]


def _scaled(p, x, axis):
    mean, var = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["w"] + p["b"], (mean, var)


def _mlp(width, normed):
    rng = np.random.default_rng(0)
    depth = 3 if normed else 2
    params = {
        "layers": [
            {**_linear(rng, width, width), **({"norm": _norm(width)} if normed else {})} for _ in range(depth)
        ],
        "head": _linear(rng, width, 10),
    }
    running = [
        (np.zeros((1, width), "float32"), np.ones((1, width), "float32"))
        for _ in range(depth if normed else 0)
    ]

    def loss(params, running, x, y):
        new = []
        for i, layer in enumerate(params["layers"]):
            x = x @ layer["w"] if normed else _dense(layer, x)
            if normed:
                x, now = _scaled(layer["norm"], x, 0)
                new.append(tuple(0.9 * old + 0.1 * fresh for old, fresh in zip(running[i], now)))
            x = jax.nn.relu(x)
        return _cross_entropy(_dense(params["head"], x), y), new

    return params, running, loss


def _gpt(vocabulary=1000, width=128, depth=4, heads=4, positions=64):
    rng = np.random.default_rng(0)
    block = lambda: {
        "n1": _norm(width),
        "qkv": _linear(rng, width, 3 * width),
        "out": _linear(rng, width, width),
        "n2": _norm(width),
        "up": _linear(rng, width, 4 * width),
        "down": _linear(rng, 4 * width, width),
    }
    params = {
        "embed": rng.normal(0, 0.02, (vocabulary, width)).astype("float32"),
        "place": rng.normal(0, 0.02, (positions, width)).astype("float32"),
        "blocks": [block() for _ in range(depth)],
        "norm": _norm(width),
    }

    def attention(p, x):
        n, t, _ = x.shape
        q, k, v = (a.reshape(n, t, heads, -1).swapaxes(1, 2) for a in jnp.split(_dense(p["qkv"], x), 3, -1))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        return _dense(p["out"], (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(n, t, width))

    def loss(params, running, ids):
        x = params["embed"][ids] + params["place"][: ids.shape[1]]
        for p in params["blocks"]:
            x = x + attention(p, _scaled(p["n1"], x, -1)[0])
            x = x + _dense(p["down"], jax.nn.gelu(_dense(p["up"], _scaled(p["n2"], x, -1)[0])))
        logits = _scaled(params["norm"], x, -1)[0] @ params["embed"].T
        return _cross_entropy(logits[:, :-1], ids[:, 1:]), running

    return params, [], loss


def _update(optimizer, params, grads, state):
    each = jax.tree_util.tree_map
    if optimizer == "sgd":
        buffers = each(lambda m, g: 0.9 * m + g, state, grads)
        return each(lambda p, m: p - 1e-3 * m, params, buffers), buffers
    count, first, second = state
    count = count + 1
    first = each(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = each(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    fix1, fix2 = 1 - 0.9**count, 1 - 0.999**count
    return each(
        lambda p, m, v: p * (1 - 1e-6) - 1e-4 * (m / fix1) / (jnp.sqrt(v / fix2) + 1e-8),
        params,
        first,
        second,
    ), (count, first, second)


def make(model, optimizer, inference):
    """step(*torch tensors) of the model; weights, moments and running statistics are donated and kept."""
    params, running, loss = (
        _gpt() if model == "gpt2" else _mlp(64, False) if model == "tiny" else _mlp(256, True)
    )
    held = jax.device_put((params, running))
    if inference:
        run = jax.jit(lambda held, *batch: loss(*held, *batch)[0])
        return lambda *batch: run(held, *(jnp.asarray(t.numpy()) for t in batch)).block_until_ready()
    zeros = lambda: jax.tree_util.tree_map(jnp.zeros_like, held[0])
    state = [held, zeros() if optimizer == "sgd" else (jnp.zeros(()), zeros(), zeros())]

    def whole(held, moments, *batch):
        (value, running), grads = jax.value_and_grad(loss, has_aux=True)(*held, *batch)
        params, moments = _update(optimizer, held[0], grads, moments)
        return value, (params, running), moments

    run = jax.jit(whole, donate_argnums=(0, 1))

    def step(*batch):
        value, state[0], state[1] = run(*state, *(jnp.asarray(t.numpy()) for t in batch))
        return value.block_until_ready()

    return step
