"""Nested results of job functions: flatten, remember the structure, rebuild."""

from __future__ import annotations

from ._buffers import TensorList


def leaves(value, where="the result"):
    """Flat list of the tensors of a job's result; anything else is an error that says what is allowed."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, TensorList):
        return value.items
    if value is None:
        return []
    if isinstance(value, (tuple, list)):
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, f"{where}[{i}]")]
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in leaves(v, f"{where}[{k!r}]")]
    raise TypeError(
        f"{where} of the job function is a {type(value).__name__}; a job returns blobs, or tuples, lists and"
        " dicts of blobs, or None"
    )


def rebuild(value, queue, wrap):
    """The structure of `value` with its tensors replaced by what `wrap` makes of the next item of `queue`."""
    if type(value) is int:  # a leaf of structure()
        return wrap(next(queue))

    if value is None:
        return None
    if isinstance(value, TensorList):
        return TensorList([rebuild(v, queue, wrap) for v in value.items])
    if isinstance(value, (tuple, list)):
        return type(value)(rebuild(v, queue, wrap) for v in value)
    if isinstance(value, dict):
        return {k: rebuild(v, queue, wrap) for k, v in value.items()}
    return wrap(next(queue))


def structure(value):
    """`value` with every tensor replaced by 0, so that no tensor is kept."""
    return rebuild(value, iter(lambda: 0, 1), lambda leaf: leaf)
