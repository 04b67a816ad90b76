"""Wide & Deep on made-up clicks: embedding tables, a deep tower, sigmoid cross entropy, AUC.

    python docs/examples/legacy/wide_and_deep.py
"""
import numpy as np

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE, DENSE, WIDE, DEEP = 256, 4, 2, 3
VOCABULARY = 200


def model(dense_fields, wide_ids, deep_ids):
    wide_table = flow.get_variable("wide_embedding", shape=(VOCABULARY, 1), initializer=flow.random_uniform_initializer(-0.05, 0.05))
    deep_table = flow.get_variable("deep_embedding", shape=(VOCABULARY, 16), initializer=flow.random_uniform_initializer(-0.05, 0.05))
    wide = flow.math.reduce_sum(flow.reshape(flow.gather(params=wide_table, indices=wide_ids), (-1, WIDE)), axis=[1], keepdims=True)
    deep = flow.reshape(flow.gather(params=deep_table, indices=deep_ids), (-1, DEEP * 16))
    x = flow.concat([deep, dense_fields], axis=1)
    for i, units in enumerate((64, 32)):
        x = flow.layers.dense(x, units, kernel_initializer=flow.glorot_uniform_initializer(), activation=flow.math.relu, name=f"fc{i + 1}")
        x = flow.nn.dropout(x, rate=0.1)
    deep_score = flow.layers.dense(x, 1, kernel_initializer=flow.glorot_uniform_initializer(), name="fc3")
    return wide + deep_score


def _inputs(n):
    return (tp.Numpy.Placeholder((n, DENSE)), tp.Numpy.Placeholder((n, WIDE), dtype=flow.int32), tp.Numpy.Placeholder((n, DEEP), dtype=flow.int32))


D, W, P = _inputs(BATCH_SIZE)


@flow.global_function(type="train")
def train_job(labels: tp.Numpy.Placeholder((BATCH_SIZE, 1)), dense_fields: D, wide_ids: W, deep_ids: P) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        logits = model(dense_fields, wide_ids, deep_ids)
        loss = flow.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
        tables = flow.optimizer.LazyAdam(rate, variables=["wide_embedding", "deep_embedding"])
        tower = flow.optimizer.Adam(rate, do_bias_correction=True, variables=[f"fc{i}-{part}" for i in (1, 2, 3) for part in ("weight", "bias")])
        flow.optimizer.CombinedOptimizer([tables, tower]).minimize(loss)
        return loss


@flow.global_function(type="predict")
def eval_job(dense_fields: D, wide_ids: W, deep_ids: P) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        return flow.math.sigmoid(model(dense_fields, wide_ids, deep_ids))


def clicks(rng, truth, n=BATCH_SIZE):
    """A batch: a click is likely when the ids' and fields' hidden weights add up."""
    dense = rng.normal(size=(n, DENSE)).astype(np.float32)
    wide = rng.integers(0, VOCABULARY, (n, WIDE)).astype(np.int32)
    deep = rng.integers(0, VOCABULARY, (n, DEEP)).astype(np.int32)
    score = truth[0][wide].sum(1) + truth[1][deep].sum(1) + dense @ truth[2]
    labels = (rng.random(n) < 1 / (1 + np.exp(-2 * score))).astype(np.float32)
    return labels[:, None], dense, wide, deep


def auc(labels, scores):
    order = scores.argsort().argsort()
    positive = labels > 0.5
    p, n = positive.sum(), (~positive).sum()
    return float((order[positive].sum() - p * (p - 1) / 2) / (p * n))


def main(steps=400):
    rng = np.random.default_rng(0)
    truth = [rng.normal(size=VOCABULARY), rng.normal(size=VOCABULARY), rng.normal(size=DENSE)]
    losses = [float(train_job(*clicks(rng, truth)).mean()) for _ in range(steps)]
    found = []
    for _ in range(4):
        labels, *features = clicks(rng, truth)
        found.append((labels[:, 0], eval_job(*features)[:, 0]))
    score = auc(*(np.concatenate(c) for c in zip(*found)))
    print(f"loss {losses[0]:.3f} -> {np.mean(losses[-20:]):.3f}, AUC {score:.3f}")
    return losses, score


if __name__ == "__main__":
    main()
