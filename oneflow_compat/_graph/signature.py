"""The key that selects the program for a call."""

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from .._global.marks import is_global
from .program.pytree import tree_flatten

Signature = tuple[Any, ...]  # metadata of tensors and Python values, in the order of the flat arguments
_PLAIN = frozenset([torch.Tensor, torch.nn.Parameter])
_COMPLEX = frozenset([torch.complex32, torch.complex64, torch.complex128])


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, Sequence[Any]]:
    """Return the signature of a call and its flat arguments.

    The signature is the structure of the arguments, the metadata of tensors, and the Python values.
    """
    if not kwargs:
        key: list[Hashable] = []
        for a in args:
            if type(a) is torch.Tensor:
                key.append(
                    (a.shape, a.stride(), a.dtype, a.device, a.requires_grad)
                    if a.layout is torch.strided and a.dtype not in _COMPLEX
                    else _leaf_key(a)
                )
            elif isinstance(a, torch.Tensor):
                key.append(_leaf_key(a))
            elif type(a) in (int, float, bool, str, type(None)):
                key.append((type(a), a) if type(a) is not float else _leaf_key(a))
            else:
                break
        else:
            return tuple(key), args
    flat, spec = tree_flatten((args, kwargs))
    try:
        flat_key = (spec, *map(_leaf_key, flat))
        hash(flat_key)
        return flat_key, flat
    except TypeError:
        keys = (_leaf_key(x) if isinstance(x, torch.Tensor) else (type(x), repr(x)) for x in flat)
        return (str(spec), *keys), flat


def with_autocast(key: Signature) -> Signature:
    """Return the key of a call under autocast: its dtypes decide which casts the program has."""
    devices = "cpu", "cuda"
    return "autocast", *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices), key


def _leaf_key(leaf: Any) -> tuple[Any, ...]:
    """Return what two values have in common that one program may serve."""
    if isinstance(leaf, torch.Tensor):
        if type(leaf) not in _PLAIN:  # a class of the user's may count, change or refuse what is asked of it
            with torch._C.DisableTorchFunction():
                return _tensor_key(leaf)
        return _tensor_key(leaf)
    if type(leaf) is float and (leaf == 0.0 or leaf != leaf):
        return (float, repr(leaf))  # 0.0 equals -0.0, and nan does not equal itself
    return (type(leaf), leaf)


def _tensor_key(leaf: torch.Tensor) -> tuple[Any, ...]:
    if is_global(leaf):
        return (
            leaf.shape,
            leaf.stride(),
            leaf.dtype,
            leaf.device,
            leaf.requires_grad,
            leaf._of_placement,
            leaf._of_sbp,
        )
    if leaf.layout is torch.strided:
        layout = (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
        if leaf.dtype in _COMPLEX and leaf.is_conj():
            return (*layout, "conjugate")
        return layout if type(leaf) in _PLAIN else (*layout, type(leaf))
    return (leaf.shape, leaf.layout, leaf.dtype, leaf.device, leaf.requires_grad)
