"""The class of the symbolic tensors of a capture.

It is torch's FakeTensor. A type checker also sees the attributes that the recorder adds to its objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    class RecordedTensor(FakeTensor):
        """A fake tensor, and the node of the graph that computes it."""

        _of_node: Node
        _value: torch.Tensor  # its real value, where that is known; see KnownValues in known.py
        _unknown_rows: list[Any]  # of a sparse tensor whose number of rows depends on values
        _of_placement: Any
        _of_sbp: Any

else:
    RecordedTensor = FakeTensor
