"""Tracers of torch inside build(): linearize() calls its function where it would trace it; make_fx, whose
graph would hold symbolic tensors, is an error.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils._pytree as pytree

from ..errors import CaptureError


@contextlib.contextmanager
def tracers(patched: Any, capturing: Any) -> Iterator[None]:
    """Everything here is undone on exit."""
    with contextlib.ExitStack() as stack:
        transforms = sys.modules.get("torch._functorch.eager_transforms")
        if transforms is not None:
            stack.enter_context(
                patched(
                    transforms,
                    "lazy_dynamo_disallow",
                    lambda original: lambda f: _UNTRACED[f.__name__] if capturing() else original(f),
                )
            )
        tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")
        if tracer is not None:
            stack.enter_context(
                patched(
                    tracer._MakefxTracer,
                    "trace",
                    lambda original: lambda *args: _refuse() if capturing() else original(*args),
                )
            )
        yield


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """What linearize() takes for make_fx: it calls the result with a tuple of tensors, and what comes of that
    with tensors.
    """
    return lambda example: lambda *flat: pytree.tree_leaves(function(flat))


_UNTRACED = {"make_fx": _untraced, "split_const_subgraphs": lambda function: function}


def _refuse() -> None:
    raise CaptureError(
        "build() traces a function with make_fx", "Call the function itself: build() is recorded anyway."
    )
