"""oneDNN's LSTM layers on the CPU become matrix products and one kernel for the recurrence, forward and backward. ROUNDING.

oneDNN makes its primitives anew in each call and computes one step after the other; here the products over all steps
are one each, and the gradients of the weights too.
"""
from __future__ import annotations

import operator

import torch

from .patterns import Editor, contiguous, kernel_for

aten = torch.ops.aten
_LSTM = 2  # at::native's mode
_LARGEST = 640  # hidden size: where the weight leaves the cache oneDNN is faster (0.93 of its speed at 1024, 1.15 at 512)


def fuse_lstm(program):
    """aten::mkldnn_rnn_layer in float32 and its gradient through oneflow::lstm."""
    editor = Editor(program)
    for node in editor.nodes(aten.mkldnn_rnn_layer.default):
        layer = _Layer.of(editor, node)
        if layer is not None:
            layer.rewrite()
    return program


class _Layer:
    """One layer and direction: the nodes of its forward and backward pass."""

    @staticmethod
    def of(editor, node):
        """None where the kernel does not take it."""
        x, _, _, _, _, _, _, _, batch_sizes, mode, *_ = node.args
        parts = {}
        for user in node.users:
            if user.target is not operator.getitem or user.args[1] in parts:
                return None
            parts[user.args[1]] = user
        infos = [a.meta.get("tensor") for a in node.args[:7]]
        if mode != _LSTM or batch_sizes or any(i is None or i.dtype is not torch.float32 or i.device.type != "cpu" for i in infos) or not kernel_for(infos[0]):
            return None
        if len(infos[0].shape) != 3 or any(len(i.shape) != 2 for i in infos[5:]) or infos[5].shape[1] > _LARGEST:
            return None
        if any(not contiguous(parts[i].meta["tensor"]) for i in parts if i < 3):
            return None
        backward = list(parts[3].users) if 3 in parts else []
        if any(b.target is not aten.mkldnn_rnn_layer_backward.default or b.args[-1] is not parts[3] or b.args[0] is not x for b in backward):
            return None
        return _Layer(editor, node, parts, backward)

    def __init__(self, editor, node, parts, backward):
        self.editor, self.node, self.parts, self.backward = editor, node, parts, backward
        self.x, self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.h0, self.c0, self.reverse = node.args[:8]
        self.biases = node.args[12]

    def rewrite(self):
        x, node = self.x.meta["tensor"], self.node
        steps, batch, width = x.shape
        hidden = self.h0.meta["tensor"].shape[1]
        add = lambda target, *args, **kwargs: self.editor.insert(node, target, args, kwargs)
        flat = self.x if contiguous(x) else add(aten.clone.default, self.x, memory_format=torch.contiguous_format)
        flat = add(aten.view.default, flat, [steps * batch, width])
        turned = add(aten.t.default, self.w_ih)
        given = add(aten.addmm.default, add(aten.add.Tensor, self.b_ih, self.b_hh), flat, turned) if self.biases else add(aten.mm.default, flat, turned)
        given = add(aten.view.default, given, [steps, batch, 4 * hidden])
        new = self.editor.insert(node, torch.ops.oneflow.lstm.default, (given, self.w_hh, self.h0, self.c0, self.reverse), info=None)
        kind = type(x)
        rows = kind((batch, hidden), x.dtype, x.device, (hidden, 1))
        infos = [kind((steps, batch, hidden), x.dtype, x.device, (batch * hidden, hidden, 1)), rows, rows, given.meta["tensor"]]
        infos.append(infos[0])
        out = [self.editor.insert(node, operator.getitem, (new, i), info=info) for i, info in enumerate(infos)]
        for i, part in list(self.parts.items()):
            if i < 3:
                self.editor.swap(part, out[i])
        for back in self.backward:
            self._rewrite_backward(back, flat, out, (steps, batch, width, hidden))
        if 3 in self.parts:
            self.editor.erase(self.parts[3])
        self.editor.erase(node)
        for n in out:
            if not n.users:
                self.editor.erase(n)

    def _rewrite_backward(self, back, flat, out, sizes):
        steps, batch, width, hidden = sizes
        dhidden, dlast, dcell = back.args[10:13]
        parts = {u.args[1]: u for u in back.users}
        add = lambda target, *args: self.editor.insert(back, target, args)
        new = self.editor.insert(back, torch.ops.oneflow.lstm_backward.default, (dhidden, dlast, dcell, out[3], out[4], self.c0, self.w_hh, self.reverse), info=None)
        infos = [out[3].meta["tensor"], out[1].meta["tensor"], out[2].meta["tensor"]]
        dgates, dh, dc = (self.editor.insert(back, operator.getitem, (new, i), info=info) for i, info in enumerate(infos))
        rows = add(aten.view.default, dgates, [steps * batch, 4 * hidden])
        turned = add(aten.t.default, rows)
        made = {5: dh, 6: dc}
        if 0 in parts:
            made[0] = add(aten.view.default, add(aten.mm.default, rows, self.w_ih), [steps, batch, width])
        if 1 in parts:
            made[1] = add(aten.mm.default, turned, flat)
        if 2 in parts:
            first = add(aten.unsqueeze.default, self.h0, 0)
            others = add(aten.slice.Tensor, out[0], 0, *((1, steps) if self.reverse else (0, steps - 1)))
            before = add(aten.cat.default, [others, first] if self.reverse else [first, others])
            made[2] = add(aten.mm.default, turned, add(aten.view.default, before, [steps * batch, hidden]))
        if self.biases and (3 in parts or 4 in parts):
            made[3] = made[4] = add(aten.sum.dim_IntList, rows, [0])
        for i, part in parts.items():
            if part.users:
                self.editor.swap(part, made[i])
            else:
                self.editor.erase(part)
        self.editor.erase(back)
        for n in (dgates, dh, dc):
            if not n.users:
                self.editor.erase(n)
