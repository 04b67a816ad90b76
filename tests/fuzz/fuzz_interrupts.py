"""Interrupt calls of a graph at random moments, and compare what they leave: `make fuzz-interrupts`.

    python tests/fuzz/fuzz_interrupts.py --seeds 0:200
    python tests/fuzz/fuzz_interrupts.py --seeds 17:18 --backend inductor

An interrupt is Ctrl-C, a SIGALRM whose handler raises TimeoutError (as time limits do), or another signal
whose handler raises an error of its own. It comes at a random moment of a first call (capture, compilation,
first run) or of a replay. Each group of seeds runs in a process of its own. A verdict is one of: nothing (the
call raised and changed nothing), whole (the call did all it does without an interrupt), MIXED (anything
else), LOST (the call raised another error, or torch was left changed), ENDED (the process died).
"""

import argparse
import collections
import gc
import mmap
import os
import random
import signal
import subprocess
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import oneflow as flow
from oneflow._active import capturing

VERDICTS = ("nothing", "whole", "MIXED", "LOST", "ENDED")
GROUP = 10  # seeds in one process
MOMENTS = ("first call", "replay")
MOST_REPLAYS = 50
WORLDS = 12  # optimizers, with a schedule, a bound tensor, both or neither


class Interruption(Exception):
    """What the handler of SIGUSR1 raises."""


KINDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGALRM: TimeoutError, signal.SIGUSR1: Interruption}


class Net(nn.Module):
    """State of every form: weights, statistics, buffers that build() writes or binds, attributes."""

    def __init__(self, binds):
        super().__init__()
        self.binds = binds
        self.layers = nn.Sequential(
            nn.Linear(6, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 1)
        )
        self.register_buffer("queue", torch.zeros(256, 6))
        self.last, self.has_run = None, False

    def forward(self, x, index):
        with torch.no_grad():
            self.queue[index] = x
        y = self.layers(x)
        if self.binds:
            self.last = y.mean()
        self.has_run = True
        return y + self.queue.mean()


def changes_of_torch():
    """What a capture changes in torch and Python, and what has to be back."""
    return {
        "modes": (len(_get_current_dispatch_mode_stack()), torch._C._len_torch_function_stack()),
        "settings": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), gc.isenabled(), capturing()),
        "hooks": (
            len(torch_module._global_forward_hooks),
            len(torch_module._global_forward_pre_hooks),
        ),
        "functions": [id(vars(torch.Tensor).get(n)) for n in ("item", "__bool__", "tolist", "backward")],
        "handlers": [id(signal.getsignal(number)) for number in KINDS],
    }


class World:
    """A graph with its state, which is taken down and put back."""

    def __init__(self, seed, backend):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.net = Net(binds=rng.random() < 0.3)
        optimizer_class = rng.choice([torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
        self.optimizer = optimizer_class(self.net.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2) if rng.random() < 0.3 else None
        self.graph = graph_of(self.net, self.optimizer, self.schedule, backend)
        self.args = torch.randn(128, 6), torch.arange(128)

    def step(self):
        return self.graph(*self.args)

    def picture(self):
        """All state as a dict of values that compare."""
        tensors = {**self.net.state_dict(), "random": torch.get_rng_state()}
        names = {p: name for name, p in self.net.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            tensors.update({f"{names[parameter]}.{k}": v for k, v in state.items() if v is not None})
        values = {k: v.detach().clone() if isinstance(v, torch.Tensor) else v for k, v in tensors.items()}
        values["last"] = None if self.net.last is None else self.net.last.detach().clone()
        values["attributes"] = self.net.has_run
        values["rates"] = [g["lr"] for g in self.optimizer.param_groups]
        if self.schedule is not None:
            values["schedule"] = {k: v for k, v in vars(self.schedule).items() if type(v) in (int, float)}
        values["gradients"] = [p.grad is None for p in self.net.parameters()]
        return values

    def put_back(self, picture):
        """Give all state the values of a picture."""
        self.net.last, self.net.has_run = picture["last"], picture["attributes"]
        torch.set_rng_state(picture["random"])
        with torch.no_grad():
            for name, tensor in self.net.state_dict().items():
                tensor.copy_(picture[name])
            for name, parameter in self.net.named_parameters():
                state = self.optimizer.state.get(parameter, {})
                for key, value in list(state.items()):
                    kept = picture.get(f"{name}.{key}")
                    if isinstance(value, torch.Tensor) and kept is not None:
                        value.copy_(kept)
                if state and not any(f"{name}.{key}" in picture for key in state):
                    del self.optimizer.state[parameter]
        for group, rate in zip(self.optimizer.param_groups, picture["rates"]):
            group["lr"] = rate
        if self.schedule is not None:
            vars(self.schedule).update(picture["schedule"])


def graph_of(net, optimizer, schedule, backend):
    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(optimizer, lr_sch=schedule)
            self.config.set_backend(backend)

        def build(self, x, index):
            loss = self.net(x, index).square().mean()
            loss.backward()
            return loss

    return Train()


def differences(a, b):
    return sorted(key for key in {*a, *b} if not equal(a.get(key, ""), b.get(key, "")))


def equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    return type(a) is type(b) and a == b


def interrupted(world, number, delay, sender, most_calls):
    """Call until the signal comes after `delay` seconds. Return (completed calls, what a call raised or
    None).
    """
    completed, error = 0, None
    try:
        sender.send(number, delay)
        for _ in range(most_calls):
            world.step()
            completed += 1
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    while not sender.has_sent:
        try:
            time.sleep(0.001)
        except tuple(KINDS.values()) as raised:
            error = error or raised
    try:
        time.sleep(0.001)  # the handler runs
    except tuple(KINDS.values()) as raised:
        error = error or raised
    return completed, error


class Sender:
    """A process that sends signals to this one. A thread would wait for the GIL."""

    def __init__(self):
        self.orders, write_end = os.pipe()
        self.count, self.sent = 0, mmap.mmap(-1, 1)  # of signals, modulo 256; the processes share `sent`
        receiver = os.getpid()
        self.process = os.fork()
        if self.process == 0:
            for number in KINDS:
                signal.signal(number, signal.SIG_IGN)
            while order := os.read(self.orders, 64):
                number, delay = order.split()
                time.sleep(float(delay))
                os.kill(receiver, int(number))
                self.sent[0] = (self.sent[0] + 1) % 256
            os._exit(0)
        self.orders = write_end

    def send(self, number, delay):
        self.count = (self.count + 1) % 256
        os.write(self.orders, f"{int(number)} {delay}".encode())

    @property
    def has_sent(self):
        return self.sent[0] == self.count

    def close(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def run(seed, backend, seconds, sender):
    """Interrupt one call. Return (moment, signal, verdict, what differs)."""
    rng = random.Random(seed)
    number, moment = rng.choice(list(KINDS)), rng.choice(MOMENTS)
    world = World(rng.randrange(WORLDS), backend)
    for _ in range(3 if moment == "replay" else 0):
        world.step()
    before, of_torch = world.picture(), changes_of_torch()
    most_calls = MOST_REPLAYS if moment == "replay" else 1
    completed, error = interrupted(world, number, rng.random() * seconds[moment], sender, most_calls)
    after = world.picture()
    if error is not None and not isinstance(error, KINDS[number]):
        return moment, number, "LOST", f"{type(error).__name__}: {error}"
    if of_torch != changes_of_torch():
        return moment, number, "LOST", differences(of_torch, changes_of_torch())
    world.put_back(before)
    for _ in range(completed):
        world.step()
    if not differences(world.picture(), after):
        return moment, number, "nothing", []
    world.step()
    detail = differences(world.picture(), after)
    return moment, number, "MIXED" if detail else "whole", detail


def run_group(seeds, backend):
    """Run seeds in this process, and print a line for each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, raises(TimeoutError))
    signal.signal(signal.SIGUSR1, raises(Interruption))
    sender = Sender()
    World(0, backend).step()  # imports
    world = World(1, backend)
    seconds = {"first call": duration(world), "replay": 5 * min(duration(world) for _ in range(5))}
    for seed in seeds:
        print(f"begin {seed}", flush=True)
        moment, number, verdict, detail = run(seed, backend, seconds, sender)
        print(f"end {seed} | {moment} | {number.name} | {verdict} | {detail}", flush=True)
    sender.close()


def duration(world):
    begin = time.perf_counter()
    world.step()
    return time.perf_counter() - begin


def raises(error_class):
    def handler(number, frame):
        raise error_class(f"signal {number}")

    return handler


def fuzz(seeds, backend="aten", seconds=float("inf"), group=GROUP):
    """Yield (seed, moment, signal, verdict, detail) of each seed."""
    deadline, pending = time.monotonic() + seconds, list(seeds)
    while pending and time.monotonic() < deadline:
        part, pending = pending[:group], pending[group:]
        command = [sys.executable, __file__, "--group", ",".join(map(str, part)), "--backend", backend]
        child = subprocess.run(command, capture_output=True, text=True)
        done = [line.split(" | ") for line in child.stdout.splitlines() if line.startswith("end ")]
        yield from ((int(head.split()[1]), *rest) for head, *rest in done)
        if child.returncode != 0 or len(done) < len(part):
            seed = part[len(done)] if len(done) < len(part) else part[-1]
            yield seed, "?", "?", "ENDED", f"return code {child.returncode}: {child.stderr[-300:]}"
            pending = [*part[len(done) + 1 :], *pending]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0:200", help="FIRST:LAST, the last one excluded")
    parser.add_argument("--backend", default="aten")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--group", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group is not None:
        run_group([int(seed) for seed in options.group.split(",")], options.backend)
        return 0
    first, last = map(int, options.seeds.split(":"))
    counts = collections.Counter()
    for seed, moment, name, verdict, detail in fuzz(range(first, last), options.backend, options.seconds):
        counts[moment, verdict] += 1
        if verdict.isupper():
            print(f"seed {seed}: {moment}, {name}: {verdict} {detail}", flush=True)
            print(
                f"  python tests/fuzz/fuzz_interrupts.py --seeds {seed}:{seed + 1} --backend"
                f" {options.backend}"
            )
    for (moment, verdict), count in sorted(counts.items()):
        print(f"{moment:12} {verdict:8} {count:5}")
    return int(any(verdict.isupper() for _, verdict in counts))


if __name__ == "__main__":
    sys.exit(main())
