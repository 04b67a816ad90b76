"""How programs are trained. Scripts that reproduce a failure contain the source of these functions."""

import copy
import itertools
import tempfile

import torch

import oneflow as flow


def weighted(r):
    """A mean in which every element counts differently."""
    return (r * (torch.arange(r.numel()).reshape(r.shape).cos() + 1.5)).mean()


def terms_of(results, reductions):
    """The terms of a loss: each result that has a gradient, reduced to one number by the reductions
    in turn.
    """
    real = [torch.view_as_real(r) if r.is_complex() else r for r in results]
    trained = [r for r in real if r.is_floating_point() and r.requires_grad and r.numel()]
    return [reduction(r) for reduction, r in zip(itertools.cycle(reductions), trained)]


class Trainee:
    """A program with its optimizer, and its part of a training step; inference if no parameter is trained."""

    def __init__(self, module, inputs, training, losses, reopen=False):
        self.module, self.inputs, self.losses = module, inputs, losses
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.optimizer, self.schedule, self.clip = training(self.trained) if self.trained else (None,) * 3
        self.reopen = reopen
        if reopen:  # a saved graph has no schedule
            self.schedule = None
        self.state = module.state_dict

    def compute(self, xs):
        """(results, gradients, arguments) of a step up to the optimizer."""
        results, gradients = self.module(*xs), []
        if self.optimizer is not None:
            losses = self.losses(results)
            for i, loss in enumerate(losses):
                loss.backward(retain_graph=i + 1 < len(losses))
            self.clip()
            with torch.no_grad():
                self.module.after()
            if self.module.shows_gradients:
                gradients = [p.grad for p in self.trained if p.grad is not None]
        # a graph's writes to its arguments stay inside the call: they are results
        return results, gradients, xs

    def update(self):
        """Do in eager what a graph does after build()."""
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.schedule is not None:
                self.schedule.step()

    def optimizer_state(self):
        """The optimizer's tensors and counters by name; a loaded graph has its own. Torch counts steps in the
        default dtype, a graph in float32.
        """
        state = self.optimizer.state if self.optimizer is not None and not self.reopen else {}
        return {
            f"{key} of trained parameter {k}": torch.as_tensor(float(value))
            if not torch.is_tensor(value) or value.dim() == 0 and key == "step"
            else value
            for k, p in enumerate(self.trained)
            for key, value in state.get(p, {}).items()
            if value is not None
        }

    def named(self, results, gradients, arguments):
        """All that may differ after a step, by name."""
        return {
            **{f"result {k}": r for k, r in enumerate(results)},
            **{f"gradient {k}": g for k, g in enumerate(gradients)},
            **self.state(),
            **{f"input {k}": x for k, x in enumerate(arguments)},
            **self.optimizer_state(),
            "random state": torch.get_rng_state(),
        }


class Step(flow.nn.Graph):
    """One training step of all programs as one graph."""

    def __init__(self, trainees, backend, options):
        super().__init__()
        self.trainees = trainees
        self.programs = torch.nn.ModuleList([t.module for t in trainees])
        self.config.set_backend(backend)
        self.config.eager_calls(False)  # such a call would be compared with itself
        exec(options, {"graph": self, "flow": flow, "torch": torch})
        for t in trainees:
            if t.optimizer is not None:
                self.add_optimizer(t.optimizer, lr_sch=t.schedule)

    def build(self, arguments):
        return [t.compute(xs) for t, xs in zip(self.trainees, arguments)]


def reopened(step, trainees, backend):
    """The graph, saved and loaded, which has the state of the programs from then on."""
    with tempfile.TemporaryDirectory() as folder:
        step.save(folder)
        loaded = flow.load_graph(folder, backend=backend)
    for k, t in enumerate(trainees):
        t.state = lambda k=k, t=t: {
            name: loaded.state_dict().get(f"programs.{k}.{name}", v)
            for name, v in t.module.state_dict().items()
        }
    return loaded


def train(programs, steps, backend=None, options="", reopen=False):
    """What each program computes, by name: after each step its results, gradients, parameters, buffers,
    inputs, optimizer state and the random state; after the last step the results of the first step, which may
    be views.

    A program is (module, inputs, training, losses). Without a backend it runs in eager. With `reopen` the
    graph is saved before its last call, which the loaded graph takes.
    """
    trainees = [Trainee(*program, reopen) for program in programs]
    step = Step(trainees, backend, options) if backend else None
    seen, kept = [{} for _ in trainees], []
    for i in range(steps):
        torch.manual_seed(100 + i)
        arguments = [t.inputs() for t in trainees]
        if step is None:
            outputs = [t.compute(xs) for t, xs in zip(trainees, arguments)]
            for t in trainees:
                t.update()
        else:
            outputs = step(arguments)
        kept = kept or [results for results, _, _ in outputs]
        for values, t, output in zip(seen, trainees, outputs):
            for name, value in t.named(*output).items():
                values[f"{name} after step {i + 1}"] = copy.deepcopy(value.detach())
        if reopen and step is not None and i == steps - 2:
            step = reopened(step, trainees, backend)
    for values, results in zip(seen, [] if reopen else kept):
        for k, r in enumerate(results):
            values[f"result {k} of step 1 after step {steps}"] = r.detach().clone()
    return seen
