"""Microseconds that the functions of oneflow.nn.functional add to torch's, same process, interleaved.

    python tests/benchmarks/nn_functions.py

The best of 60 short rounds on each side (other load only adds time); more than 1 us is marked.
"""

import timeit

import torch

import oneflow as flow

F, T = flow.nn.functional, torch.nn.functional
x, image, weight, labels = (
    torch.ones(2, 2),
    torch.ones(1, 1, 4, 4),
    torch.ones(1, 1, 1, 1),
    torch.tensor([0, 1]),
)
CALLS = {
    "relu(x)": (lambda: F.relu(x), lambda: T.relu(x)),
    "relu(x=x)": (lambda: F.relu(x=x), lambda: T.relu(x)),
    "leaky_relu(x=x, alpha=0.1)": (lambda: F.leaky_relu(x=x, alpha=0.1), lambda: T.leaky_relu(x, 0.1)),
    "softmax(x, dim=-1)": (lambda: F.softmax(x, dim=-1), lambda: T.softmax(x, dim=-1)),
    "log_softmax(x, 1)": (lambda: F.log_softmax(x, 1), lambda: T.log_softmax(x, 1)),
    "gelu(x)": (lambda: F.gelu(x), lambda: T.gelu(x)),
    "dropout(x, 0.1, False)": (lambda: F.dropout(x, 0.1, False), lambda: T.dropout(x, 0.1, False)),
    "normalize(x)": (lambda: F.normalize(x), lambda: T.normalize(x)),
    "mse_loss(x, x)": (lambda: F.mse_loss(x, x), lambda: T.mse_loss(x, x)),
    "cross_entropy(x, labels)": (lambda: F.cross_entropy(x, labels), lambda: T.cross_entropy(x, labels)),
    "one_hot(labels)": (lambda: F.one_hot(labels), lambda: T.one_hot(labels)),
    "conv2d(image, weight)": (lambda: F.conv2d(image, weight), lambda: T.conv2d(image, weight)),
    "max_pool2d(image, 2)": (lambda: F.max_pool2d(image, 2), lambda: T.max_pool2d(image, 2)),
    "avg_pool2d(image, 2)": (lambda: F.avg_pool2d(image, 2), lambda: T.avg_pool2d(image, 2)),
    "adaptive_avg_pool2d(image, 1)": (
        lambda: F.adaptive_avg_pool2d(image, 1),
        lambda: T.adaptive_avg_pool2d(image, 1),
    ),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    n = 500
    with torch.no_grad():
        for name, (ours, theirs) in CALLS.items():
            rounds = [(timeit.timeit(ours, number=n), timeit.timeit(theirs, number=n)) for _ in range(60)]
            mine, base = (min(side) / n * 1e6 for side in zip(*rounds))
            extra = mine - base
            print(
                f"{name:32} torch {base:6.2f} us   extra {extra:+.2f} us"
                + ("   over 1 us" if extra > 1 else "")
            )
