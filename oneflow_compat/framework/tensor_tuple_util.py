"""Lists of tensors, which OneFlow calls TensorTuple."""

import torch


def convert_to_tensor_tuple(args) -> list:
    """A list of tensors from one tensor, several, or None."""
    return [] if args is None else [args] if isinstance(args, torch.Tensor) else list(args)
