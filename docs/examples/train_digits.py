"""Train flowvision's MLP-Mixer on scikit-learn's digits: in eager mode, and as one program (nn.Graph).

    python docs/examples/train_digits.py [--device cuda] [--backends aten inductor] [--epochs N]

The demo shows that the losses of the aten backend equal eager mode's bit for bit, how long inductor compiles, and
how many steps a second each of them takes, measured in turns. It writes demo.png (losses and speed) and a
checkpoint to demo_output/, loads the checkpoint into a new model and tests that.
"""
import argparse
import sys
import time
from pathlib import Path

import numpy as np
from flowvision.models.mlp_mixer import MlpMixer
from sklearn.datasets import load_digits
from tqdm import tqdm

import oneflow as flow
import oneflow.nn as nn


def digits(device):
    """((train images, labels), (test images, labels)): 1x8x8 float32 images with values around 0."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    x = (flow.tensor(images[order], dtype=flow.float32).reshape(-1, 1, 8, 8) / 8 - 1).to(device)
    y = flow.tensor(labels[order], dtype=flow.int64).to(device)
    cut = len(x) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def mixer(device):
    """An MLP-Mixer of 4 blocks that reads an 8x8 image as 16 patches."""
    return MlpMixer(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=64, num_blocks=4).to(device)


def training(args, steps):
    """A seeded model with its loss, optimizer and schedule: the same ones for every mode."""
    flow.manual_seed(args.seed)
    model = mixer(args.device)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    return model, nn.CrossEntropyLoss(), optimizer, schedule


class TrainGraph(nn.Graph):
    """Forward, backward, update and schedule as one program."""

    def __init__(self, model, loss, optimizer, schedule, backend):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.set_backend(backend)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def eager_step(model, loss_fn, optimizer, schedule):
    def step(x, y):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        return loss

    return step


def batches(n, size, epochs, seed):
    rng = np.random.RandomState(seed)
    for _ in range(epochs):
        order = rng.permutation(n)
        for i in range(0, n - size + 1, size):
            yield order[i:i + size]


def accuracy(model, x, y):
    model.eval()
    with flow.no_grad():
        score = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return score


def train(name, step, data, args, steps):
    """Run `step` on every batch; (losses, seconds of the first step, which captures and compiles)."""
    x, y = data
    losses, first = [], 0.0
    bar = tqdm(batches(len(x), args.batch, args.epochs, args.seed), total=steps, desc=f"{name:8}", unit="step", mininterval=0.5, disable=args.quiet)
    for picks in bar:
        picks = flow.tensor(picks).to(args.device)
        begin = time.perf_counter()
        losses.append(step(x[picks], y[picks]).item())
        if len(losses) == 1:
            first = time.perf_counter() - begin
        if len(losses) % 20 == 0:
            bar.set_postfix(loss=f"{np.mean(losses[-20:]):.3f}")
    return losses, first


def side_by_side(steps, batch, rounds=20, calls=10):
    """Median seconds of each step function, taken in turns, so that the load of the machine hits all alike."""
    seconds = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step(*batch).item()  # the caches hold what the other steps left: not counted
            for _ in range(calls):
                begin = time.perf_counter()
                step(*batch).item()
                seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(s)) for name, s in seconds.items()}


def plot(curves, rates, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for (name, losses), width in zip(curves.items(), (5, 2.5, 1)):  # equal curves lie on each other
        left.plot(losses, label=name, linewidth=width, alpha=0.7)
    left.set(title="training loss", xlabel="step", yscale="log")
    left.legend()
    bars = right.barh(list(rates), list(rates.values()), color=["C0", "C1", "C2"][:len(rates)])
    right.bar_label(bars, [f"{rate:.0f} ({rate / rates['eager']:.2f}x)" for rate in rates.values()], padding=4)
    right.set(title="steps per second", xlim=(0, 1.3 * max(rates.values())))
    right.invert_yaxis()
    figure.suptitle("flowvision's MLP-Mixer on digits")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backends", nargs="+", default=["aten", "inductor"], choices=("aten", "inductor"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args(argv)
    data, test = digits(args.device)
    steps = len(data[0]) // args.batch * args.epochs
    models, curves, functions, scores = {}, {}, {}, {}
    good = True
    for name in ("eager", *args.backends):
        parts = training(args, steps)
        models[name] = parts[0]
        functions[name] = eager_step(*parts) if name == "eager" else TrainGraph(*parts, backend=name)
        curves[name], first = train(name, functions[name], data, args, steps)
        scores[name] = accuracy(models[name], *test)
        apart = [abs(a - b) for a, b in zip(curves["eager"], curves[name])]
        if name == "eager":
            print(f"eager: {steps} steps with {args.batch} images each")
        elif name == "aten":  # eager mode's own kernels
            good &= max(apart) == 0.0
            print(f"aten: captured in {first:.1f} s; the {steps} losses differ from eager mode's by at most {max(apart):g}")
        else:  # fused kernels round differently, and training multiplies that from step to step
            good &= apart[0] < 1e-3
            print(f"{name}: ready after {first:.1f} s (compiled; a later run loads it from disk); the first loss differs from eager mode's by {apart[0]:.0e}")

    args.output.mkdir(parents=True, exist_ok=True)
    flow.save(models[name].state_dict(), str(args.output / "checkpoint"))
    again = mixer(args.device)
    again.load_state_dict(flow.load(str(args.output / "checkpoint")))
    reloaded = accuracy(again, *test)
    print("measuring the steps in turns ...")
    turns = side_by_side(functions, (data[0][:args.batch], data[1][:args.batch]))
    rates = {name: 1 / seconds for name, seconds in turns.items()}
    plot(curves, rates, args.output / "demo.png")

    print(f"checkpoint of {name}, loaded into a new model: test accuracy {reloaded:.2%}; files in {args.output}/")
    print(f"\n{'':10}{'test accuracy':>14}{'steps/s':>10}{'speed':>8}")
    for name, rate in rates.items():
        print(f"{name:10}{scores[name]:14.2%}{rate:10.0f}{rate / rates['eager']:7.2f}x")
    good &= min(scores.values()) > 0.95 and reloaded == scores[name]
    if not good:
        print("not as it should be: accuracies over 95 %, the losses of aten equal, equal accuracy after loading", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
