"""One program for many lengths: the number of programs, the speed at each length, the memory.

    OMP_NUM_THREADS=1 python tests/benchmarks/shapes.py  # aten and inductor, GPT and LSTM steps
    OMP_NUM_THREADS=1 python tests/benchmarks/shapes.py --backend aten --lengths 50

A graph with the default `config.dynamic` sees all lengths once. Then at some lengths its steps and those of a
graph with a static program of that length run in turns; the figure is the ratio of the medians. Memory is the
peak of the process at the longest length, each kind of program in a process of its own.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

LONGEST = 256


class GPT(nn.Module):
    def __init__(self, width=128, layers=4, words=1000):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(LONGEST, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers, self.head = (
            nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
            nn.Linear(width, words),
        )

    def forward(self, x):
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.head(self.layers(self.words(x) + self.places(torch.arange(n)), mask=mask, is_causal=True))


class Recurrent(nn.Module):
    def __init__(self, width=128, words=1000):
        super().__init__()
        self.words, self.lstm, self.head = (
            nn.Embedding(words, width),
            nn.LSTM(width, width, batch_first=True),
            nn.Linear(width, words),
        )

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])


MODELS = {"gpt": GPT, "lstm": Recurrent}


class Step(flow.nn.Graph):
    def __init__(self, model, backend, dynamic):
        super().__init__()
        self.model = model
        self.add_optimizer(torch.optim.AdamW(model.parameters()))
        self.config.set_backend(backend)
        self.config.dynamic(dynamic)

    def build(self, x, y):
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        loss.backward()
        return loss


def batch(length):
    return torch.randint(0, 1000, (8, length)), torch.randint(0, 1000, (8, length))


def step_of(model, backend, dynamic):
    torch.manual_seed(0)
    return Step(MODELS[model](), backend, dynamic)


def cpu_seconds(function):
    begin = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    function()
    return (
        sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        - begin
    )


def ratio(dynamic, static, length, rounds):
    """(median of the dynamic program, of the static one) of steps in turns, in milliseconds of CPU time."""
    times = {dynamic: [], static: []}
    data = batch(length)
    for graph in (dynamic, static) * (rounds + 2):
        begin = time.process_time()
        graph(*data)
        times[graph].append(1e3 * (time.process_time() - begin))
    return tuple(statistics.median(times[graph][2:]) for graph in (dynamic, static))


def measure(model, backend, lengths, at, rounds):
    dynamic = step_of(model, backend, None)
    batches = [batch(n) for n in lengths]
    seconds = cpu_seconds(lambda: [dynamic(*data) for data in batches])
    programs = len(dynamic._engine.programs)
    print(
        f"{model:5} {backend:9} {len(lengths)} lengths: {programs} programs, {seconds:.1f} CPU seconds",
        flush=True,
    )
    for length in at:
        mine, theirs = ratio(dynamic, step_of(model, backend, False), length, rounds)
        print(
            (
                f"{model:5} {backend:9} length {length:4}: dynamic {mine:.2f} ms, static {theirs:.2f}"
                f" ms, ratio {mine / theirs:.3f}"
            ),
            flush=True,
        )


def peak(model, backend, dynamic):
    """Print the peak memory of a process that trains at the longest length."""
    graph = step_of(model, backend, True if dynamic else False)
    data = batch(LONGEST)
    for _ in range(3):
        graph(*data)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory(model, backend):
    peaks = [
        float(
            subprocess.run(
                [sys.executable, __file__, "--peak", kind, "--model", model, "--backend", backend],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for kind in ("dynamic", "static")
    ]
    print(
        (
            f"{model:5} {backend:9} peak memory: dynamic {peaks[0]:.0f} MiB, static {peaks[1]:.0f} MiB,"
            f" ratio {peaks[0] / peaks[1]:.3f}"
        ),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--backend", choices=("aten", "inductor"))
    parser.add_argument("--lengths", type=int, default=50)
    parser.add_argument("--at", type=int, nargs="*", default=[32, 64, 200])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peak", choices=("dynamic", "static"))
    options = parser.parse_args()
    if options.peak:
        return peak(options.model, options.backend, options.peak == "dynamic")
    lengths = [LONGEST - 3 * i for i in range(options.lengths)]
    for model in [options.model] if options.model else MODELS:
        for backend in [options.backend] if options.backend else ("aten", "inductor"):
            measure(model, backend, lengths, options.at, options.rounds)
            memory(model, backend)


if __name__ == "__main__":
    main()
