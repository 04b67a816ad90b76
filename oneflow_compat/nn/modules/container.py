"""ParameterList under OneFlow's argument name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from ... import _bind
from ._same import SameAsTorch

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = ["ParameterList"]


class ParameterList(nn.ParameterList, metaclass=SameAsTorch):
    """torch's ParameterList; the argument is called `parameters` (torch: `values`).

    TypeError if both are given.
    """

    _torch_class = nn.ParameterList

    def __init__(
        self, parameters: Iterable[Any] | None = None, *, values: Iterable[Any] | None = None
    ) -> None:
        if parameters is not None and values is not None:
            raise TypeError(
                "ParameterList() got both parameters and values: they are two names of one argument"
            )
        super().__init__(parameters if values is None else values)


__getattr__, __dir__ = _bind.fall_through(__name__, "torch.nn.modules.container", classes=True)
