"""The text of tensors in build(). A symbolic tensor has no values, and a real one those of the capture."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch._tensor_str
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...._ops.tensor.texts import tensor_text
from ...program.live_numbers import live_number
from ..values.known import guarded_tensor
from .patching import patched, patched_attributes

if TYPE_CHECKING:
    from ..interfaces import CaptureInterface


@contextlib.contextmanager
def texts_of_tensors(capture: CaptureInterface, active: Callable[[], bool]) -> Iterator[None]:
    """A symbolic tensor prints as OneFlow's lazy ones do, in f-strings with a format as well.

    The values in the text of a real tensor are guarded. A warning names a text whose values are not known,
    unless print() or a log gets it.
    """
    recorder, reads = capture.recorder, capture.reads

    def symbolic(tensor: torch.Tensor, *_: Any, **__: Any) -> str:
        if active() and not reads.is_text_for_output(sys._getframe(1)):
            reads.warn_of_text()
        grad_fn = None if tensor.grad_fn is None else type(tensor.grad_fn).__name__
        requires_grad = tensor.requires_grad
        return tensor_text(
            tensor.shape, tensor.dtype, lazy=True, requires_grad=requires_grad, grad_fn=grad_fn
        )

    def make(original: Callable[..., str]) -> Callable[..., str]:
        def real(tensor: torch.Tensor, **named: Any) -> str:
            reads_values = active() and _get_current_dispatch_mode() is not None
            if reads_values and not reads.is_text_for_output(sys._getframe(1)):
                if guarded_tensor(recorder, tensor) is None:
                    reads.warn_of_text()
            return original(tensor, **named)

        return real

    names = "__repr__", "__str__", "__format__"
    with (
        patched_attributes((FakeTensor, name, symbolic) for name in names),
        patched(torch._tensor_str, "_str", make),
        patched(torch.SymFloat, "__format__", _of_number),
    ):
        yield


def _of_number(original: Callable[..., str]) -> Callable[..., str]:
    """Let the text of a number of the program be the error of such a number."""

    def text(number: torch.SymFloat, form: str) -> str:
        live = live_number(number)
        if live is not None:
            live.numbers.need(live)
        return original(number, form)

    return text
