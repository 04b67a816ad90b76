"""Results by callback: the call returns a function that takes the handler.

    python docs/examples/legacy/callback.py
"""
from typing import Tuple

import digits

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE = 100


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 8, 8)), labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32)
) -> tp.Callback[Tuple[tp.Numpy, tp.Numpy]]:
    x = flow.reshape(images, (BATCH_SIZE, -1))
    x = flow.layers.dense(x, 128, activation=flow.math.tanh, kernel_initializer=flow.random_normal_initializer(stddev=0.1), name="hidden")
    logits = flow.layers.dense(x, 10, kernel_initializer=flow.random_normal_initializer(stddev=0.1), name="logits")
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    flow.optimizer.AdamW(flow.optimizer.PiecewiseScalingScheduler(0.01, [100], 0.1), do_bias_correction=True, weight_decay=0.01,
                         weight_decay_excludes=["bias"]).minimize(loss)
    return loss, flow.math.equal(flow.math.argmax(logits), labels)


def main(epochs=10):
    (images, labels), _ = digits.load()
    losses, rights = [], []

    def handler(result):
        loss, right = result
        losses.append(float(loss.mean()))
        rights.append(float(right.mean()))

    for epoch in range(epochs):
        for x, y in digits.batches(images, labels, BATCH_SIZE, seed=epoch):
            train_job(x, y)(handler)
    accuracy = sum(rights[-15:]) / 15
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy in the last epoch {accuracy:.1%}")
    return losses, accuracy


if __name__ == "__main__":
    main()
