"""Values that decide shapes and branches while build() is captured: lengths, masks, flags in buffers.

A program that is made for such a value tests it: before each call a small program computes the value again. If
it differs, another program serves the call (program/scalar_guards.py).
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from ..errors import KEEP_VALUE, CaptureError
from ..program.scalar_guards import Condition
from .function_aliases import everywhere
from .known import guarded_scalar, guarded_tensor, known_value
from .patching import patched_attributes

aten = torch.ops.aten


def lengths(recorder, tensor):
    """Return the values of a small integer tensor, also of an argument: the program is made for them."""
    return guarded_tensor(recorder, tensor, of_arguments=True)


def with_known_lengths(recorder, tree):
    """Return the arguments of build() with the lengths in a PackedSequence as real tensors.

    The reason is that torch reads them in C++.
    """
    packed = torch.nn.utils.rnn.PackedSequence

    def known(value):
        if not isinstance(value, packed):
            return value
        sizes = lengths(recorder, value.batch_sizes)
        recorder.hold(sizes)
        return value._replace(batch_sizes=sizes)

    return pytree.tree_map(known, tree, is_leaf=lambda v: isinstance(v, (packed, torch.Size)))


# -- operators whose result's shape depends on values ------------------------------------
def known_shape(recorder, func, node, args):
    """The symbolic result of an operator in the table below, or None."""
    made = _KNOWN.get(func)
    result = made(recorder, node, *args) if made is not None else None
    recorder.sizes.known |= result is not None and made in (_index, _select, _by_values)
    return result


def _pack(recorder, node, data, sizes, batch_first):
    value = lengths(recorder, sizes)
    if value is None:
        raise CaptureError(
            "the lengths of pack_padded_sequence are computed from values that a program cannot know",
            "Give them as a list of numbers, or as a CPU tensor that is an argument or a buffer: each set of"
            " lengths makes a program of its own.",
        )
    with _disable_current_modes():
        thin, counts = aten._pack_padded_sequence(
            torch.zeros(data.shape[:2] + (1,)), value.cpu(), batch_first
        )
    with recorder.fake_mode:
        packed = torch.empty(thin.shape[:1] + data.shape[2:], dtype=data.dtype, device=data.device)
    recorder.hold(counts)  # a real tensor: torch's C++ reads it
    return packed, counts


def _ctc(recorder, node, log_probs, targets, input_lengths, target_lengths, *more):
    batch, steps = (
        (log_probs.shape[1], log_probs.shape[0]) if log_probs.dim() == 3 else (1, log_probs.shape[0])
    )
    most = max(target_lengths, default=0) if isinstance(target_lengths, (list, tuple)) else targets.shape[-1]
    with recorder.fake_mode:
        loss = torch.empty(
            (batch,) if log_probs.dim() == 3 else (), dtype=log_probs.dtype, device=log_probs.device
        )
        return loss, torch.empty((batch, steps, 2 * most + 1), dtype=log_probs.dtype, device=log_probs.device)


def _by_values(recorder, node, *args):
    """Return the results of an operator if the values of all its inputs are known, else None.

    Unless the inputs are constants, the program is guarded by the length of the first result.
    """
    known = known_value(recorder, node)
    value = known.value
    if value is None:
        return None
    if known.is_example:
        result_node, tensor = (
            (node, value)
            if isinstance(value, torch.Tensor)
            else (recorder.graph.call_function(operator.getitem, (node, 0)), value[0])
        )
        size = recorder.graph.call_function(aten.sym_size.int, (result_node, 0))
        recorder.guards.append(Condition(size, operator.eq, tensor.shape[0]))
    with recorder.fake_mode:
        return pytree.tree_map_only(
            torch.Tensor,
            lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device),
            value,
        )


def _flag(recorder, node, *args):
    """Return the result of torch.equal or allclose of known values.

    Unless the values are constants, the program is guarded by the result.
    """
    known = known_value(recorder, node)
    if known.value is None:
        raise CaptureError(
            f"torch.{node.target._opname}() needs the values of tensors, which a static program does not have",
            KEEP_VALUE,
        )
    if known.is_example:
        result = recorder.graph.call_function(node.target, node.args, node.kwargs)
        recorder.guards.append(Condition(result, operator.eq, known.value))
    return known.value


def _count(recorder, mask):
    """Return the number of set elements of a mask, or None if its values are unknown."""
    node = recorder.graph.call_function(aten.count_nonzero.default, (recorder._convert(mask)[0],))
    count = guarded_scalar(recorder, node)
    if count is None:
        recorder.graph.erase_node(node)
    return count


def _lstsq(recorder, node, a, b, rcond=None):
    """Laid out as for a matrix of full rank, which alone has residuals."""
    with _disable_current_modes():
        full = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device).expand(a.shape)
        like = torch.linalg.lstsq(
            full, torch.zeros(b.shape, dtype=b.dtype, device=b.device), rcond, **node.kwargs
        )
    with recorder.fake_mode:
        return tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in like)


def _index(recorder, node, x, indices):
    """x[mask] is x[nonzero indices]: the number of set elements decides the shape."""
    index_tensors = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            index_tensors.append(index)
            continue
        count = _count(recorder, index) if index.dim() else None
        if count is None:
            return None
        with recorder.fake_mode:
            index_tensors += [
                torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())
            ]
    with recorder.fake_mode:
        return aten.index.Tensor(x, index_tensors)


def _select(recorder, node, x, mask):
    count = _count(recorder, mask)
    if count is None:
        return None
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    with recorder.fake_mode:
        return torch.empty(count * (shape.numel() // max(1, mask.numel())), dtype=x.dtype, device=x.device)


_KNOWN = {
    aten._pack_padded_sequence.default: _pack,
    aten._ctc_loss.default: _ctc,
    aten._ctc_loss.Tensor: _ctc,
    aten.index.Tensor: _index,
    aten.masked_select.default: _select,
    aten.nonzero.default: _by_values,
    aten.repeat_interleave.Tensor: _by_values,
    aten.bincount.default: _by_values,
    aten._unique2.default: _by_values,
    aten._unique.default: _by_values,
    aten.unique_consecutive.default: _by_values,
    aten.unique_dim.default: _by_values,
    aten.equal.default: _flag,
    aten.allclose.default: _flag,
    aten.linalg_lstsq.default: _lstsq,
}


# -- functions of torch that read values in Python or in C++, in a form that needs none ----------
@contextlib.contextmanager
def value_readers(recorder, active, exact):
    """While build() is captured: numpy() and tolist(), ctc_loss with lengths in a list, pad_packed_sequence,
    BatchNorm with momentum=None, cond.

    `exact`: the average of BatchNorm is the very number eager computes, which only the aten backend can pass
    to the operator.
    """
    batch_norm = torch.nn.modules.batchnorm._BatchNorm
    originals = torch.ctc_loss, batch_norm.forward, torch._VF._pad_packed_sequence, torch.any, torch.cond
    checks = torch.nn.functional.gaussian_nll_loss.__code__

    def ctc_loss(log_probs, targets, input_lengths, target_lengths, *more, **named):
        if active():
            input_lengths, target_lengths = (
                torch.tensor(v) if isinstance(v, (list, tuple)) else v
                for v in (input_lengths, target_lengths)
            )
        return originals[0](log_probs, targets, input_lengths, target_lengths, *more, **named)

    def forward(self, x):
        if (
            not active()
            or self.momentum is not None
            or not self.training
            or not self.track_running_stats
            or self.num_batches_tracked is None
        ):
            return originals[1](self, x)
        self._check_input_dim(x)
        self.num_batches_tracked.add_(1)
        if not exact:
            return _averaged_batch_norm(self, x)
        factor = _number(
            recorder,
            lambda item: recorder.graph.call_function(operator.truediv, (1.0, item)),
            self.num_batches_tracked,
        )
        return torch.nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, factor, self.eps
        )

    def pad(data, sizes, batch_first, value, total):
        sequence_lengths = lengths(recorder, sizes) if active() else None
        if sequence_lengths is None:
            return originals[2](data, sizes, batch_first, value, total)
        with _disable_current_modes():
            sequence_lengths = sequence_lengths.tolist()
        return _padded(data, sequence_lengths, batch_first, value, total)

    def any_(
        *args,
        **kwargs,
        # what gaussian_nll_loss checks, that no variance is negative, is left out as the checks of
        # distributions
        # are
    ):
        return False if active() and sys._getframe(1).f_code is checks else originals[3](*args, **kwargs)

    def cond(
        pred, true_fn, false_fn, operands=()
    ):  # one branch is recorded; a value that a program cannot know is an error
        return (
            (true_fn if pred else false_fn)(*operands)
            if active()
            else originals[4](pred, true_fn, false_fn, operands)
        )

    batch_norm.forward, torch._VF._pad_packed_sequence = forward, pad
    try:
        with (
            everywhere(
                {
                    "ctc_loss": (originals[0], ctc_loss),
                    "any": (originals[3], any_),
                    "cond": (originals[4], cond),
                }
            ),
            _arrays(recorder, active),
        ):
            yield
    finally:
        batch_norm.forward = originals[1]
        del torch._VF._pad_packed_sequence


@contextlib.contextmanager
def _arrays(recorder, active):
    """Replace numpy() and the like, which read memory without calling an operator.

    Known values are read and guarded; unknown values are an error.
    """
    names = {"numpy": "as a NumPy array", "tolist": "as a list", "__dlpack__": "through dlpack"}

    def reader(name, original):
        @functools.wraps(original)
        def read(self, *args, **kwargs):
            if not active() or _get_current_dispatch_mode() is None:
                return original(self, *args, **kwargs)
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

    with patched_attributes((torch.Tensor, n, reader(n, getattr(torch.Tensor, n))) for n in names):
        yield


def _number(recorder, compute, tensor):
    """A float argument of an operator that the program computes from a tensor; the recorder knows it by a
    number no user has.
    """
    item = recorder.graph.call_function(aten._local_scalar_dense.default, (recorder._convert(tensor)[0],))
    node = compute(item)
    for made in (item, node):
        recorder._annotate(made)
    mark = 0.0009137283950617284 * (1.0 + (len(recorder.markers) + 1) * 2.0**-40)
    recorder.markers[mark] = node
    return mark


def _averaged_batch_norm(module, x):
    """Batch norm whose running statistics are the mean over all batches, in tensor arithmetic."""
    out = torch.nn.functional.batch_norm(x, None, None, module.weight, module.bias, True, 0.0, module.eps)
    with torch.no_grad():
        factor, dims = 1.0 / module.num_batches_tracked.float(), [d for d in range(x.dim()) if d != 1]
        for running, now in ((module.running_mean, x.mean(dims)), (module.running_var, x.var(dims))):
            running.mul_(1.0 - factor).add_(now * factor)
    return out


def _padded(data, sizes, batch_first, value, total):
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
