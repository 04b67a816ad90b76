"""Record pickled modules of OneFlow 0.9.0 and their results. Run with its interpreter:

ORACLE-PYTHON tests/golden/record_files.py tests/golden/modules
"""

import os
import pickle
import sys

import numpy as np

import oneflow as flow

nn = flow.nn
MODULES = {
    "linear": (lambda: nn.Linear(3, 4), (2, 3)),
    "linear_nobias": (lambda: nn.Linear(3, 4, bias=False), (2, 3)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (1, 2, 6, 5)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, dilation=2, bias=False), (1, 2, 8)),
    "convtranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (1, 4, 4, 4)),
    "batchnorm": (lambda: nn.BatchNorm2d(3).eval(), (2, 3, 2, 2)),
    "layernorm": (lambda: nn.LayerNorm((3,)), (2, 3)),
    "groupnorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "embedding": (lambda: nn.Embedding(5, 3), None),
    "prelu": (lambda: nn.PReLU(), (2, 3)),
    "avgpool": (lambda: nn.AvgPool2d(2, 1, padding=1), (1, 1, 4, 4)),
    "maxpool": (lambda: nn.MaxPool2d(2), (1, 1, 4, 4)),
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), (5, 1, 3)),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), (1, 5, 3)),
    "upsample": (lambda: nn.Upsample(scale_factor=2.0, mode="nearest"), (1, 1, 2, 3)),
    "softmax": (lambda: nn.Softmax(dim=1), (2, 3)),
    "net": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3),
            nn.BatchNorm2d(2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((2, 2)),
            nn.Flatten(),
            nn.Linear(8, 2),
        ).eval(),
        (1, 1, 6, 6),
    ),
    "modulelist": (lambda: nn.ModuleList([nn.Linear(2, 2), nn.Tanh()]), None),
}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    flow.manual_seed(0)
    rng, arrays = np.random.RandomState(0), {}
    for name, (make, shape) in MODULES.items():
        module = make()
        with open(os.path.join(folder, name + ".pickle"), "wb") as file:
            pickle.dump(module, file, 4)
        if shape is not None or name == "embedding":
            x = rng.rand(*shape).astype(np.float32) - 0.5 if shape else np.array([[0, 4], [2, 2]], np.int64)
            out = module(flow.tensor(x))
            arrays[name + "/in"], arrays[name + "/out"] = (
                x,
                (out[0] if isinstance(out, tuple) else out).numpy(),
            )
    np.savez(os.path.join(folder, "expected.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
