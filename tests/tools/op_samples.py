"""Samples of torch's operator tables (torch.testing._internal): copies, gradients, exact comparison."""

import random

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

pytest.importorskip("expecttest", reason="needs the package expecttest: torch.testing._internal imports it")
from torch.testing._internal import common_methods_invocations as samples_of_torch

# That import forbids torch.backends.cudnn.enabled = ... in the whole process.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
# The sampler seeds every sample alike, so that equal samples would hide a wrong one.
samples_of_torch.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

LEFT_OUT = {
    "the result is not initialized": (
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided"
    ),
    "compiles a CUDA kernel": (
        "jiterator_unary jiterator_binary jiterator_binary_return_by_ref jiterator_2inputs_2outputs"
        " jiterator_4inputs_with_extra_args"
    ),
}


def names(table):
    """Return {name: reason} of a table of reasons."""
    return {name: reason for reason, listed in table.items() for name in listed.split()}


left_out = names(LEFT_OUT)


def case(op):
    """Return the name of an operator with its variant."""
    return op.name + (f"-{op.variant_test_name}" if op.variant_test_name else "")


def seed_all(number):
    """Seed the generators that the samplers use."""
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def tensors(tree):
    """Return the tensors of a tree."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def copied(tree, factor=1.0):
    """Return a copy of a tree whose floating tensors are multiplied by `factor`."""

    def copy(t):
        if not isinstance(t, torch.Tensor):
            return t
        duplicate = t.detach().clone()
        if factor != 1.0 and (t.is_floating_point() or t.is_complex()) and t.layout is torch.strided:
            duplicate = (duplicate * factor).to(t.dtype)
        return duplicate.requires_grad_(t.requires_grad)

    return pytree.tree_map(copy, tree)


def with_gradients(function, sample):
    """Return the results, and the gradients of a weighted sum of them."""
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
    """Whether two leaves are equal: dtype, shape, strides and values, where nan equals nan."""
    if not isinstance(a, torch.Tensor):
        return a == b or a != a
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.dtype != b.dtype or a.shape != b.shape or (a.numel() and a.stride() != b.stride()):
        return False
    return bool(((a == b) | (a != a) & (b != b)).all())
