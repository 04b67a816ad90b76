"""Run a program that may take another branch than at capture."""

from __future__ import annotations

import torch
from ..program.symbolic import BRANCH_TAKEN_OTHERWISE


def run_or_undo(run, kept, program, *values):
    """Run the program; if a branch on sizes goes another way, undo all effects and raise.

    `kept`: indices of the values that are written before the last branch check.
    """
    devices = {s.device for s in program.slots if s.device is not None and s.device.type == "cuda"}
    random = [
        (g, g.get_state())
        for g in (torch.default_generator, *(torch.cuda.default_generators[d.index or 0] for d in devices))
    ]
    before = [(values[i], values[i].clone()) for i in kept]
    try:
        return run(*values)
    except RuntimeError as error:
        if BRANCH_TAKEN_OTHERWISE in str(error):
            for generator, state in random:
                generator.set_state(state)
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
        raise
