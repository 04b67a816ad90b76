"""The module class of job functions in 0.2 to 0.4: named, without parameters of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import torch


_serial = itertools.count()


class Module:
    """A callable with a name, whose calls are counted.

    `forward` creates its variables with flow.get_variable.
    """

    def __init__(self, name: str | None = None) -> None:
        self.module_name_ = f"Module_{next(_serial)}" if name is None else name
        self.call_seq_no_ = 0

    module_name = property(lambda self: self.module_name_)
    call_seq_no = property(lambda self: self.call_seq_no_)

    def forward(self, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define what a call computes")

    def __call__(self, *args: Any) -> torch.Tensor:
        result = self.forward(*args)
        self.call_seq_no_ += 1
        return result
