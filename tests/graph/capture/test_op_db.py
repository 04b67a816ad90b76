"""torch's operator samples (torch.testing._internal): each call and its gradients in a graph (aten) are
bitwise equal to eager mode.

Every graph is called twice, the second time with other values, to detect values that were captured as
constants.
"""

import random

import numpy as np
import pytest
import torch
from graph_cases import graph_of
from torch.utils import _pytree as pytree

from oneflow._graph.errors import CaptureError

pytestmark = pytest.mark.slow
pytest.importorskip("expecttest", reason="needs the package expecttest: torch.testing._internal imports it")
from torch.testing._internal import common_methods_invocations as samples_of_torch

torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = (
    True  # that import forbids torch.backends.cudnn.enabled = ... in the whole process
)
# the test sets the seed itself
samples_of_torch.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

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
LEFT_OUT = {
    "the result is not initialised": "empty empty_like empty_strided empty_permuted new_empty new_empty_strided",
    "compiles a CUDA kernel": "jiterator_unary jiterator_binary jiterator_binary_return_by_ref jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args",
}


def names(table):
    return {name: reason for reason, listed in table.items() for name in listed.split()}


refused, rounding, left_out = map(names, (REFUSED, ROUNDING, LEFT_OUT))


def case(op):
    return op.name + (f"-{op.variant_test_name}" if op.variant_test_name else "")


def seed(number):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def tensors(tree):
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def copied(tree, factor=1.0):
    def copy(t):
        if not isinstance(t, torch.Tensor):
            return t
        other = t.detach().clone()
        if factor != 1.0 and (t.is_floating_point() or t.is_complex()) and t.layout is torch.strided:
            other = (other * factor).to(t.dtype)
        return other.requires_grad_(t.requires_grad)

    return pytree.tree_map(copy, tree)


def with_gradients(function, sample):
    """The results, and the gradients of a weighted sum of them."""
    x, args, kwargs = sample
    result = function(x, *args, **kwargs)
    outs = [t for t in tensors(result) if t.requires_grad and t.layout is torch.strided]
    leaves = [t for t in tensors(sample) if t.requires_grad]
    total = sum(
        (torch.view_as_real(t) if t.is_complex() else t)
        .mul(torch.arange(t.numel() * (1 + t.is_complex())).view(t.shape + (2,) * t.is_complex()).cos())
        .sum()
        for t in outs
    )
    if outs and leaves:
        total.backward()
    return pytree.tree_leaves(result), [t.grad for t in leaves]


def equal(a, b):
    if not isinstance(a, torch.Tensor):
        return a == b or a != a
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype != b.dtype or a.shape != b.shape or (a.numel() and a.stride() != b.stride()):
        return False
    return bool(((a == b) | (a != a) & (b != b)).all())


def close(a, b):
    return not isinstance(a, torch.Tensor) or torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def samples(op):
    for dtype, count in ((torch.float32, 2), (torch.int64, 1), (torch.complex64, 1)):
        if dtype in op.supported_dtypes("cpu"):
            seed(3)
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
def test_operator(op):
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
            seed(5)
            try:
                want = with_gradients(op.op, inputs)
            except Exception:  # torch refuses the sample, or its gradient
                break
            state, mine = torch.get_rng_state(), copied(sample, factor)
            seed(5)
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
