"""Train flowvision's mobilenet_v2 on scikit-learn's digits, first eager, then as one compiled program (nn.Graph).

    python docs/examples/train_digits.py [--device cuda] [--backend aten|inductor|auto] [--epochs N]

Prints accuracy and steps per second of both, compares the two loss curves, writes the curves as
loss.png and a checkpoint to demo_output/, loads the checkpoint into a new model and tests that.
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np
from flowvision.models import mobilenet_v2
from sklearn.datasets import load_digits
from tqdm import tqdm

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F


def digits(device):
    """((train images, labels), (test images, labels)): 3x32x32 float32 images with values around 0."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    x = flow.tensor(images[order], dtype=flow.float32).reshape(-1, 1, 8, 8) / 8 - 1
    x = F.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False).repeat(1, 3, 1, 1).to(device)
    y = flow.tensor(labels[order], dtype=flow.int64).to(device)
    cut = len(x) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def parts(args, steps):
    """A seeded model with its loss, optimizer and schedule: the same ones for every mode."""
    flow.manual_seed(args.seed)
    model = mobilenet_v2(num_classes=10).to(args.device)
    for layer in model.modules():  # no dropout: only the aten backend samples the same masks as eager mode
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    optimizer = flow.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    return model, nn.CrossEntropyLoss(), optimizer, schedule


class TrainGraph(nn.Graph):
    """forward, backward, update and schedule as one program"""

    def __init__(self, model, loss, optimizer, schedule, backend):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_backend(backend)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def batches(n, size, epochs, seed):
    rng = np.random.RandomState(seed)
    for _ in range(epochs):
        order = rng.permutation(n)
        for i in range(0, n - size + 1, size):
            yield order[i:i + size]


def accuracy(model, x, y):
    model.eval()
    with flow.no_grad():
        right = sum((model(x[i:i + 120]).argmax(1) == y[i:i + 120]).sum().item() for i in range(0, len(x), 120))
    model.train()
    return right / len(x)


def train(name, step, model, data, args, steps):
    """Run `step` on every batch; (losses, test accuracy, steps per second without the first one).

    The bar shows the longest step after the first: with --backend auto the loop does not wait for the compiler.
    """
    (x, y), test = data
    losses, longest = [], 0.0
    began = second_step = time.perf_counter()
    bar = tqdm(batches(len(x), args.batch, args.epochs, args.seed), total=steps, desc=f"{name:6}", unit="step", mininterval=0.5, disable=args.quiet)
    for picks in bar:
        picks = flow.tensor(picks).to(args.device)
        begin = time.perf_counter()
        losses.append(step(x[picks], y[picks]).item())
        if len(losses) == 1:
            second_step = time.perf_counter()
            bar.write(f"{name}: first step took {second_step - began:.1f} s")
        else:
            longest = max(longest, time.perf_counter() - begin)
        if len(losses) % 10 == 0:
            bar.set_postfix(loss=f"{np.mean(losses[-10:]):.3f}", longest_step=f"{longest:.2f} s")
    rate = (len(losses) - 1) / (time.perf_counter() - second_step)
    return losses, accuracy(model, *test), rate


def side_by_side(steps, batch, rounds=15):
    """Median seconds of each step function, taken in turns, so that the machine's mood hits both alike."""
    seconds = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step(*batch).item()
            seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(s)) for name, s in seconds.items()}


def plot(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, losses in curves.items():
        pyplot.plot(losses, label=name, alpha=0.7)
    pyplot.xlabel("step")
    pyplot.ylabel("training loss")
    pyplot.yscale("log")
    pyplot.legend()
    pyplot.title("mobilenet_v2 on digits")
    pyplot.savefig(path, dpi=120)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="aten", choices=("aten", "inductor", "auto"), help="backend of nn.Graph; aten gives eager's numbers bit for bit")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args(argv)
    data = digits(args.device)
    steps = len(data[0][0]) // args.batch * args.epochs
    curves, rates, scores = {}, {}, {}

    model, loss_fn, optimizer, schedule = parts(args, steps)
    eager_model = model

    def eager_step(x, y):
        loss = loss_fn(eager_model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return loss

    curves["eager"], scores["eager"], rates["eager"] = train("eager", eager_step, model, data, args, steps)

    graph_parts = parts(args, steps)
    graph, graph_model = TrainGraph(*graph_parts, backend=args.backend), graph_parts[0]
    curves["graph"], scores["graph"], rates["graph"] = train("graph", graph, graph_model, data, args, steps)

    args.output.mkdir(parents=True, exist_ok=True)
    flow.save(graph_model.state_dict(), str(args.output / "checkpoint"))
    again = mobilenet_v2(num_classes=10).to(args.device)
    again.load_state_dict(flow.load(str(args.output / "checkpoint")))
    reloaded = accuracy(again, *data[1])
    plot(curves, args.output / "loss.png")

    apart = [abs(a - b) for a, b in zip(curves["eager"], curves["graph"])]
    print(f"\n{'':8}{'test accuracy':>14}{'steps/s':>10}")
    for name in curves:
        print(f"{name:8}{scores[name]:14.2%}{rates[name]:10.1f}")
    turns = side_by_side({"eager": eager_step, "graph": graph}, (data[0][0][:args.batch], data[0][1][:args.batch]))
    print(f"taken in turns, a step takes {turns['eager'] * 1e3:.1f} ms eager, {turns['graph'] * 1e3:.1f} ms as a graph: {turns['eager'] / turns['graph']:.2f}x")
    print(f"the losses differ by {apart[0]:.1e} at the first step, by at most {max(apart):.1e} over {steps} steps")
    print(f"checkpoint loaded into a new model: {reloaded:.2%}; files in {args.output}/")
    # another backend rounds differently, and training with BatchNorm multiplies that from step to step
    same_curve = max(apart) == 0.0 if args.backend == "aten" else apart[0] < 1e-3
    good = min(scores.values()) > 0.95 and reloaded == scores["graph"] and same_curve
    if not good:
        print("not as it should be: both accuracies over 95 %, equal loss curves, equal accuracy after loading", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
