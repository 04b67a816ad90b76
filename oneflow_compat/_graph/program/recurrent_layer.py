"""A recurrent layer in a program: the operators that represent it, and the marks on its nodes."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten
CUDNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t
WHOLE_LAYERS = {"rnn_relu": aten.rnn_relu.input, "rnn_tanh": aten.rnn_tanh.input, "gru": aten.gru.input}


class Layer:
    """One layer and direction of a GRU or RNN that a program computes step by step.

    node.meta["recurrent"] lists (layer, role, step). The roles of values:

    - "given": the input's share of all steps.
    - "product" and "state" of a step, in the order computed.
    - "out": all states.
    - "inner": used within the layer alone.

    The roles of gradients:

    - "dgiven", and "dproduct" of a step.
    - "dfirst": of the first state, besides the gradient through its product.
    - "dout" and "dlast": incoming; "dlast" is of the last states of all layers, and `index` is this one's.
    """

    def __init__(self, name: str, reverse: bool, steps: int, index: int) -> None:
        self.name, self.reverse, self.steps, self.index = name, reverse, steps, index
        self.marks, self.differentiated = 0, False

    def __deepcopy__(self, memo: dict[int, object]) -> Layer:
        return self  # the nodes of a copied program belong to the same layer

    def mark(self, tensor: torch.Tensor, role: str, step: int = 0) -> None:
        self.marks += 1
        if type(tensor) is FakeTensor:
            meta = tensor._of_node.meta  # type: ignore[attr-defined]
            meta["recurrent"] = (*meta.get("recurrent", ()), (self, role, step))

    def mark_gradient(self, tensor: torch.Tensor, role: str, step: int = 0) -> None:
        """Mark the gradient that reaches the operator that computed the tensor, after all hooks."""

        def see(grads: tuple[torch.Tensor | None, ...]) -> None:
            self.differentiated = True
            if grads[0] is not None:
                self.mark(grads[0], role, step)

        if tensor.grad_fn is not None:
            tensor.grad_fn.register_prehook(see)
