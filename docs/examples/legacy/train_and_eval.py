"""Training and evaluation mixed step by step, inputs from an OFRecord reader inside the job, values watched.

    python docs/examples/legacy/train_and_eval.py
"""
import tempfile

import digits
import numpy as np

import oneflow as flow
import oneflow.typing as tp

BATCH_SIZE = 50


def write_records(folder, images, labels):
    from oneflow._data.records import RecordWriter

    with RecordWriter(f"{folder}/part-0") as out:
        for image, label in zip(images, labels):
            out.write({"image": image.reshape(-1), "label": np.array([label], np.int32)})


def network(x):
    x = flow.layers.dense(x, 100, activation=flow.nn.relu, kernel_initializer=flow.xavier_uniform_initializer(), name="hidden")
    return flow.layers.dense(x, 10, kernel_initializer=flow.xavier_uniform_initializer(), name="logits")


def main(steps=300):
    (train_images, train_labels), (test_images, test_labels) = digits.load()
    folder = tempfile.mkdtemp()
    write_records(folder, train_images, train_labels)
    norms = []

    config = flow.function_config()
    config.default_data_type(flow.float)
    config.default_logical_view(flow.scope.consistent_view())

    @flow.global_function(type="train", function_config=config)
    def train_job() -> tp.Numpy:
        records = flow.data.ofrecord_reader(folder, batch_size=BATCH_SIZE, data_part_num=1, random_shuffle=True)
        images = flow.data.OFRecordRawDecoder(records, "image", shape=(64,), dtype=flow.float)
        labels = flow.data.OFRecordRawDecoder(records, "label", shape=(1,), dtype=flow.int32)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images))
        flow.watch_diff(loss, lambda g: norms.append(float(np.abs(g.numpy()).sum())))
        flow.optimizer.LAMB(flow.optimizer.PolynomialScheduler(0.02, steps), weight_decay=0.01, weight_decay_excludes=["bias"],
                            grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)).minimize(loss)
        return loss

    @flow.global_function(type="predict", function_config=config)
    def eval_job(images: tp.Numpy.Placeholder((297, 64)), labels: tp.Numpy.Placeholder((297,), dtype=flow.int32)) -> tp.Numpy:
        return flow.math.in_top_k(labels, network(images), 1)

    losses, accuracies = [], []
    for step in range(steps):
        losses.append(float(train_job().mean()))
        if step % 50 == 49:
            accuracies.append(float(eval_job(test_images.reshape(297, 64), test_labels).mean()))
            print(f"step {step + 1}: loss {losses[-1]:.4f}, accuracy {accuracies[-1]:.1%}")
    return losses, accuracies[-1], norms


if __name__ == "__main__":
    main()
