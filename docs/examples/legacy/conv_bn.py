"""A custom layer from get_variable, namespaces, convolution and batch normalization (NHWC).

    python docs/examples/legacy/conv_bn.py
"""
import digits
import numpy as np

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE = 100


def conv_bn(x, filters, name, strides=1):
    """Convolution with a weight made by hand, batch normalization, relu."""
    with flow.scope.namespace(name):
        weight = flow.get_variable(
            "weight",
            shape=(filters, 3, 3, x.shape[3]),
            dtype=x.dtype,
            initializer=flow.variance_scaling_initializer(2.0, mode="fan_in", distribution="random_normal", data_format="NHWC"),
            regularizer=flow.regularizers.l2(1e-4),
        )
        x = flow.nn.conv2d(x, weight, strides=strides, padding="SAME", data_format="NHWC", name="conv")
        x = flow.layers.batch_normalization(x, axis=-1, momentum=0.9, epsilon=1e-5, name="bn")
    return flow.nn.relu(x)


def network(images):
    x = flow.transpose(images, perm=[0, 2, 3, 1])
    x = conv_bn(x, 16, "block1")
    x = conv_bn(x, 32, "block2", strides=2)
    x = conv_bn(x, 32, "block3", strides=2)
    x = flow.math.reduce_mean(x, axis=[1, 2])
    return flow.layers.dense(x, 10, kernel_initializer=flow.glorot_uniform_initializer(), name="head")


@flow.global_function(type="train")
def train_job(
    images: tp.Numpy.Placeholder((BATCH_SIZE, 1, 8, 8)), labels: tp.Numpy.Placeholder((BATCH_SIZE,), dtype=flow.int32)
) -> tp.Numpy:
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
    schedule = flow.optimizer.CosineScheduler(0.01, 150, warmup=flow.optimizer.warmup.linear(10, 0.1))
    flow.optimizer.Adam(schedule, do_bias_correction=True).minimize(loss)
    return loss


@flow.global_function(type="predict")
def eval_job(images: tp.Numpy.Placeholder((297, 1, 8, 8))) -> tp.Numpy:
    return flow.nn.softmax(network(images))


def main(epochs=10):
    (train_images, train_labels), (test_images, test_labels) = digits.load()
    losses = []
    for epoch in range(epochs):
        for images, labels in digits.batches(train_images, train_labels, BATCH_SIZE, seed=epoch):
            losses.append(float(train_job(images, labels).mean()))
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    accuracy = float((np.argmax(eval_job(test_images), 1) == test_labels).mean())
    print(f"accuracy on the held-out digits: {accuracy:.1%}")
    return losses, accuracy


if __name__ == "__main__":
    main()
