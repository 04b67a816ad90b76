"""torch's operator samples (torch.testing._internal): each call and its gradients in a graph (aten) are
bitwise equal to eager mode.

Every graph is called twice, the second time with other values, to detect values that were captured as
constants.
"""

import pytest
import torch
from graph_cases import graph_of
from op_samples import (
    case,
    copied,
    equal,
    left_out,
    names,
    samples_of_torch,
    seed_all,
    tensors,
    with_gradients,
)
from torch.utils import _pytree as pytree

from oneflow._graph.errors import CaptureError

pytestmark = pytest.mark.slow

REFUSED = {
    "the shape of the result depends on values": "nonzero argwhere unique unique_consecutive",
    "the result is a Python number": "item allclose equal",
    "torch looks at values to check its arguments": "cov linalg.svd",
    "a tensor tells where to split": "tensor_split",
}
ROUNDING = {
    "the gradient, where eager looks for zeros": "prod masked.prod cumprod masked.cumprod",
    "of a symbolic tensor torch takes singular vectors too": "svd_lowrank",
    "torch 2.11 lays the gradient out otherwise for a symbolic tensor": "fft.hfft fft.irfft",
    "of memory at another place eager gives another last digit": "linalg.lstsq",
}
refused, rounding = map(names, (REFUSED, ROUNDING))


def close(a, b):
    return not isinstance(a, torch.Tensor) or torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def samples(op):
    for dtype, count in ((torch.float32, 2), (torch.int64, 1), (torch.complex64, 1)):
        if dtype in op.supported_dtypes("cpu"):
            seed_all(3)
            requested = (
                dtype is not torch.int64
                and op.supports_autograd
                and dtype in op.supported_backward_dtypes("cpu")
            )
            for _, sample in zip(range(count), op.sample_inputs("cpu", dtype, requires_grad=requested)):
                yield sample.input, sample.args, sample.kwargs


@pytest.mark.parametrize(
    "op", [pytest.param(op, id=case(op)) for op in samples_of_torch.op_db if op.name not in left_out]
)
def test_samples_of_an_operator_give_eager_results_and_gradients(op):
    errors = []
    for sample in samples(op):
        flat, spec = pytree.tree_flatten(sample)
        places = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

        def build(*inputs):
            leaves = list(flat)
            for i, t in zip(places, inputs):
                leaves[i] = t
            return with_gradients(op.op, pytree.tree_unflatten(leaves, spec))

        graph = graph_of(build)
        for factor in (1.0, 0.875) if places else (1.0,):
            inputs = copied(sample, factor)
            seed_all(5)
            try:
                want = with_gradients(op.op, inputs)
            except Exception:  # torch refuses the sample, or its gradient
                break
            state, mine = torch.get_rng_state(), copied(sample, factor)
            seed_all(5)
            try:
                got = graph(*tensors(mine))
            except CaptureError as error:
                errors.append(str(error))
                break
            compare = close if op.name in rounding else equal
            assert all(map(compare, pytree.tree_leaves((*want, inputs)), pytree.tree_leaves((*got, mine)))), (
                factor,
                sample,
            )
            assert torch.equal(state, torch.get_rng_state())
    assert op.name in refused or not errors, errors
