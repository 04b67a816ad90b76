"""Measure the compile time and the savings of inductor: the initial estimates of the backend auto
(oneflow_compat/_graph/compile/auto.py).

OMP_NUM_THREADS=1 python tests/benchmarks/compile_costs.py

The script writes tests/golden/compile_costs.json. It uses an empty compiler cache.
"""

import json
import os
import pathlib
import tempfile
import time

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()

import torch

import oneflow as flow
import oneflow.nn as nn

CALLS = 8


def convolution_blocks(channels, count):
    block = lambda: (nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), *[layer for _ in range(2 * count) for layer in block()]
    )


def perceptron():
    return nn.Sequential(
        *[layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
    )


def transformer():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 3)


IMAGES = (8, 3, 32, 32)
MODELS = {
    "perceptron, training": (perceptron, (64, 256), True),
    "4 blocks of convolutions, inference": (lambda: convolution_blocks(32, 4), IMAGES, False),
    "4 blocks of convolutions, training": (lambda: convolution_blocks(32, 4), IMAGES, True),
    "12 blocks of convolutions, training": (lambda: convolution_blocks(16, 12), IMAGES, True),
    "transformer, training": (transformer, (8, 64, 128), True),
}


class Step(nn.Graph):
    def __init__(self, model, is_training, backend):
        super().__init__()
        self.model, self.is_training = model, is_training
        if is_training:
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        self.config.set_backend(backend)

    def build(self, x):
        out = self.model(x)
        if self.is_training:
            out = out.pow(2).mean()
            out.backward()
        return out


def measured(make, shape, is_training, backend):
    """(seconds of the capture, of the compilation, of the fastest call)"""
    torch.manual_seed(0)
    graph, x, stages, seconds = (
        Step(make().train(is_training), is_training, backend),
        flow.randn(*shape),
        {},
        [],
    )
    graph._engine.config.on_stage = lambda stage, taken, program: stages.setdefault(stage, taken)
    graph(x), graph(x)
    for _ in range(CALLS):
        begin = time.perf_counter()
        graph(x)
        seconds.append(time.perf_counter() - begin)
    return stages["capture"], stages[f"compile {backend}"], min(seconds)


def main():
    measured(perceptron, (2, 256), False, "inductor")  # loads the compiler
    rows = []
    for name, case in MODELS.items():
        _, _, aten = measured(*case, "aten")
        capture, compilation, inductor = measured(*case, "inductor")
        row = {
            "capture_seconds": capture,
            "compile_seconds": compilation,
            "aten_seconds": aten,
            "inductor_seconds": inductor,
        }
        rows.append({"model": name, **{k: float(f"{v:.3g}") for k, v in row.items()}})
        print(rows[-1], flush=True)
    path = pathlib.Path(__file__).parent.parent / "golden" / "compile_costs.json"
    path.write_text("[" + ",\n ".join(map(json.dumps, rows)) + "]\n")


if __name__ == "__main__":
    main()
