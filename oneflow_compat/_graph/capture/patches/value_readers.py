"""Functions of torch that read values in Python or in C++, in a form that needs none while build() runs."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from ...._method import own_attribute
from ...errors import CaptureError
from ..values.branch_values import lengths
from ..values.known import guarded_tensor
from .batch_norm import averaging_forward
from .composites import may_be_checked
from .patching import Replacements, patched_attributes

if TYPE_CHECKING:
    from ..recorder import Recorder


aten = torch.ops.aten
_WRONG_TARGETS = "ctc_loss() targets must be classes: at least 0 and below the last size of log_probs"


@contextlib.contextmanager
def value_readers(recorder: Recorder, active: Callable[..., Any], exact: Any) -> Iterator[Replacements]:
    """Replace functions that read values: ctc_loss, pad_packed_sequence, BatchNorm, cond, numpy(), tolist().

    `exact`: the average of BatchNorm is the number that eager computes, which only the aten backend can pass
    to the operator.
    """

    def momentum(counter: torch.Tensor) -> Any:
        return _reciprocal_argument(recorder, counter)

    changes = [
        (_BatchNorm, "forward", averaging_forward(_BatchNorm.forward, active, momentum if exact else None)),
        (torch._VF, "_pad_packed_sequence", _pad_packed_sequence(recorder, active)),
    ]
    replacements = {
        "ctc_loss": (torch.ctc_loss, _ctc_loss(active, torch.ctc_loss)),
        "any": (torch.any, _any(active, torch.any)),
        "cond": (torch.cond, _cond(active, torch.cond)),
    }
    with patched_attributes(changes), _arrays(recorder, active):
        yield replacements


def _ctc_loss(active: Callable[..., Any], original: Callable[..., Any]) -> Any:
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *options: Any, **named: Any
    ) -> Any:
        if active():
            input_lengths, target_lengths = (
                torch.tensor(v) if isinstance(v, (list, tuple)) else v
                for v in (input_lengths, target_lengths)
            )
            targets = _targets_in_range(log_probs, targets, target_lengths)
        return original(log_probs, targets, input_lengths, target_lengths, *options, **named)

    return ctc_loss


def _targets_in_range(log_probs: Any, targets: Any, lengths: Any) -> Any:
    """Return the targets of ctc_loss, asserted to be classes. Padding is not tested.

    torch's kernels (2.13) read memory at the class without a test. Compiled code may run the kernel before
    the assertion fails, so the kernel gets class 0 for a wrong target.
    """
    if not may_be_checked(targets) or not isinstance(lengths, torch.Tensor):
        return targets
    lengths = lengths.to(targets.device)
    if targets.dim() == 2:
        if lengths.shape != targets.shape[:1]:
            return targets  # the kernel raises
        lengths = lengths[:, None]
    else:
        lengths = lengths.sum()
    is_padding = torch.arange(targets.shape[-1], device=targets.device) >= lengths
    is_right = is_padding | (targets >= 0) & (targets < log_probs.shape[-1])
    torch._assert_async(is_right.all(), _WRONG_TARGETS)
    return torch.where(is_right, targets, 0)


def _pad_packed_sequence(recorder: Recorder, active: Callable[..., Any]) -> Any:
    original = torch._VF._pad_packed_sequence

    def pad(data: Any, sizes: Any, batch_first: bool, value: Any, total: int) -> Any:
        sequence_lengths = lengths(recorder, sizes) if active() else None
        if sequence_lengths is None:
            return original(data, sizes, batch_first, value, total)
        with _disable_current_modes():
            sequence_lengths = sequence_lengths.tolist()
        return _padded(data, sequence_lengths, batch_first, value, total)

    return pad


def _any(active: Callable[..., Any], original: Callable[..., Any]) -> Any:
    """Leave out the check of gaussian_nll_loss that no variance is negative, as distributions' checks are."""
    check = torch.nn.functional.gaussian_nll_loss.__code__

    def any_(*args: Any, **kwargs: Any) -> Any:
        return False if active() and sys._getframe(1).f_code is check else original(*args, **kwargs)

    return any_


def _cond(active: Callable[..., Any], original: Callable[..., Any]) -> Any:
    """Record one branch. A value that a program cannot know is an error."""

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if not active():
            return original(pred, true_fn, false_fn, operands)
        return (true_fn if pred else false_fn)(*operands)

    return cond


@contextlib.contextmanager
def _arrays(recorder: Recorder, active: Callable[..., Any]) -> Iterator[None]:
    """Replace numpy(), tolist() and __dlpack__(), which read memory without calling an operator.

    Known values are read and guarded; unknown values are an error.
    """
    names = {"numpy": "as a NumPy array", "tolist": "as a list", "__dlpack__": "through dlpack"}

    def reader(name: str, original: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not active() or _get_current_dispatch_mode() is None:
                return original(self, *args, **kwargs)
            if name == "tolist" and self.dim() == 0:
                return self.item()
            constant = guarded_tensor(recorder, self)
            if constant is None:
                raise CaptureError(
                    f"build() needs the values of a tensor {names[name]}, which a static program does not"
                    " have",
                    "Return the tensor and read the result, or compute with tensors.",
                )
            with _disable_current_modes():
                return original(constant, *args, **kwargs)

        return read

    with patched_attributes((torch.Tensor, n, reader(n, own_attribute(torch.Tensor, n))) for n in names):
        yield


def _reciprocal_argument(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """Return a float argument of an operator that the program computes as 1 / tensor.

    The recorder knows it by a number that no user has.
    """
    item = recorder.graph.call_function(aten._local_scalar_dense.default, (recorder._convert(tensor)[0],))
    reciprocal = recorder.graph.call_function(operator.truediv, (1.0, item))
    for node in (item, reciprocal):
        recorder._annotate(node)
    mark = 0.0009137283950617284 * (1.0 + (len(recorder.markers) + 1) * 2.0**-40)
    recorder.markers[mark] = reciprocal
    return mark


def _padded(data: Any, sizes: Any, batch_first: bool, value: Any, total: int) -> tuple[Any, ...]:
    """_pad_packed_sequence, whose C++ writes the lengths into memory that a symbolic tensor does not have."""
    steps = len(sizes)
    if 0 < total < steps:
        raise ValueError(
            f"pad_packed_sequence: total_length is {total}, the longest sequence has {steps} steps"
        )
    out = torch.full(
        (max(steps, total), sizes[0], *data.shape[1:]), value, dtype=data.dtype, device=data.device
    )
    counts, offset, before, start = [], 0, sizes[0], 0
    for i in range(steps + 1):
        size = sizes[i] if i < steps else 0
        if size != before:
            count = before * (i - start)
            out[start:i, :before].copy_(
                data[offset : offset + count].view(i - start, before, *data.shape[1:])
            )
            offset, start = offset + count, i
        counts += [i] * max(0, before - size)
        before = size
    return out.transpose(0, 1) if batch_first else out, torch.tensor(counts[::-1])
