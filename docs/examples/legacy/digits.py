"""The digits of scikit-learn, optionally as images of MNIST's shape."""
import numpy as np


def load(size=8):
    """((train images, train labels), (test images, test labels)); images (n, 1, size, size) in [0, 1], labels int32."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[:, None]
    if size != 8:  # nearest neighbour in the middle of a size x size image
        scale = size // 8
        big = images.repeat(scale, 2).repeat(scale, 3)
        pad = (size - 8 * scale) // 2
        images = np.pad(big, [(0, 0), (0, 0), (pad, size - 8 * scale - pad), (pad, size - 8 * scale - pad)])
    labels = data.target.astype(np.int32)
    order = np.random.RandomState(0).permutation(len(images))
    images, labels = images[order], labels[order]
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])


def batches(images, labels, size=100, seed=None):
    """Whole batches, in a new order when a seed is given."""
    order = np.arange(len(images)) if seed is None else np.random.RandomState(seed).permutation(len(images))
    for start in range(0, len(images) - size + 1, size):
        pick = order[start:start + size]
        yield images[pick], labels[pick]
