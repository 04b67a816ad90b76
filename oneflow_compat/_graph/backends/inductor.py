"""Compiles the whole program with torch's inductor: one call per step, kernels fused across the step.

The captured graph writes its inputs in place; AOT's functionalization turns that into a pure graph whose last
operators write parameters and state back, and inductor fuses those writes into the kernels that compute them.
"""
from __future__ import annotations

import torch


def compile(program, config, name="inductor"):
    """A function over the slot values. Python numbers (lr) are passed as 0-d float64 tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .lowering import flat_module

    module, numbers = flat_module(program)
    options = dict(config.backend_options)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    examples = []
    with mode:
        for slot in program.slots:
            if slot.shape is None:
                examples.append(torch.empty((), dtype=torch.float64))
            else:
                examples.append(torch.empty_strided(slot.shape, slot.stride, dtype=slot.dtype, device=slot.device))
    compiled = _compile(module, examples, options)
    if not numbers:
        return compiled

    def run(*values):
        values = list(values)
        for i in numbers:
            values[i] = torch.tensor(values[i], dtype=torch.float64)
        return compiled(*values)

    return run


def _compile(module, examples, options):
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx

    with torch.no_grad(), inductor_config.patch(options):
        function = compile_fx(module, examples)

    def call(*values):
        with torch.no_grad():
            return function(*values)

    return call
