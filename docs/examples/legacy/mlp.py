"""The first tutorial program of job functions: a multi-layer perceptron that learns digits.

    python docs/examples/legacy/mlp.py
"""
import digits

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE = 100


def mlp(data):
    initializer = flow.truncated_normal(0.1)
    reshape = flow.reshape(data, [data.shape[0], -1])
    hidden = flow.layers.dense(reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="dense1")
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="dense2")


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 8, 8), dtype=flow.float),
    labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32),
) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        logits = mlp(images)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    lr_scheduler = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(lr_scheduler, momentum=0.9).minimize(loss)
    return loss


@flow.global_function(type="predict")
def eval_job(images: tp.Numpy.Placeholder((297, 1, 8, 8), dtype=flow.float)) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        return flow.math.argmax(mlp(images))


def main(epochs=8):
    (train_images, train_labels), (test_images, test_labels) = digits.load()
    losses = []
    for epoch in range(epochs):
        for images, labels in digits.batches(train_images, train_labels, BATCH_SIZE, seed=epoch):
            losses.append(float(train_job(images, labels).mean()))
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    accuracy = float((eval_job(test_images) == test_labels).mean())
    print(f"accuracy on the held-out digits: {accuracy:.1%}")
    return losses, accuracy


if __name__ == "__main__":
    main()
