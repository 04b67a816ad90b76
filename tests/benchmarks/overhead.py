"""Measure the overhead of oneflow over torch: import time, alias rows, renamed functions, a ResNet-18
training step.

    python tests/benchmarks/overhead.py [--quick]

Both sides run interleaved in one process, and medians are compared. The exit status is 1 if a limit is
exceeded.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as TF

import oneflow as flow


def imports(runs):
    """Seconds of `import torch` and of `import oneflow` after it, in fresh processes."""
    code = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter(); import oneflow; c"
        " = time.perf_counter(); print(b - a, c - b)"
    )
    pairs = [
        tuple(
            map(
                float,
                subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, check=True
                ).stdout.split(),
            )
        )
        for _ in range(runs)
    ]
    return tuple(statistics.median(side) for side in zip(*pairs))


def interleaved(ours, theirs, rounds, inner):
    """Median seconds per call of both, taken in turns."""
    a, b = [], []
    for f in (ours, theirs) * 2:
        f()
    for _ in range(rounds):
        for f, out in ((ours, a), (theirs, b)):
            begin = time.perf_counter()
            for _ in range(inner):
                f()
            out.append((time.perf_counter() - begin) / inner)
    return statistics.median(a), statistics.median(b)


def functions():
    x, y = torch.ones(8), torch.ones(8)
    m, t, l = torch.ones(8, 8), torch.zeros(8, dtype=torch.long), torch.randn(8, 4)
    return {
        "cat": (lambda: flow.cat([x, y]), lambda: torch.cat([x, y])),
        "cat(dim=)": (lambda: flow.cat([x, y], dim=0), lambda: torch.cat([x, y], dim=0)),
        "stack": (lambda: flow.stack([x, y]), lambda: torch.stack([x, y])),
        "zeros": (lambda: flow.zeros(8), lambda: torch.zeros(8)),
        "ones_like": (lambda: flow.ones_like(x), lambda: torch.ones_like(x)),
        "arange": (lambda: flow.arange(8), lambda: torch.arange(8)),
        "matmul": (lambda: flow.matmul(m, m), lambda: torch.matmul(m, m)),
        "where": (lambda: flow.where(x > 0, x, y), lambda: torch.where(x > 0, x, y)),
        "F.relu": (lambda: flow.nn.functional.relu(x), lambda: TF.relu(x)),
        "F.softmax": (lambda: flow.nn.functional.softmax(x, dim=0), lambda: TF.softmax(x, dim=0)),
        "F.cross_entropy": (lambda: flow.nn.functional.cross_entropy(l, t), lambda: TF.cross_entropy(l, t)),
        "split": (lambda: flow.split(x, 4), lambda: torch.split(x, 4)),
        "argmax(dim=)": (lambda: flow.argmax(m, dim=1), lambda: torch.argmax(m, dim=1)),
        "Tensor.numpy": (lambda: x.numpy(), lambda: torch.Tensor.numpy(x)),
    }


def training_step(namespace, optim):
    from flowvision.models import resnet18

    torch.manual_seed(0)
    model = resnet18(num_classes=10)
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))

    def step():
        loss = namespace.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    args = parser.parse_args(argv)
    torch.set_num_threads(2)
    few = 4 if args.quick else 1
    result, missed = {}, []

    t, o = imports(12 // few)
    print(f"import torch {t * 1e3:.0f} ms, import oneflow after it {o * 1e3:.1f} ms ({o / t:.3f} of it)")
    result["import"] = {"torch_ms": t * 1e3, "oneflow_ms": o * 1e3}
    if o > 0.08:
        missed.append(f"import oneflow adds {o * 1e3:.0f} ms, the bound is 80")

    from oneflow._tables.aliases import ALIASES

    other = [n for n in ALIASES["oneflow"].split() if getattr(flow, n) is not getattr(torch, n)]
    print(
        (
            f"alias rows of the top level: {len(ALIASES['oneflow'].split()) - len(other)} are torch's"
            f" very objects"
        )
        + (f", {other} are not" if other else "")
    )
    if other:
        missed.append(f"alias rows that are no aliases: {other}")

    print(f"{'function':18}{'torch us':>10}{'oneflow us':>12}{'extra us':>10}")
    for name, (ours, theirs) in functions().items():
        a, b = interleaved(ours, theirs, 200 // few, 200)
        result[name] = {"torch_us": b * 1e6, "oneflow_us": a * 1e6}
        print(f"{name:18}{b * 1e6:10.2f}{a * 1e6:12.2f}{(a - b) * 1e6:10.2f}")
        if a - b > 1e-6:
            missed.append(f"{name} costs {(a - b) * 1e6:.2f} us more than torch's, the bound is 1")

    a, b = interleaved(training_step(flow, flow.optim), training_step(torch, torch.optim), 30 // few, 1)
    print(f"ResNet-18 training step: torch {b * 1e3:.1f} ms, oneflow {a * 1e3:.1f} ms, ratio {a / b:.3f}")
    result["resnet18"] = {"torch_ms": b * 1e3, "oneflow_ms": a * 1e3}
    if a / b > 1.02:
        missed.append(f"the ResNet-18 step takes {a / b:.3f} of torch's, the bound is 1.02")
    print(json.dumps({"torch": torch.__version__, **result}))
    for line in missed:
        print("MISSED:", line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
