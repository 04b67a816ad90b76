"""Time of optimizer.step(), ours over torch's, same process, interleaved:  python bench_optim.py"""

import statistics
import time

import torch

import oneflow as flow


def prepared(make):
    params = [torch.nn.Parameter(torch.randn(64, 64)) for _ in range(60)]
    for p in params:
        p.grad = torch.randn_like(p)
    o = make(params)
    for _ in range(5):
        o.step()
    return o


def seconds(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, options in (
        ("SGD", {}),
        ("SGD", dict(momentum=0.9)),
        ("Adam", {}),
        ("AdamW", {}),
        ("Adagrad", {}),
        ("RMSprop", {}),
    ):
        ours = prepared(lambda ps: getattr(flow.optim, name)(ps, lr=0.01, **options))
        theirs = prepared(lambda ps: getattr(torch.optim, name)(ps, lr=0.01, **options))
        pairs = [(seconds(ours.step), seconds(theirs.step)) for _ in range(200)]
        a, b = (statistics.median(column) for column in zip(*pairs))
        print(f"{name:8} {options!s:20} ours {a * 1e6:7.0f} us   torch {b * 1e6:7.0f} us   ratio {a / b:.3f}")
