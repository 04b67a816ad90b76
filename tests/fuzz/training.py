"""How a program is trained. Scripts that reproduce a failure contain the source of these functions."""

import copy
import tempfile

import torch

import oneflow as flow


def loss_of(results):
    """One number from the floating results, in which every element counts differently."""
    total = 0
    for r in results:
        if r.is_complex():
            r = torch.view_as_real(r)
        if r.is_floating_point() and r.requires_grad and r.numel():
            total = total + (r * (torch.arange(r.numel()).reshape(r.shape).cos() + 1.5)).mean()
    return total


def train(module, inputs, training, steps, backend=None, options="", reopen=False):
    """Results, parameters, buffers and inputs by name after each step; in eager without a backend, inference where no parameter is trained.

    With `reopen` the graph is saved before its last call, which what is loaded takes; it has no schedule.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer, schedule, clip = training(trained) if trained else (None, None, None)
    schedule = None if reopen else schedule

    def compute(*xs):
        results = module(*xs)
        if optimizer is not None:
            loss_of(results).backward()
            clip()
        return results

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.config.set_backend(backend)
            exec(options, {"graph": self, "flow": flow, "torch": torch})
            if optimizer is not None:
                self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self, *xs):
            return compute(
                *xs
            ), xs  # a graph's writes to its arguments stay inside the call: they are results

    step, state, seen = Step() if backend else compute, module.state_dict, {}
    for i in range(steps):
        torch.manual_seed(100 + i)
        arguments = inputs()
        results, arguments = step(*arguments) if backend else (step(*arguments), arguments)
        if not backend and optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()
        named = {
            **{f"result {k}": r for k, r in enumerate(results)},
            **state(),
            **{f"input {k}": x for k, x in enumerate(arguments)},
        }
        seen.update({f"{name} after step {i + 1}": copy.deepcopy(v.detach()) for name, v in named.items()})
        if reopen and backend and i == steps - 2:
            with tempfile.TemporaryDirectory() as folder:
                step.save(folder)
                step = flow.load_graph(folder, backend=backend)
            state = lambda: {
                name: step.state_dict().get(f"module.{name}", v) for name, v in module.state_dict().items()
            }
    return seen
