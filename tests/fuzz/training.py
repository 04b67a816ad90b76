"""How a program is trained; scripts that show a failure hold the text of these functions."""
import copy

import torch

import oneflow as flow


def loss_of(results):
    """One number from the floating results, in which every element counts differently."""
    total = 0
    for r in results:
        if r.is_complex():
            r = torch.view_as_real(r)
        if r.is_floating_point() and r.requires_grad:
            total = total + (r * (torch.arange(r.numel()).reshape(r.shape).cos() + 1.5)).mean()
    return total


def train(module, inputs, steps, backend=None, options=""):
    """Results, parameters, buffers and inputs by name after each step; in eager without a backend, inference where no parameter is trained."""
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9) if trained else None

    def compute(*xs):
        results = module(*xs)
        if optimizer is not None:
            loss_of(results).backward()
        return results

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.config.set_backend(backend)
            exec(options, {"graph": self, "flow": flow, "torch": torch})
            if optimizer is not None:
                self.add_optimizer(optimizer)

        def build(self, *xs):
            return compute(*xs)

    step, seen = Step() if backend else compute, {}
    for i in range(steps):
        torch.manual_seed(100 + i)
        given = inputs()
        results = step(*given)
        if not backend and optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        named = {**{f"result {k}": r for k, r in enumerate(results)}, **module.state_dict(), **{f"input {k}": x for k, x in enumerate(given)}}
        seen.update({f"{name} after step {i + 1}": copy.deepcopy(v.detach()) for name, v in named.items()})
    return seen
