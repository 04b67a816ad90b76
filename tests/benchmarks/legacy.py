"""Compare a job-function step with the same nn.Graph step: python tests/benchmarks/legacy.py [backend]

The last rows are the CPU time of categorical_ordinal_encoder for 20,000 ids and a table of 400,000.

The two run interleaved in one process, with NumPy inputs for both; the numbers are the fastest tenth's
slowest call in microseconds, so that other load on the machine counts little.
"""

import os
import statistics
import sys
import time

os.environ["ONEFLOW_GRAPH_BACKEND"] = sys.argv[1] if len(sys.argv) > 1 else "aten"

import numpy as np
import torch

import oneflow
import oneflow.compatible.single_client as flow
import oneflow.typing as tp

LIMIT = 50.0


def pair(width, layers):
    """(job step, graph step) of one multi-layer perceptron."""
    flow.clear_default_session()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, width)).astype(np.float32), rng.integers(0, 10, 32).astype(np.int32)

    @flow.global_function(type="train")
    def job(
        images: tp.Numpy.Placeholder((32, width)), labels: tp.Numpy.Placeholder((32,), dtype=flow.int32)
    ) -> tp.Numpy:
        h = images
        for i in range(layers):
            h = flow.layers.dense(
                h,
                width,
                activation=flow.nn.relu,
                kernel_initializer=flow.random_normal_initializer(stddev=0.05),
                name=f"d{i}",
            )
        logits = flow.layers.dense(
            h, 10, kernel_initializer=flow.random_normal_initializer(stddev=0.05), name="out"
        )
        loss = flow.math.reduce_mean(flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.01]), momentum=0).minimize(loss)
        return loss

    nn = oneflow.nn
    parts = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*parts, nn.Linear(width, 10))

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.loss = model, nn.CrossEntropyLoss()
            self.add_optimizer(oneflow.optim.SGD(model.parameters(), lr=0.01))

        def build(self, images, labels):
            loss = self.loss(self.model(images), labels.long())
            loss.backward()
            return loss

    graph = Graph()
    return (lambda: job(x, y)), (lambda: graph(torch.from_numpy(x), torch.from_numpy(y)).numpy())


def seconds(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def ordinal_encoder(num_ids=400_000, batch=20_000):
    """(median milliseconds of CPU of a call that adds its ids, of a call that knows them)."""
    flow.clear_default_session()
    ids = np.random.default_rng(0).choice(2**62, num_ids, replace=False) + 1

    @flow.global_function()
    def job(blob: tp.Numpy.Placeholder((batch,), dtype=flow.int64)) -> tp.Numpy:
        return flow.layers.categorical_ordinal_encoder(blob, capacity=num_ids)

    def calls():
        times = []
        for start in range(0, num_ids, batch):
            begin = time.process_time()
            job(ids[start : start + batch])
            times.append((time.process_time() - begin) * 1e3)
        return statistics.median(times)

    return calls(), calls()


def main(repeats=400):
    torch.set_num_threads(1)
    worst = 0.0
    for width, layers in ((8, 1), (64, 2), (256, 4)):
        ours, theirs = pair(width, layers)
        for _ in range(20):
            ours(), theirs()
        times = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
        a, b = (statistics.quantiles(c, n=10)[0] * 1e6 for c in zip(*times))
        worst = max(worst, a - b)
        print(
            f"width {width:4} layers {layers}: job {a:8.1f} us   graph {b:8.1f} us   difference"
            f" {a - b:+7.1f} us"
        )
    added, stored = ordinal_encoder()
    print(f"ordinal encoder, 20,000 ids: new {added:.1f} ms   stored {stored:.1f} ms")
    print(
        f"largest difference {worst:+.1f} us, allowed {LIMIT:.0f} us:"
        f" {'ok' if worst <= LIMIT else 'TOO SLOW'}"
    )
    return worst


if __name__ == "__main__":
    sys.exit(main() > LIMIT)
