"""LeNet on images of MNIST's shape, with train, evaluation and a snapshot in between.

    python docs/examples/legacy/lenet.py [snapshot folder]
"""
import sys
import tempfile

import digits

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE = 100


def lenet(data, train=False):
    initializer = flow.truncated_normal(0.1)
    conv1 = flow.layers.conv2d(data, 32, 5, padding="SAME", activation=flow.nn.relu, name="conv1", kernel_initializer=initializer)
    pool1 = flow.nn.max_pool2d(conv1, ksize=2, strides=2, padding="SAME", name="pool1", data_format="NCHW")
    conv2 = flow.layers.conv2d(pool1, 64, 5, padding="SAME", activation=flow.nn.relu, name="conv2", kernel_initializer=initializer)
    pool2 = flow.nn.max_pool2d(conv2, ksize=2, strides=2, padding="SAME", name="pool2", data_format="NCHW")
    reshape = flow.reshape(pool2, [pool2.shape[0], -1])
    hidden = flow.layers.dense(reshape, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="dense1")
    if train:
        hidden = flow.nn.dropout(hidden, rate=0.5, name="dropout")
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="dense2")


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
    labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32),
) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        logits = lenet(images, train=True)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="softmax_loss")
    lr_scheduler = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(lr_scheduler, momentum=0).minimize(loss)
    return loss


@flow.global_function(type="predict")
def eval_job(
    images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 28, 28), dtype=flow.float),
    labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32),
) -> tp.Numpy:
    with flow.scope.placement("cpu", "0:0"):
        logits = lenet(images, train=False)
        return flow.math.equal(flow.math.argmax(logits), labels)


def main(folder=None, epochs=8):
    (train_images, train_labels), (test_images, test_labels) = digits.load(28)
    losses = []
    for epoch in range(epochs):
        for images, labels in digits.batches(train_images, train_labels, BATCH_SIZE, seed=epoch):
            losses.append(float(train_job(images, labels).mean()))
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    right = [eval_job(i, l).mean() for i, l in digits.batches(test_images, test_labels, BATCH_SIZE)]
    accuracy = float(sum(right) / len(right))
    print(f"accuracy on the held-out digits: {accuracy:.1%}")
    folder = folder or tempfile.mkdtemp() + "/lenet"
    flow.checkpoint.save(folder)
    print(f"snapshot: {folder}")
    return losses, accuracy, folder


if __name__ == "__main__":
    main(*sys.argv[1:2])
