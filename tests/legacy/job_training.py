"""Trains a network as a job function and in torch, and compares losses and variables."""

import legacy_update_rules as rules
import numpy as np
import torch
from legacy_jobs import job_of

import oneflow as flow

STEPS = 3


def sgd(momentum=0.9):
    rate = flow.optimizer.PiecewiseConstantScheduler([], [rules.LR])
    return flow.optimizer.SGD(rate, momentum=momentum)


def start_values(job):
    """Random values for the variables of a job, scaled by fan-in, and their positive moving variances."""
    rng, values = np.random.default_rng(7), {}
    for name, blob in flow.get_all_variables().items():
        if name.startswith("System-") or name.endswith(("-momentum", "-m", "-v")):
            continue
        fan_in = max(1, int(np.prod(blob.shape[1:])))
        values[name] = (rng.normal(size=blob.shape) / np.sqrt(fan_in)).astype(np.float32)
        if name.endswith(("moving_variance", "gamma")):
            values[name] = np.abs(values[name]) + 0.5
    return values


def assert_trains_like_torch(
    network,
    reference,
    batches,
    optimizer=sgd,
    rule_of=lambda name: rules.momentum(0.9),
    prepare=lambda grads: grads,
    rtol=2e-4,
    config=None,
):
    """Each step's losses and the variables at the end are those of `reference(parameters, *inputs)` under the
    rules.
    """

    def body(*blobs):
        loss = network(*blobs)
        if config is None:
            optimizer().minimize(loss)
        else:
            flow.losses.add_loss(loss)
        return loss

    job = job_of(body, batches[0], "train", config)
    values = start_values(job)
    flow.load_variables(values)
    parameters = {name: torch.from_numpy(value).double() for name, value in values.items()}
    states = {name: {} for name in values}
    for step, batch in enumerate(batches):
        trained = {n: p.requires_grad_() for n, p in parameters.items() if "moving" not in n}
        loss = reference(
            parameters,
            *(torch.from_numpy(a) if a.dtype.kind == "i" else torch.from_numpy(a).double() for a in batch),
        )
        np.testing.assert_allclose(
            job(*batch), loss.detach().numpy(), rtol=rtol, atol=1e-5, err_msg=f"loss of step {step}"
        )
        grads = torch.autograd.grad(loss.mean(), list(trained.values()))
        grads = prepare({name: g.numpy() for name, g in zip(trained, grads)})
        with torch.no_grad():
            for name, p in trained.items():
                moved = rule_of(name)(p.detach().numpy(), grads[name], states[name], step)
                parameters[name] = torch.from_numpy(np.asarray(moved))
    after = flow.get_all_variables()
    for name, p in parameters.items():
        np.testing.assert_allclose(
            after[name].numpy(), p.detach().numpy(), rtol=rtol, atol=2e-5, err_msg=name
        )
