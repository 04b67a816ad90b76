"""Every operator of torch's op_db with its gradients as a compiled step: aten gives the bits of eager
mode.
"""

import pytest
from compiled import AS_PROGRAM, IN_EAGER_MODE, compared
from op_samples import copied, tensors, with_gradients
from operators import CASES, samples
from torch.utils import _pytree as pytree

SAMPLES = 4
import torch


def rebuilt(sample):
    """Return a function that puts tensors into the sample."""
    leaves, spec = pytree.tree_flatten(sample)
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def build(inputs):
        changed = [*leaves]
        for position, t in zip(positions, inputs):
            changed[position] = t
        return pytree.tree_unflatten(changed, spec)

    return build


@pytest.mark.parametrize("op, dtype", CASES)
def test_step(op, dtype, record_property):
    ran = []
    every = samples(op, dtype)
    for sample in every[:: max(1, len(every) // SAMPLES)]:
        sample = (sample.input, sample.args, sample.kwargs)
        build = rebuilt(sample)

        def step(*inputs):
            return with_gradients(op.op, build(inputs))

        calls = [lambda f=factor: tensors(copied(sample, f)) for factor in (1.0, 0.875)]
        ran.append(compared(lambda: (step, list), calls))
    record_property("note", IN_EAGER_MODE if IN_EAGER_MODE in ran else AS_PROGRAM)
