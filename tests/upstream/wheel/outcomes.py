"""Describe what a call gives as short texts, which `make upstream` compares between plain torch and the
drop-in.
"""

import hashlib

import torch
from op_samples import seed_all, tensors
from torch.utils import _pytree as pytree


def text_of(leaf):
    """Return the type, layout and values of a leaf: tensors as a digest of their bytes, where all nan are
    equal.
    """
    if not isinstance(leaf, torch.Tensor):
        return (
            f"{type(leaf).__name__} {leaf!r}" if isinstance(leaf, (int, float, str)) else type(leaf).__name__
        )
    strides = leaf.stride() if leaf.layout is torch.strided and leaf.numel() else ""
    values = leaf.detach()
    if values.layout is not torch.strided:
        values = values.to_dense()
    facts = f"{leaf.dtype} {[*leaf.shape]} {strides} {leaf.layout} requires_grad={leaf.requires_grad}"
    return f"{facts} {digest_of_values(values)}"


def digest_of_values(values):
    """Return a digest of the values of a strided tensor."""
    if values.is_quantized:
        values = values.int_repr()
    values = values.resolve_conj().resolve_neg()
    values = torch.view_as_real(values) if values.is_complex() else values
    values = torch.where(values.isnan(), float("nan"), values) if values.is_floating_point() else values
    data = values.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()[:12]


def class_of(error):
    """Return the class that callers of torch catch: an error of this package is a subclass of one."""
    packages = ("builtins", "torch")
    cls = next(cls for cls in type(error).__mro__ if cls.__module__.partition(".")[0] in packages)
    return f"raises {cls.__name__}"


def outcome_of(call, *inputs):
    """Return the texts of what call() returns and of the inputs after it, or the class of its error."""
    seed_all(5)
    try:
        result = call()
    except Exception as error:
        return class_of(error)
    written = tensors(inputs)
    return ", ".join(map(text_of, [*pytree.tree_leaves(result), *written, torch.get_rng_state()]))


class Record:
    """The outcomes of one test. Their digest is the outcome that both sides should have."""

    def __init__(self, record_property):
        self._record, self.details = record_property, []

    def add(self, name, outcome):
        """Add an outcome."""
        self.details.append(f"{name}: {outcome}")

    def close(self):
        """Give the outcomes to the runner."""
        text = "\n".join(self.details)
        self._record("outcome", hashlib.sha256(text.encode()).hexdigest()[:12])
        self._record("details", self.details)
